"""μ-law compression: sign(x) log(1 + μ|x|) / log(1 + μ). 0 and ±1 stay, small values grow, large ones shrink.

In muscle activity amplitude says most, and differs between people by a factor, which a logarithm makes a summand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import check_positive, check_types
from .transform import Fitted, Rows, Stage, Transform


@dataclass(frozen=True)
class MuLaw(Transform):
    mu: float = 10.0

    def __post_init__(self) -> None:
        check_types(self, mu="mu_law")
        check_positive(self, "mu", mu="mu_law")

    def fit(self, stage: Stage, training: Sequence[Rows]) -> Fitted:
        return Compressed(self.mu)


class Compressed(Fitted):
    def __init__(self, mu: float) -> None:
        super().__init__()
        self.mu = mu

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        return torch.log1p(x.abs() * self.mu) * torch.sign(x) / math.log1p(self.mu)
