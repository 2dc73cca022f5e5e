"""What a censoring method is: an estimate of the dependence in one term, perhaps with a critic of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..settings import Setting
from .terms import Term, TermSpec


class Method(nn.Module, ABC):
    """One per term. All state is parameters and buffers, with the member on axis 0 if there are members.

    `key` (P,) int32 is a function of each member's seed and step and the only source of randomness.
    """

    def __init__(self, spec: TermSpec, settings: Sequence[Setting]) -> None:
        super().__init__()
        self.min_rows = spec.min_rows

    @abstractmethod
    def dependence(self, term: Term, key: Tensor) -> Tensor:
        """(P,): differentiable in term.z, the critic frozen."""

    def critic_loss(self, term: Term, key: Tensor) -> Tensor | None:
        """(P,): what the critic minimises, term.z held fixed; None: there is no critic."""
        return None

    def after_step(self, active: Tensor) -> None:
        """Once per main step; active (P,) bool: the members that took it."""


def member_numbers(settings: Sequence[Setting], name: str, members: int | None) -> Tensor:
    """A number of each member's setting: (P,), or () for a single model; float64 so that 0.01 stays 0.01."""
    values = torch.tensor([getattr(setting, name) for setting in settings], dtype=torch.float64)
    return values[0] if members is None else values
