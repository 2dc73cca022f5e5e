"""The headline of a run: one sentence for the terminal, report, choice.json, model card and estimator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..tasks import Task, label_of
from ..training.intervals import MIN_SUBJECTS_TO_TEST, bootstrap_interval
from ..words import count, printable, range_words, score, signed

SAME = 1e-9  # smaller differences of scores are rounding errors
MOST_NAMES = 10  # names of subjects in a sentence
LETTERS = 40  # longest name that is not shortened
BASELINE_LETTERS = 100  # longest name of a baseline that is not shortened


@dataclass(frozen=True)
class BestBaseline:
    """Baseline with the highest mean test score, and the difference of the delivered model to it.

    The baseline is selected by its test scores, which favors it.
    """

    name: str
    mean: float
    n_subjects: int  # number of subjects that both models have scores of
    difference: float  # delivered model minus baseline, mean over these subjects
    interval: tuple[float, ...] | None  # 95 % interval of the difference; None for a single subject

    @property
    def comparison(self) -> str:
        """Return "better", "worse", "similar" or "too few" subjects: the delivered model versus the baseline."""
        if self.interval is None or self.n_subjects < MIN_SUBJECTS_TO_TEST:
            return "too few"
        low, high = self.interval
        return "better" if low > 0 else "worse" if high < 0 else "similar"


def best_baseline(estimate: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]]) -> BestBaseline | None:
    """Return the baseline with the highest mean, compared with the delivered model; None without common subjects.

    estimate: scores of the delivered model by subject; baselines: scores by name and subject
    """
    common = {
        name: [subject for subject in estimate if math.isfinite(scores.get(subject, math.nan))]
        for name, scores in baselines.items()
    }
    means = {name: sum(baselines[name][who] for who in both) / len(both) for name, both in common.items() if both}
    if not means:
        return None
    name = max(means, key=means.__getitem__)
    differences = [estimate[subject] - baselines[name][subject] for subject in common[name]]
    differences = [0.0 if abs(difference) <= SAME else difference for difference in differences]
    n, interval = len(differences), bootstrap_interval(differences, seed=0)
    return BestBaseline(name, means[name], n, sum(differences) / n, interval)


def mean(scores: Mapping[str, float]) -> float | None:
    """Return the mean of the finite scores."""
    known = [value for value in scores.values() if math.isfinite(value)]
    return sum(known) / len(known) if known else None


def headline(
    scores: Mapping[str, float], baseline: BestBaseline | None, *, task: Task, interval: tuple[float, float] | None,
    is_guessing: bool, metric: str, chance: float | None, hold_out: str, skipped: bool = False,
) -> str:  # fmt: skip
    """Return one sentence with the score on held-out subjects, its interval and the difference to the best baseline.

    scores: by subject. interval: 95 % interval of their mean. is_guessing: whether the model is not clearly better than
    guessing, which scores `chance`. skipped: whether some baselines were not scored because there was no time.
    """
    start = f"Not clearly better than {task.guess}: the" if is_guessing else "The"
    where = _describe_subjects(hold_out, count(len(scores), "subject"))
    limits = [] if interval is None else [f"95 % interval {score(interval[0])} to {score(interval[1])}"]
    facts = "; ".join(limits + ([] if chance is None else [task.chance_words(chance)]))
    sure = f" ({facts})" if facts else ""
    so_far = " so far" * skipped
    rest = _compare(baseline, so_far, ", and is " if is_guessing else ": ")  # a sentence has at most one colon
    return f"{start} model scores {score(mean(scores))} {label_of(metric)} {where}{sure}{rest}."


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
        return f"on held-out values of {short_name(hold_out)} of {subjects}"
    return f"on {subjects.replace(' ', ' held-out ')}"


def short_name(text: str, most: int = LETTERS) -> str:
    """Return a name of the user's on one line, shortened to at most `most` letters."""
    name = printable(text)
    return name if len(name) <= most else name[: most - 1] + "…"
