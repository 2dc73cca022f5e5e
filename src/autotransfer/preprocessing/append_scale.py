"""Standardization of each window, with the mean and log standard deviation of each channel appended as channels.

Temporal filters extract shapes better than amplitudes. In slow signals the mean and the deviation of a window are
informative, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .. import cpu
from ..errors import UserError
from .standardize import Standardize
from .transform import FittedTransform, Rows, Transform, TransformedWindows

MIN_DEVIATION = 1e-4  # smallest divisor of a channel, in units of the training subjects' deviation
LOG_OFFSET = 1e-3  # added to deviations before the logarithm


@dataclass(frozen=True)
class AppendScale(Transform):
    enabled: bool = True

    default: ClassVar[object] = False
    has_cached_moments: ClassVar[bool] = True

    def check(self, earlier: Sequence[Transform]) -> None:
        if Standardize("trial") in earlier:
            raise UserError(
                "append_scale needs amplitudes, which standardize='trial' removes; choose standardize='train'"
            )

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 3 * channels, times

    def n_signal_channels(self, channels: int, times: int) -> int:
        return channels  # means and deviations follow

    def n_constant_channels(self, channels: int, times: int) -> int:
        return 2 * channels

    def fit(self, windows: TransformedWindows, training: Sequence[Rows]) -> FittedTransform:
        return FittedAppendScale()


class FittedAppendScale(FittedTransform):
    def forward(self, x: Tensor, subjects: Tensor | None = None) -> Tensor:
        """Map (..., C, T) to (..., 3C, T): standardized channels, their means, then their log standard deviations."""
        if not x.requires_grad and cpu.is_available(x):
            return cpu.append_scale(x, MIN_DEVIATION, LOG_OFFSET)
        exact = x.double()  # in float32 the rounding errors of a constant channel would be scaled up
        mean = exact.mean(-1, keepdim=True)
        centered = exact - mean
        deviation = centered.square().mean(-1, keepdim=True).sqrt()
        scale = torch.cat([mean, (deviation + LOG_OFFSET).log()], -2).to(x.dtype)
        shapes = (centered / deviation.clamp(min=MIN_DEVIATION)).to(x.dtype)
        return torch.cat([shapes, scale.expand(*scale.shape[:-1], x.shape[-1])], -2)
