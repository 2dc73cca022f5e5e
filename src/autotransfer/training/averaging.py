"""Weights averaged over the last half of all steps: a third checkpoint, besides the best and the last epoch.

At a constant rate steps jump about a good place; their mean is nearer to it, and needs nobody to choose it. Running
statistics of batch normalization belong to the last weights, and are computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

import torch
from torch import Tensor, nn

from ..model.layers import BatchNorm
from ..settings import Setting
from .flat import FlatParameters
from .groups import MemberGroups


class WeightAverage:
    """Running means of rows of weights."""

    def __init__(self, values: Tensor, start: Tensor) -> None:
        self.values = values  # (P, n)
        self.start = start  # (P,) steps after which a member is averaged; inf for those that are not

    @classmethod
    def from_settings(cls, settings: Sequence[Setting], groups: MemberGroups, flat: FlatParameters) -> Self | None:
        """Return the average of a population; None if no member is averaged."""
        if not any(setting.training.checkpoint == "averaged" for setting in settings):
            return None
        steps = groups.steps[groups.group_of_member].double()
        share = [s.max_epochs / 2 if s.training.checkpoint == "averaged" else torch.inf for s in settings]
        start = (steps * steps.new_tensor(share)).floor()
        return cls(flat.values.detach().clone(), start)

    @torch.no_grad()
    def update(self, values: Tensor, steps: Tensor, active: Tensor) -> None:
        """Update the average in place after a step: values (P, n), and the number of steps taken, steps (P,)."""
        count = (steps - self.start).clamp(min=1)  # how many weights the mean is of
        share = torch.where(active & (steps > self.start), 1 / count, 0.0).to(values.dtype)
        self.values.lerp_(values, share[:, None])

    def select(self, keep: Tensor) -> None:
        self.values, self.start = self.values[keep], self.start[keep]


@contextmanager
def cumulative_statistics(net: nn.Module, seen: int) -> Iterator[None]:
    """Make running statistics inside this context means over a batch and the `seen` batches before it."""
    norms = [layer for layer in net.modules() if isinstance(layer, (BatchNorm, nn.modules.batchnorm._BatchNorm))]
    before = [layer.momentum for layer in norms]
    for layer in norms:
        layer.momentum = 1 / (seen + 1)
    try:
        yield
    finally:
        for layer, momentum in zip(norms, before, strict=True):
            layer.momentum = momentum
