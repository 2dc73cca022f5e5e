"""Training: the part of a setting that describes the training of a network."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import UserError, check_at_most, check_choice, check_positive, check_types

BATCHES = ("auto", "balanced", "people", "shuffled")
SCHEDULES = ("inverse_sqrt", "constant")
CHECKPOINTS = ("best", "last", "averaged")


@dataclass(frozen=True, kw_only=True)
class Training:
    """Hyperparameters of the training of a network."""

    # auto: shuffled without a penalty, balanced (by class and subject) if the penalty is conditional, people otherwise
    batches: str = "auto"
    batch_size: int = 128
    lr: float = 1e-3
    schedule: str = "inverse_sqrt"  # learning rate: lr/√epoch, as in the paper, or constant
    weight_decay: float = 0.01
    max_epochs: int = 500
    # epoch whose weights are kept: lowest validation loss ("best", as in the paper), last, or a mean over the last half
    checkpoint: str = "best"
    patience: int | None = None  # epochs without a lower validation loss after which training stops

    def __post_init__(self) -> None:
        check_types(self)
        check_choice("batches", self.batches, BATCHES)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("checkpoint", self.checkpoint, CHECKPOINTS)
        check_positive(self, "lr", "max_epochs", "patience")
        check_at_most(self, max_epochs=10**6, batch_size=10**6)
        if self.batch_size < 2:
            raise UserError(f"batch_size is {self.batch_size}; it must be at least 2")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise UserError(f"weight_decay is {self.weight_decay}; it must be a finite number of at least 0")
        if self.checkpoint != "best":  # patience refers to the best epoch
            object.__setattr__(self, "patience", None)


# Values for linear models and trees, which are fitted without training steps
CLOSED_FORM = Training(batches="shuffled", max_epochs=1, checkpoint="last")
