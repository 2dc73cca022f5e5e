"""Linear: the code is the window itself, or its representation, number by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from .solved import Solved, SolvedOptions
from .stack import Size


@dataclass(frozen=True, kw_only=True)
class LinearOptions(SolvedOptions):
    """No encoder: the classifier sees the prepared window."""

    def latent_dim(self, size: Size) -> int:
        return size.channels * size.times

    def stack(self, size: Size, members: int, seeds: Sequence[int]) -> Flattened:
        return Flattened(members, self.latent_dim(size))


class Flattened(Solved):
    def raw(self, x: Tensor, members: slice = slice(None)) -> Tensor:
        return x.flatten(2)
