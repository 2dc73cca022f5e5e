"""Headline of a run: one sentence with its result, for terminal, report, choice.json, model card and estimator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..tasks import Task, label_of
from ..training.intervals import MIN_SUBJECTS_TO_TEST, mean_interval
from ..words import count, printable, range_words, score, signed

ROUNDING = 1e-9  # rounding error of a difference of scores
MOST_NAMES = 10  # largest number of names of subjects in a sentence
LETTERS = 40  # length of the longest name that is not shortened
BASELINE_LETTERS = 100  # length of the longest name of a baseline that is not shortened


@dataclass(frozen=True)
class BestBaseline:
    """Baseline with the highest mean test score, compared with the delivered model.

    The selection of the best baseline by test scores favors the baseline.
    """

    name: str
    mean: float
    n_subjects: int  # number of subjects with scores of both models
    difference: float  # mean score of the delivered model minus the baseline
    interval: tuple[float, ...] | None  # 95 % interval of the difference; None for a single subject

    @property
    def comparison(self) -> str:
        """Return whether the delivered model is "better", "worse" or "similar", or subjects are "too few"."""
        if self.interval is None or self.n_subjects < MIN_SUBJECTS_TO_TEST:
            return "too few"
        low, high = self.interval
        return "better" if low > 0 else "worse" if high < 0 else "similar"


def best_baseline(estimate: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]]) -> BestBaseline | None:
    """Return the best baseline; None if no baseline shares a scored subject with the delivered model.

    estimate: scores of the delivered model by subject; baselines: scores by baseline and subject
    """
    subjects = {
        name: [subject for subject in estimate if math.isfinite(scores.get(subject, math.nan))]
        for name, scores in baselines.items()
    }
    means = {name: sum(baselines[name][s] for s in common) / len(common) for name, common in subjects.items() if common}
    if not means:
        return None
    name = max(means, key=means.__getitem__)
    differences = [estimate[subject] - baselines[name][subject] for subject in subjects[name]]
    differences = [0.0 if abs(difference) <= ROUNDING else difference for difference in differences]
    n, interval = len(differences), mean_interval(differences)
    return BestBaseline(name, means[name], n, sum(differences) / n, interval)


def mean(scores: Mapping[str, float]) -> float | None:
    """Return the mean of the finite scores."""
    finite = [value for value in scores.values() if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else None


def headline(
    scores: Mapping[str, float], baseline: BestBaseline | None, *, task: Task, interval: tuple[float, float] | None,
    is_guessing: bool, metric: str, chance: float | None, hold_out: str, skipped: bool = False,
) -> str:  # fmt: skip
    """Return one sentence with the score on held-out subjects, its interval and the difference to the best baseline.

    scores: scores by subject. interval: 95 % interval of the mean score. is_guessing: whether the model is not clearly
    better than guessing. chance: score of guessing. skipped: whether some baselines have no scores yet.
    """
    start = f"Not clearly better than {task.guess}: the" if is_guessing else "The"
    subjects = _describe_subjects(hold_out, count(len(scores), "subject"))
    facts = [] if interval is None else [f"95 % interval {score(interval[0])} to {score(interval[1])}"]
    facts += [] if chance is None else [task.chance_words(chance)]
    details = f" ({'; '.join(facts)})" if facts else ""
    so_far = " so far" * skipped
    comparison = _compare(baseline, so_far, ", and is " if is_guessing else ": ")  # a sentence has at most one colon
    return f"{start} model scores {score(mean(scores))} {label_of(metric)} {subjects}{details}{comparison}."


def _compare(baseline: BestBaseline | None, so_far: str, joint: str) -> str:
    """Return the end of the headline. so_far: ' so far' or ''; joint: text before 'better than'."""
    if baseline is None:
        return "; no baseline was scored"
    model = f"the best baseline{so_far}, {short_name(baseline.name, BASELINE_LETTERS)},"
    if baseline.comparison == "too few":
        subjects = count(baseline.n_subjects, "subject is", "subjects are")
        difference = f"(difference {signed(baseline.difference)})"
        return f"; {model} scores {score(baseline.mean)} {difference}, and {subjects} too few to test the difference"
    words = {"better": "better than", "worse": "worse than", "similar": "not clearly better than"}[baseline.comparison]
    difference = f"difference {signed(baseline.difference)}, 95 % interval {range_words(baseline.interval)}"
    return f"{joint}{words} {model} which scores {score(baseline.mean)} ({difference})"


def _describe_subjects(hold_out: str, subjects: str) -> str:
    """Return the test subjects in words, such as 'on 6 held-out subjects'. subjects: '6 subjects'."""
    if hold_out == "session":
        return f"on held-out sessions of {subjects}"
    if hold_out != "subject":
        return f"on {subjects} with held-out values of {short_name(hold_out)}"
    return f"on {subjects.replace(' ', ' held-out ')}"


def short_name(text: str, max_letters: int = LETTERS) -> str:
    """Return a name from user data on one line, shortened to at most max_letters letters."""
    name = printable(text)
    return name if len(name) <= max_letters else name[: max_letters - 1] + "…"
