"""beats: the channels around the steepest place of a window, which is the QRS complex of a heartbeat, and amplitudes.

Samples up to 0.3 s before and after it are divided by the window's standard deviation and averaged in segments; log
standard deviations are appended. Beyond the ends of a window its first and last sample are repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Representation, log, segment_means, subtract_means

AROUND = 0.3  # seconds before and after
SHAPE = 32  # segments


@dataclass(frozen=True)
class Beats(Representation):
    display_name = "shapes of heartbeats"
    required_fields: ClassVar[tuple[str, ...]] = ("sfreq",)

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return channels, min(SHAPE, 2 * self._half + 1) + 1

    @property
    def _half(self) -> int:
        """Return the number of samples before and after the beat."""
        return max(1, round(AROUND * self.rate))

    def compute(self, x: Tensor) -> Tensor:
        signal, _ = subtract_means(x)
        times, half = int(x.shape[-1]), self._half
        spread = signal.square().mean(-1, keepdim=True).sqrt()
        unit = signal / (spread + (spread == 0).to(spread.dtype))
        steep = (unit[..., 2:] - unit[..., :-2]).square().sum(-2)  # without the first and last sample
        # Only beats that lie within the window as a whole, if it is long enough for one.
        first = min(half, (times - 1) // 2)
        peak = steep[..., first - 1 : times - 1 - first].argmax(-1, keepdim=True) + first
        places = (peak + torch.arange(-half, half + 1, device=x.device)).clamp(0, times - 1)
        shape = unit.gather(-1, places[..., None, :].expand(*unit.shape[:-1], 2 * half + 1))
        return torch.cat([segment_means(shape, SHAPE), log(spread)], -1)
