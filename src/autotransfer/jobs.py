"""Classes of a fit: `Job` (setting, fold and seed), `Record` (scores) and `Outcome` (scores and weights)."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from torch import Tensor

from .errors import UserError, shown
from .folds import Fold, name_of
from .schema import Counts
from .settings import Setting
from .words import printable, score

CURVES = ("train_loss", "penalty", "validation_loss", "validation_score")  # keys of `Record.history`


def check_seed(seed: Any) -> int:
    """Return a seed as an int; raise unless it fits into 63 bits."""
    try:
        value = -1 if isinstance(seed, bool) else operator.index(seed)
    except TypeError:
        value = -1
    if not 0 <= value < 2**63:
        raise UserError(f"seed is {shown(seed)}; it must be a whole number of at least 0 and below 2**63")
    return value


@dataclass(frozen=True, eq=False)
class Job:
    """Setting, fold and seed of one fit. The outcome depends only on the job and on the data.

    Parameters
    ----------
    setting : Setting
        Hyperparameters.
    fold : Fold
        Windows for training, validation and testing.
    seed : int
        Seed of initial weights, minibatches, dropout and augmentations.
    """

    setting: Setting
    fold: Fold
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.setting, Setting):
            raise UserError(f"setting of a job is {shown(self.setting)}; give at.Setting(...)")
        if not isinstance(self.fold, Fold):
            raise UserError(f"fold of a job is {shown(self.fold)}; give a fold of at.leave_one_subject_out(recordings)")
        object.__setattr__(self, "seed", check_seed(self.seed))

    @cached_property
    def key(self) -> str:
        return f"{self.setting.key}-{self.fold.key}-{self.seed}"

    @cached_property
    def fit_key(self) -> tuple[str, str, frozenset[bytes], int]:
        """Return a key that is equal for two jobs of one fit, whose validation and test subjects are swapped."""
        held_out = frozenset((self.fold.validation.tobytes(), self.fold.test.tobytes()))
        return self.setting.key, self.fold.training_key, held_out, self.seed


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """Scores of a fit, with one of its two held-out subjects as the test subject.

    Scores are balanced accuracies of the checkpoint, NaN without held-out windows of two classes. The checkpoint is the
    epoch of lowest validation loss (checkpoint="best"), the last epoch ("last"), or the mean of the weights over the
    second half of all steps ("averaged"). `history` has one value per epoch of "train_loss", "penalty",
    "validation_loss" and "validation_score". `swapped` is the record with validation and test subjects swapped.
    """

    best_epoch: int  # epoch of the checkpoint, from 1; 0 if training failed in the first epoch
    epochs: int
    validation_score: float
    test_score: float
    validation_confusion: Counts  # (C, C) counts: true class × predicted class
    test_confusion: Counts
    history: dict[str, list[float]]
    seconds: float  # training time of the population, divided among its members
    population: int  # number of members of the population at the start
    failure: str | None = None  # reason if training failed
    # if there are several test subjects: scores by position of the subject; test_score is then for all their windows
    test_scores: dict[str, float] = field(default_factory=dict)
    swapped: Record | None = field(default=None, repr=False)

    def score_on(self, position: int) -> float:
        """Return the score of the test subject at a position in recordings.subjects."""
        return self.test_scores.get(str(position), self.test_score)

    def __post_init__(self) -> None:
        for name in ("best_epoch", "epochs", "population"):
            if getattr(self, name) < 0:
                raise UserError(f"invalid value for {name}: {getattr(self, name)}")
        for name in ("validation_score", "test_score"):
            value = getattr(self, name)
            if not (math.isnan(value) or 0 <= value <= 1):
                raise UserError(f"invalid value for {name}: {value}")
        if not all(math.isnan(value) or 0 <= value <= 1 for value in self.test_scores.values()):
            raise UserError(f"invalid value for test_scores: {shown(self.test_scores)}")
        if not (math.isfinite(self.seconds) and self.seconds >= 0):
            raise UserError(f"invalid value for seconds: {self.seconds}")
        if set(self.history) != set(CURVES):
            raise UserError(f"the history has {shown(sorted(self.history))}; it must have {sorted(CURVES)}")
        if self.swapped is not None and self.swapped.swapped is not None:
            raise UserError("a swapped record has a swapped record")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Outcome(Record):
    """Record of a finished fit with its job and weights."""

    job: Job
    # (n_validation + n_test, C): log-probabilities of each subject by the checkpoint selected on the other subject
    held_out_log_probs: Tensor = field(repr=False)
    state: dict[str, Tensor]  # encoder and classifier of the checkpoint, without a member axis
    final_state: dict[str, Tensor]  # encoder, classifier and critics of the last epoch
    swapped: Outcome | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        setting, fold = self.job.setting, self.job.fold
        test, validation = (printable(name_of(subject)) for subject in (fold.test_subject, fold.validation_subject))
        failure = "" if self.failure is None else f"; {self.failure}"
        return (
            f"<{type(self).__name__} of {setting.name_relative_to(Setting())}: test {test}, validation {validation}, "
            f"seed {self.job.seed}; best epoch {self.best_epoch} of {self.epochs}, validation score "
            f"{score(self.validation_score)}, test score {score(self.test_score)}{failure}>"
        )

    def record(self) -> Record:
        """Return the record without the weights."""
        values = {f.name: getattr(self, f.name) for f in fields(Record)}
        swapped = None if self.swapped is None else self.swapped.record()
        return Record(**values | {"swapped": swapped})
