"""Amplitude: random factors for the channels of each window, like changes of electrode contact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..randomness import uniform
from .augmentation import Scaling, TrainingBatch


@dataclass(frozen=True)
class Amplitude(Scaling):
    """Multiplication of each channel of a window by a random factor."""

    spread: float = 0.2  # factors are exp(u), u uniform in ±spread

    needs_signals: ClassVar[bool] = True
    name, rule, limit = "amplitude", "lie in (0, 3]", 3

    def factors(self, channels: int, key: Tensor, batch: TrainingBatch) -> Tensor:
        is_signal = torch.arange(channels, device=key.device) < batch.n_signals
        return (self.spread * (2 * uniform(key, channels) - 1) * is_signal).exp()
