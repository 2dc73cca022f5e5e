"""Weights averaged over the last half of all steps: the checkpoint "averaged", besides "best" and "last".

With a constant learning rate weights fluctuate around a minimum. Their mean is closer to it and needs no validation
subject. Running statistics of batch normalization are computed again for the averaged weights.
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
    """Running means of the members' weights over the last half of their steps."""

    def __init__(self, values: Tensor, start: Tensor) -> None:
        self.values = values  # (P, n)
        self.start = start  # (P,) steps after which averaging begins; inf for members with another checkpoint

    @classmethod
    def from_settings(cls, settings: Sequence[Setting], groups: MemberGroups, flat: FlatParameters) -> Self | None:
        """Return the average of a population; None if no member has the checkpoint "averaged"."""
        if not any(setting.training.checkpoint == "averaged" for setting in settings):
            return None
        steps = groups.steps[groups.group_of_member].double()
        share = [s.max_epochs / 2 if s.training.checkpoint == "averaged" else torch.inf for s in settings]
        start = (steps * steps.new_tensor(share)).floor()
        return cls(flat.values.detach().clone(), start)

    @torch.no_grad()
    def update(self, values: Tensor, steps: Tensor, active: Tensor) -> None:
        """Update the average in place by values (P, n) after the number of steps (P,)."""
        count = (steps - self.start).clamp(min=1)  # number of averaged weights
        share = torch.where(active & (steps > self.start), 1 / count, 0.0).to(values.dtype)
        self.values.lerp_(values, share[:, None])

    def select(self, keep: Tensor) -> None:
        """Keep only these members."""
        self.values, self.start = self.values[keep], self.start[keep]


@contextmanager
def cumulative_statistics(net: nn.Module, seen: int) -> Iterator[None]:
    """Make running statistics inside this context the means over the batch and `seen` earlier batches."""
    norms = [layer for layer in net.modules() if isinstance(layer, (BatchNorm, nn.modules.batchnorm._BatchNorm))]
    before = [layer.momentum for layer in norms]
    for layer in norms:
        layer.momentum = 1 / (seen + 1)
    try:
        yield
    finally:
        for layer, momentum in zip(norms, before, strict=True):
            layer.momentum = momentum
