"""Channel mask: each channel of a window is silenced with some probability, as by an electrode that fell off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..errors import UserError
from ..randomness import uniform
from .augmentation import Augmentation, TrainingBatch


@dataclass(frozen=True)
class ChannelMask(Augmentation):
    probability: float = 0.1

    tried: ClassVar[tuple[float, ...]] = (0.1, 0.25)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.probability < 1:
            raise UserError(f"channel_mask is {self.probability}; it must lie in (0, 1)")

    def __call__(self, x: Tensor, key: Tensor, batch: TrainingBatch) -> Tensor:
        kept = uniform(key, x.shape[2]) >= self.probability
        return x * kept.to(x.dtype)[..., None]
