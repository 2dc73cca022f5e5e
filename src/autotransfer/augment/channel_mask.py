"""Channel mask: random channels of a window are set to zero, like electrodes that fall off."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..randomness import uniform
from .augmentation import BELOW_ONE, Scaling, TrainingBatch


@dataclass(frozen=True)
class ChannelMask(Scaling):
    """Masking of random channels of a window with zeros."""

    probability: float = 0.1  # probability of masking a channel

    name, rule, limit = "channel_mask", "lie in (0, 1)", BELOW_ONE

    def factors(self, channels: int, key: Tensor, batch: TrainingBatch) -> Tensor:
        return (uniform(key, channels) >= self.probability).to(torch.float32)
