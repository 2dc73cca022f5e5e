"""Delayed copies of the channels below each other: what a covariance then sees is how a signal follows itself.

With few channels a covariance says little. Together with copies of themselves some samples later they have one that
also holds their autocorrelations, which is to say their spectrum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import UserError, check_at_most, check_positive, check_types
from .transform import Fitted, Rows, Stage, Transform


@dataclass(frozen=True)
class Delays(Transform):
    copies: int = 2  # of every channel, the one without delay counted
    lag: int = 1  # samples from one copy to the next

    idle: ClassVar[tuple[object, ...]] = (1,)

    def __post_init__(self) -> None:
        check_types(self, copies="delays")
        check_positive(self, "copies", "lag", copies="delays")
        check_at_most(self, copies=10**3, lag=10**6)

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        left = times - (self.copies - 1) * self.lag
        if left < 1:
            raise UserError(
                f"{self.copies} copies of the channels with a lag of {self.lag} samples need windows longer than "
                f"{times} samples; give fewer delays or a smaller lag"
            )
        return channels * self.copies, left

    def fit(self, stage: Stage, training: Sequence[Rows]) -> Fitted:
        return Delayed(self)


class Delayed(Fitted):
    def __init__(self, spec: Delays) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        """Map (..., C, T) to (..., C·copies, T − (copies − 1)·lag): all channels, then all of them a lag later."""
        _, left = self.spec.shape(x.shape[-2], x.shape[-1])
        starts = (copy * self.spec.lag for copy in range(self.spec.copies))
        return torch.cat([x[..., start : start + left] for start in starts], -2)
