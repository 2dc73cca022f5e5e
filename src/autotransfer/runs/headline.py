"""The verdict: one sentence that terminal, report, choice.json, model card and estimator all have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..tasks import Task, label_of
from ..training.intervals import MIN_SUBJECTS_TO_TEST, bootstrap_interval
from ..words import count, printable, range_words, score, signed

SAME = 1e-9  # scores that differ by rounding alone
MOST_NAMES = 10  # of people, in a sentence
LETTERS = 40  # of a name
BASELINE_LETTERS = 100  # of a simple model's


@dataclass(frozen=True)
class BestBaseline:
    """Baseline that scores highest on the people of the run, and the delivered model minus it, person by person.
    Selecting it by test scores favors the baseline."""

    name: str
    mean: float
    n_subjects: int  # whom both have scored
    difference: float  # mean over them
    interval: tuple[float, ...] | None  # 95 %; None for a single person

    @property
    def comparison(self) -> str:
        """Return "better", "worse", "similar" or "too few" subjects: the delivered model versus the baseline."""
        if self.interval is None or self.n_subjects < MIN_SUBJECTS_TO_TEST:
            return "too few"
        low, high = self.interval
        return "better" if low > 0 else "worse" if high < 0 else "similar"


def best_baseline(estimate: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]]) -> BestBaseline | None:
    """Return the baseline with the highest mean, compared with the delivered model; None if nobody was scored by both.

    estimate: scores of the delivered model by person; baselines: by name and person
    """
    common = {
        name: [person for person in estimate if math.isfinite(scores.get(person, math.nan))]
        for name, scores in baselines.items()
    }
    means = {name: sum(baselines[name][person] for person in both) / len(both) for name, both in common.items() if both}
    if not means:
        return None
    name = max(means, key=means.__getitem__)
    gaps = [estimate[person] - baselines[name][person] for person in common[name]]
    gaps = [0.0 if abs(gap) <= SAME else gap for gap in gaps]
    return BestBaseline(name, means[name], len(gaps), sum(gaps) / len(gaps), bootstrap_interval(gaps, seed=0))


def mean(scores: Mapping[str, float]) -> float | None:
    """Return the mean of the finite scores."""
    known = [value for value in scores.values() if math.isfinite(value)]
    return sum(known) / len(known) if known else None


def headline(
    scores: Mapping[str, float], baseline: BestBaseline | None, *, task: Task, interval: tuple[float, float] | None,
    is_guessing: bool, metric: str, chance: float | None, hold_out: str, skipped: bool = False,
) -> str:  # fmt: skip
    """Return a sentence: score on people not seen, interval, comparison with the best simple model.

    scores: by person. interval: 95 % of their mean. is_guessing: the model is not clearly better than guessing, which
    scores `chance`. skipped: there was no time for some simple models, and the best may be among them.
    """
    start = f"Not clearly better than {task.guess}: the" if is_guessing else "The"
    where = describe_subjects(hold_out, count(len(scores), "person", "people"))
    limits = [] if interval is None else [f"95 % interval {score(interval[0])} to {score(interval[1])}"]
    facts = "; ".join(limits + ([] if chance is None else [task.chance_words(chance)]))
    sure = f" ({facts})" if facts else ""
    which = "best scored " if skipped else "best "
    baseline_words = _baseline_words(baseline, which, ", and is " if is_guessing else ": ")  # one colon in a sentence
    return f"{start} model scores {score(mean(scores))} {label_of(metric)} {where}{sure}{baseline_words}."


def _baseline_words(baseline: BestBaseline | None, which: str, joint: str) -> str:
    """Write the end of the sentence. which: 'best ', or 'best scored ' if other baselines have no scores; joint: what a
    comparison begins with."""
    if baseline is None:
        return "; no simple model was scored beside it"
    model = f"the {which}simple model, {short_name(baseline.name, BASELINE_LETTERS)},"
    if baseline.comparison == "too few":
        people = count(baseline.n_subjects, "person is", "people are")
        difference = f"(difference {signed(baseline.difference)})"
        return f"; {model} scores {score(baseline.mean)} {difference}, and {people} too few to tell them apart"
    words = {"better": "better than", "worse": "worse than", "similar": "not clearly better than"}[baseline.comparison]
    difference = f"difference {signed(baseline.difference)}, 95 % interval {range_words(baseline.interval)}"
    return f"{joint}{words} {model} which scores {score(baseline.mean)} ({difference})"


def describe_subjects(hold_out: str, people: str) -> str:
    """Say on whom a model was tested, such as 'on 6 people it has not seen'. people: '6 people'."""
    if hold_out == "session":
        return f"on new sessions of {people} it was trained on"
    if hold_out != "subject":
        return f"on {people}, every {short_name(hold_out)} new to it"
    return f"on {people} it has not seen"


def short_name(text: str, most: int = LETTERS) -> str:
    """Return a user's name for something on one line, at most so many letters long."""
    shown = printable(text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def introduce_headline(sentence: str, *, calibrated: bool = False) -> str:
    """Introduce the verdict of a model that was made earlier. calibrated: for one person, after it was measured."""
    when = "before it was calibrated for one person" if calibrated else "in training"
    return printable(f"As measured {when}: {sentence[:1].lower()}{sentence[1:]}")
