"""Every window standardized by itself, with the mean and the log deviation of each channel appended as channels.

A temporal filter sees shapes well and amplitudes badly. In slow signals the mean and the spread of a whole window say
something that its shape does not: read apart, neither drowns the other.
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
from .transform import Fitted, Rows, Stage, Transform

FLAT = 1e-4  # a channel that varies by less, in units of the training subjects' deviation, counts as flat
QUIET = 1e-3  # added to deviations before their logarithm


@dataclass(frozen=True)
class AppendScale(Transform):
    on: bool = True

    default: ClassVar[object] = False
    tabulated: ClassVar[bool] = True

    def check(self, before: Sequence[Transform]) -> None:
        if Standardize("trial") in before:
            raise UserError(
                "append_scale needs amplitudes, which trial standardization removes; choose standardize='train'"
            )

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 3 * channels, times

    def signals(self, channels: int, times: int) -> int:
        return channels  # means and deviations come after them

    def n_constant(self, channels: int, times: int) -> int:
        return 2 * channels

    def fit(self, stage: Stage, training: Sequence[Rows]) -> Fitted:
        return WithScale()


class WithScale(Fitted):
    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        """Map windows (..., C, T) to (..., 3C, T): shapes, each with mean 0 and deviation 1, then the mean and then the
        logarithm of the deviation of every channel."""
        if not x.requires_grad and cpu.available(x):
            return cpu.append_scale(x, FLAT, QUIET)
        exact = x.double()  # what float32 leaves of a flat channel less its mean would become its shape
        mean = exact.mean(-1, keepdim=True)
        centered = exact - mean
        deviation = centered.square().mean(-1, keepdim=True).sqrt()
        scale = torch.cat([mean, (deviation + QUIET).log()], -2).to(x.dtype)
        shapes = (centered / deviation.clamp(min=FLAT)).to(x.dtype)
        return torch.cat([shapes, scale.expand(*scale.shape[:-1], x.shape[-1])], -2)
