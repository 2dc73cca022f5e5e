"""Time mask: a stretch of every window is silenced in all channels, so that no single moment decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..randomness import uniform
from .augmentation import BELOW_ONE, Augmentation, TrainingBatch


@dataclass(frozen=True)
class TimeMask(Augmentation):
    share: float = 0.25  # of the window's length: the longest stretch

    of_signals: ClassVar[bool] = True
    tried: ClassVar[tuple[float, ...]] = (0.15, 0.4)
    name, rule, limit = "time_mask", "be a share of the window in (0, 1)", BELOW_ONE

    def __call__(self, x: Tensor, key: Tensor, batch: TrainingBatch) -> Tensor:
        times = x.shape[3]
        longest = round(self.share * times)
        long, early = uniform(key, 2).unbind(-1)  # (G, B)
        length = (long * (longest + 1)).long()  # 0 .. longest
        start = (early * (times - length + 1)).long()  # 0 .. times - length
        since = torch.arange(times, device=x.device) - start[..., None]  # (G, B, T)
        silent = (since >= 0) & (since < length[..., None])
        signal = x.transpose(1, 2)  # channel-major, as it is in memory
        signals = (torch.arange(x.shape[2], device=x.device) < batch.signals)[:, None, None]
        return signal.masked_fill(silent[:, None] & signals, 0).transpose(1, 2)
