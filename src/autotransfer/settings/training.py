"""The part of a setting that says how a network learns."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import UserError, check_at_most, check_choice, check_positive, check_types

BATCHES = ("auto", "balanced", "people", "shuffled")
SCHEDULES = ("inverse_sqrt", "constant")
CHECKPOINTS = ("best", "last", "averaged")


@dataclass(frozen=True, kw_only=True)
class Training:
    """Training of a network of any kind."""

    # auto: shuffled without a penalty, and as printed; with a conditional one balanced over classes and subjects, with
    # any other over people
    batches: str = "auto"
    batch_size: int = 128
    lr: float = 1e-3
    schedule: str = "inverse_sqrt"  # of the learning rates: lr/√epoch, as published, or constant
    weight_decay: float = 0.01
    max_epochs: int = 500
    # which weights are kept: of the lowest validation loss, as published; the last; their mean over the last half
    checkpoint: str = "best"
    patience: int | None = None  # epochs without a better validation loss before a member leaves

    def __post_init__(self) -> None:
        check_types(self)
        check_choice("batches", self.batches, BATCHES)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("checkpoint", self.checkpoint, CHECKPOINTS)
        check_positive(self, "lr", "max_epochs", "patience")
        check_at_most(self, max_epochs=10**6, batch_size=10**6)
        if self.batch_size < 2:
            raise UserError(f"batch_size is {self.batch_size}; batch normalization needs at least 2 rows")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise UserError(f"weight_decay is {self.weight_decay}; it must be a finite number of at least 0")
        if self.checkpoint != "best":  # nobody waits for a better epoch
            object.__setattr__(self, "patience", None)


CLOSED_FORM = Training(batches="shuffled", max_epochs=1, checkpoint="last")  # of closed forms, which read none of it
