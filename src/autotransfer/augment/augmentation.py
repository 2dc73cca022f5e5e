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
    """Classes, subjects and number of signals of a minibatch."""

    y: Tensor  # (G, B) classes
    s: Tensor  # (G, B) subjects
    n_signals: int  # number of leading channels that are signals; all other channels are constant features


@dataclass(frozen=True)
class Augmentation(ABC):
    """Augmentation with its hyperparameters, a frozen dataclass.

    In `Setting`, the keyword of the first field is the name of the augmentation. Other fields have their own keywords.
    """

    needs_signals: ClassVar[bool] = False  # whether windows must be signals, not features made by `represent`
    name: ClassVar[str] = ""  # name in AUGMENTATIONS, for messages
    rule: ClassVar[str] = ""  # allowed values of the first field, in words
    limit: ClassVar[float] = math.inf  # largest allowed value; values must be above 0

    def __post_init__(self) -> None:
        first = fields(self)[0].name
        keyword = self.name or first
        check_types(self, **{first: keyword})
        if self.rule and not 0 < getattr(self, first) <= self.limit:
            raise UserError(f"{keyword} is {getattr(self, first)}; it must {self.rule}")

    @abstractmethod
    def __call__(self, x: Tensor, key: Tensor, batch: TrainingBatch) -> Tensor:
        """Return changed windows (G, B, C, T) of x. key: (G, B) int32, source of random numbers (see `randomness`)."""


@dataclass(frozen=True)
class Scaling(Augmentation):
    """Augmentation that multiplies channels by factors. Constant channels can then be stored as one number each."""

    @abstractmethod
    def factors(self, channels: int, key: Tensor, batch: TrainingBatch) -> Tensor:
        """Return factors (G, B, channels) in float32."""

    def __call__(self, x: Tensor, key: Tensor, batch: TrainingBatch) -> Tensor:
        return x * self.factors(x.shape[2], key, batch).to(x.dtype)[..., None]
