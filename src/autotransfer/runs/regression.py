"""What a run with a continuous target found: its choice.json."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

from .. import schema
from ..errors import UserError
from ..files import read_plain, write_atomically
from ..tasks import task_of
from ..training.intervals import NextPerson, bootstrap_interval, next_person
from .verdict import BestBaseline, best_baseline, mean, verdict

Scores = dict[str, float]

CHOICE = "choice.json"
PEER = "ridge on features"  # the simple model: ridge regression on what any signal has
CONSTANT = "constant"  # the mean of the training people's targets, which is what guessing comes to
SIMPLE = (PEER, CONSTANT)  # what the delivered model is compared with
LOWEST = -1e6  # an R² of somebody whose target hardly changes has no lower end


@dataclass(frozen=True)
class DeliveredPart:
    """A linear model in what is delivered."""

    name: str
    strength: float  # of the ridge penalty, for standardized numbers, in units of the training windows
    weight: float  # in the average
    r2: float | None  # alone: mean over people left out


@dataclass(frozen=True)
class RegressionChoice:
    """Scores are of people left out, by name. What predicts somebody was not trained on them, and their own errors
    decide neither strengths nor weights; trainings that predict the others, who decide, had them in."""

    target: str  # continuous, or continuous:NAME
    name: str  # of the data set
    adaptation: str
    folds: int  # groups of people who were held out in turn
    chosen: list[DeliveredPart]
    baseline: str  # the simple model
    baseline_won: bool
    nested_test_scores: Scores  # R² of what is delivered
    correlations: Scores
    errors: Scores  # root mean squared
    test_scores: dict[str, Scores]  # R² of the simple model and of the constant
    coverage: Scores  # of 90 % intervals that the other people gave; empty: too few people, or an infinite interval
    radius: float | None  # half the width of the delivered 90 % interval; None: infinite, there are too few people
    not_scored: list[str]  # people whose target never changes
    at_least: float | None = None  # the score that the user asks of every person
    # What follows from the scores, for readers of choice.json; whatever is given is replaced.
    verdict: str = ""
    best_baseline: BestBaseline | None = None
    next_person: NextPerson | None = None

    def __post_init__(self) -> None:
        needed = [self.nested_test_scores, self.correlations, self.errors]
        needed += [self.test_scores.get(name, {}) for name in SIMPLE]
        people = list(self.nested_test_scores)
        if not people or not all(math.isfinite(scores.get(who, math.nan)) for scores in needed for who in people):
            raise UserError("somebody has no score")
        if self.radius is None:  # fewer people may have had finite ones, which are not what is delivered
            object.__setattr__(self, "coverage", {})
        scores = self.nested_test_scores
        peer = best_baseline(scores, {PEER: self.test_scores[PEER]})
        object.__setattr__(self, "best_baseline", peer)
        object.__setattr__(self, "next_person", next_person(list(scores.values()), lowest=LOWEST))
        sentence = verdict(
            scores, peer, task=task_of(self.target), interval=bootstrap_interval(list(scores.values()), seed=0),
            guesses=self.guesses, metric="r2", chance=mean(self.test_scores[CONSTANT]), hold_out="subject",
        )  # fmt: skip
        object.__setattr__(self, "verdict", sentence)

    @property
    def guesses(self) -> bool:
        """Whether it is not clearly better than a constant, the mean of the training people's targets."""
        gains = [r2 - self.test_scores[CONSTANT][who] for who, r2 in self.nested_test_scores.items()]
        limits = bootstrap_interval(gains, seed=0)
        return limits is None or limits[0] <= 0

    @property
    def below(self) -> Scores:
        """People below `at_least`, the lowest first."""
        least = -math.inf if self.at_least is None else self.at_least
        return {who: r2 for who, r2 in sorted(self.nested_test_scores.items(), key=lambda item: item[1]) if r2 < least}


def write_regression_choice(folder: Path, choice: RegressionChoice) -> None:
    write_atomically(folder / CHOICE, json.dumps(schema.to_values(choice), indent=1))


def read_regression_choice(folder: Path, at_least: float | None = None) -> RegressionChoice:
    """at_least: another score that the user asks of every person."""
    if not (folder / CHOICE).exists():
        raise UserError(f"{folder} has no answer yet; go on with: autotransfer resume {folder}")
    try:
        choice = schema.from_json(RegressionChoice, read_plain(folder / CHOICE))
    except UserError as error:
        raise UserError(f"{folder / CHOICE} is damaged ({error}); restore it from a copy or start a new run") from None
    return choice if at_least is None else replace(choice, at_least=at_least)
