"""Job: a setting on a fold with a seed. Outcome: what training it produced."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .errors import UserError
from .folds import Fold
from .settings import Setting


def check_seed(seed: Any) -> int:
    """A seed as generators and the ledger can take it."""
    try:
        value = -1 if isinstance(seed, bool) else operator.index(seed)
    except TypeError:
        value = -1
    if not 0 <= value < 2**63:
        raise UserError(f"seed is {seed!r}; it must be a whole number of at least 0 and below 2**63")
    return value


@dataclass(frozen=True, eq=False)
class Job:
    """One training to be done. Its outcome depends on the data and on these three alone."""

    setting: Setting
    fold: Fold
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", check_seed(self.seed))

    @cached_property
    def key(self) -> str:
        return f"{self.setting.key}-{self.fold.key}-{self.seed}"

    @cached_property
    def trajectory(self) -> tuple[str, str, frozenset[bytes], int]:
        """Jobs that agree in this are one training: twins with validation and test subject exchanged."""
        held_out = frozenset((self.fold.validation.tobytes(), self.fold.test.tobytes()))
        return self.setting.key, self.fold.trajectory, held_out, self.seed


@dataclass(frozen=True, eq=False)
class Outcome:
    """A finished training, seen from one of its two held-out subjects.

    The snapshot is the epoch of lowest validation loss, or with keep="last" the last one. `history` holds one
    entry per epoch of "train_loss", "penalty", "validation_loss" and "validation_score"; nothing measured on
    the test subject is in it. `swapped` is the same trajectory with the two held-out subjects exchanged: with
    keep="best" another snapshot, chosen by the other subject.
    """

    job: Job
    best_epoch: int  # the snapshot's, counted from 1; 0 if training failed before the first epoch ended
    validation_score: float  # balanced accuracy of the snapshot on the validation subject
    test_score: float
    validation_confusion: NDArray[np.int64]  # (C, C) counts: true class × predicted class
    test_confusion: NDArray[np.int64]
    history: dict[str, list[float]]
    state: dict[str, Tensor]  # encoder and classifier of the snapshot, without a member axis
    final_state: dict[str, Tensor]  # the same at the last epoch, critics included
    population: int  # how many members were stacked with it at the start
    epochs: int
    seconds: float  # this member's share of the time its population took
    failure: str | None = None  # why training ended early, if it did
    swapped: Outcome | None = field(default=None, repr=False)
