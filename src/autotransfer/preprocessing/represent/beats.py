"""beats: the shape of a heartbeat, wherever in the window it is: every channel around the steepest place, and its size.

The QRS complex is where all channels together change fastest. What lies up to 0.3 s before and after it is taken in
units of the window's deviation, as means of stretches; log deviations come last. In windows that are shorter, the first
and the last sample stand for what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Representation, centered, log, stretches

AROUND = 0.3  # seconds before and after
SHAPE = 32  # stretches


@dataclass(frozen=True)
class Beats(Representation):
    display_names = ("Heartbeats", "shapes of heartbeats")
    reads: ClassVar[tuple[str, ...]] = ("sfreq",)

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return channels, min(SHAPE, 2 * self._half + 1) + 1

    @property
    def _half(self) -> int:
        """Return samples before and after."""
        return max(1, round(AROUND * self.rate))

    def numbers(self, x: Tensor) -> Tensor:
        signal, _ = centered(x)
        times, half = int(x.shape[-1]), self._half
        spread = signal.square().mean(-1, keepdim=True).sqrt()
        unit = signal / (spread + (spread == 0).to(spread.dtype))
        steep = (unit[..., 2:] - unit[..., :-2]).square().sum(-2)  # of all samples but the first and the last
        # A beat that is not there as a whole is no choice where there can be another.
        first = min(half, (times - 1) // 2)
        peak = steep[..., first - 1 : times - 1 - first].argmax(-1, keepdim=True) + first
        places = (peak + torch.arange(-half, half + 1, device=x.device)).clamp(0, times - 1)
        shape = unit.gather(-1, places[..., None, :].expand(*unit.shape[:-1], 2 * half + 1))
        return torch.cat([stretches(shape, SHAPE), log(spread)], -1)
