"""Channel mask: each channel of a window is silenced with some probability, as by an electrode that fell off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import UserError
from ..randomness import uniform
from .augmentation import Scaling, TrainingBatch


@dataclass(frozen=True)
class ChannelMask(Scaling):
    probability: float = 0.1

    tried: ClassVar[tuple[float, ...]] = (0.1, 0.25)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.probability < 1:
            raise UserError(f"channel_mask is {self.probability}; it must lie in (0, 1)")

    def factors(self, channels: int, key: Tensor, batch: TrainingBatch) -> Tensor:
        return (uniform(key, channels) >= self.probability).to(torch.float32)
