"""Delays: delayed copies of all channels are appended as channels, so that covariances contain autocovariances.

Autocovariances add information about the spectra of the channels, which helps if there are few channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import UserError, check_at_most, check_positive, check_types
from .transform import FittedTransform, Rows, Transform, TransformedWindows


@dataclass(frozen=True)
class Delays(Transform):
    copies: int = 2  # copies of each channel, including the channel without delay
    lag: int = 1  # samples from one copy to the next

    no_op_values: ClassVar[tuple[object, ...]] = (1,)

    def __post_init__(self) -> None:
        check_types(self, copies="delays")
        check_positive(self, "copies", "lag", copies="delays")
        check_at_most(self, copies=10**3, lag=10**6)

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        times_left = times - (self.copies - 1) * self.lag
        if times_left < 1:
            raise UserError(
                f"{self.copies} copies with a lag of {self.lag} samples need windows of more than {times} samples; "
                "give fewer delays or a smaller lag"
            )
        return channels * self.copies, times_left

    def fit(self, windows: TransformedWindows, training: Sequence[Rows]) -> FittedTransform:
        return FittedDelays(self)


class FittedDelays(FittedTransform):
    def __init__(self, spec: Delays) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, x: Tensor, subjects: Tensor | None = None) -> Tensor:
        """Map (..., C, T) to (..., C·copies, T − (copies − 1)·lag); the C channels of a copy are adjacent."""
        _, times_left = self.spec.shape(x.shape[-2], x.shape[-1])
        starts = (copy * self.spec.lag for copy in range(self.spec.copies))
        return torch.cat([x[..., start : start + times_left] for start in starts], -2)
