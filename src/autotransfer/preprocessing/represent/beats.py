"""beats: the shape of a heartbeat, taken around the steepest sample of a window, and log standard deviations.

Samples up to 0.3 s before and after the steepest sample, which belongs to the QRS complex, are divided by the standard
deviation of the channel and averaged in segments. The window is extended by its first and last sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Representation, log, segment_means, subtract_means

HALF_SECONDS = 0.3  # duration before and after the steepest sample
MAX_SEGMENTS = 32


@dataclass(frozen=True)
class Beats(Representation):
    display_name = "shapes of heartbeats"
    required_fields: ClassVar[tuple[str, ...]] = ("sfreq",)

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return channels, min(MAX_SEGMENTS, 2 * self._half_length + 1) + 1

    @property
    def _half_length(self) -> int:
        """Return the number of samples before and after the steepest sample."""
        return max(1, round(HALF_SECONDS * self.rate))

    def compute(self, x: Tensor) -> Tensor:
        signal, _ = subtract_means(x)
        times, half = int(x.shape[-1]), self._half_length
        spread = signal.square().mean(-1, keepdim=True).sqrt()
        unit = signal / (spread + (spread == 0).to(spread.dtype))
        steepness = (unit[..., 2:] - unit[..., :-2]).square().sum(-2)  # without the first and last sample
        # The steepest sample is not searched near the ends if the window is long enough for a whole beat.
        first = min(half, (times - 1) // 2)
        steepest = steepness[..., first - 1 : times - 1 - first].argmax(-1, keepdim=True) + first
        indices = (steepest + torch.arange(-half, half + 1, device=x.device)).clamp(0, times - 1)
        beat = unit.gather(-1, indices[..., None, :].expand(*unit.shape[:-1], 2 * half + 1))
        return torch.cat([segment_means(beat, MAX_SEGMENTS), log(spread)], -1)
