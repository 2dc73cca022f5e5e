"""Windows standardized one by one, with the mean and log standard deviation of each channel appended as channels.

Temporal filters see shapes well and amplitudes badly. In slow signals the mean and the deviation of a window are
informative too, so they get channels of their own.
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

FLAT = 1e-4  # channels with a smaller deviation, in units of the training subjects' deviation, count as flat
QUIET = 1e-3  # added to deviations before their logarithm


@dataclass(frozen=True)
class AppendScale(Transform):
    on: bool = True

    default: ClassVar[object] = False
    has_cached_moments: ClassVar[bool] = True

    def check(self, before: Sequence[Transform]) -> None:
        if Standardize("trial") in before:
            raise UserError(
                "append_scale needs amplitudes, which standardize='trial' removes; choose standardize='train'"
            )

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 3 * channels, times

    def n_signal_channels(self, channels: int, times: int) -> int:
        return channels  # followed by means and deviations

    def n_constant_channels(self, channels: int, times: int) -> int:
        return 2 * channels

    def fit(self, windows: TransformedWindows, training: Sequence[Rows]) -> FittedTransform:
        return FittedAppendScale()


class FittedAppendScale(FittedTransform):
    def forward(self, x: Tensor, subjects: Tensor | None = None) -> Tensor:
        """Map (..., C, T) to (..., 3C, T): standardized channels, their means, then their log standard deviations."""
        if not x.requires_grad and cpu.is_available(x):
            return cpu.append_scale(x, FLAT, QUIET)
        exact = x.double()  # float32 rounding errors of a flat channel would become its shape
        mean = exact.mean(-1, keepdim=True)
        centered = exact - mean
        deviation = centered.square().mean(-1, keepdim=True).sqrt()
        scale = torch.cat([mean, (deviation + QUIET).log()], -2).to(x.dtype)
        shapes = (centered / deviation.clamp(min=FLAT)).to(x.dtype)
        return torch.cat([shapes, scale.expand(*scale.shape[:-1], x.shape[-1])], -2)
