"""Base class of augmentations."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar, NamedTuple

from torch import Tensor

from ..errors import UserError, check_types

BELOW_ONE = math.nextafter(1.0, 0.0)


class TrainingBatch(NamedTuple):
    """What an augmentation may know of a minibatch besides its windows."""

    y: Tensor  # (G, B) classes
    s: Tensor  # (G, B) people, as training sees them
    signals: int  # how many of the channels, the first ones, are signals; the others are numbers drawn out over time


@dataclass(frozen=True)
class Augmentation(ABC):
    """Hyperparameters of an augmentation. A subclass is a frozen dataclass whose first field is given to a Setting
    under the augmentation's own name in the registry, and every other field under its own."""

    of_signals: ClassVar[bool] = False  # whether it changes signals over time; `represent` leaves none to change
    name: ClassVar[str] = ""  # in the registry, for messages
    rule: ClassVar[str] = ""  # what the first field must be, where it must lie above 0 and at most at a limit
    limit: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        first = fields(self)[0].name
        called = self.name or first
        check_types(self, **{first: called})
        if self.rule and not 0 < getattr(self, first) <= self.limit:
            raise UserError(f"{called} is {getattr(self, first)}; it must {self.rule}")

    @abstractmethod
    def __call__(self, x: Tensor, key: Tensor, batch: TrainingBatch) -> Tensor:
        """Change windows (G, B, C, T); key (G, B) int32 is all that may be random (see randomness)."""


@dataclass(frozen=True)
class Scaling(Augmentation):
    """An augmentation that multiplies every channel of a window by a factor. Windows whose last channels have one value
    each are then changed without drawing these out over time."""

    @abstractmethod
    def factors(self, channels: int, key: Tensor, batch: TrainingBatch) -> Tensor:
        """Return factors (G, B, channels) in float32."""

    def __call__(self, x: Tensor, key: Tensor, batch: TrainingBatch) -> Tensor:
        return x * self.factors(x.shape[2], key, batch).to(x.dtype)[..., None]
