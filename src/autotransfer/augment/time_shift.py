"""Time shift: every window some samples earlier or later, as events are marked and people react.

What enters at an edge is the window itself, mirrored there. Zeros would be a jump and a silence that no window of a new
person has; the mirrored signal has neither, keeps its level and strength, and leaves a constant channel constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..randomness import uniform
from .augmentation import Augmentation, TrainingBatch


@dataclass(frozen=True)
class TimeShift(Augmentation):
    share: float = 0.1  # of the window's length: the longest shift, in either direction

    of_signals: ClassVar[bool] = True
    tried: ClassVar[tuple[float, ...]] = (0.05, 0.15)
    name, rule, limit = "time_shift", "be a share of the window in (0, 0.5]", 0.5

    def __call__(self, x: Tensor, key: Tensor, batch: TrainingBatch) -> Tensor:
        times = x.shape[3]
        most = min(round(self.share * times), times - 1)
        shift = (uniform(key, 1) * (2 * most + 1)).long() - most  # (G, B, 1) in -most .. most, each as likely
        place = (torch.arange(times, device=x.device) - shift).abs()  # (G, B, T), mirrored at the first sample
        place = times - 1 - (times - 1 - place).abs()  # and at the last
        signal = x.transpose(1, 2)  # channel-major, as it is in memory
        return signal.gather(3, place[:, None].expand_as(signal)).transpose(1, 2)
