"""Weights averaged over the last half of all steps, for the checkpoint "averaged".

With a constant learning rate, weights fluctuate around a minimum of the loss. The mean of the weights is closer to the
minimum. Running statistics of batch normalization are computed again for the averaged weights.
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
        self.start = start  # (P,) number of steps before averaging begins; inf for members with another checkpoint

    @classmethod
    def from_settings(cls, settings: Sequence[Setting], groups: MemberGroups, flat: FlatParameters) -> Self | None:
        """Return the average of a population; None if no member has the checkpoint "averaged"."""
        if not any(setting.training.checkpoint == "averaged" for setting in settings):
            return None
        steps = groups.steps[groups.group_of_member].double()
        epochs = [s.max_epochs / 2 if s.training.checkpoint == "averaged" else torch.inf for s in settings]
        start = (steps * steps.new_tensor(epochs)).floor()
        return cls(flat.values.detach().clone(), start)

    @torch.no_grad()
    def update(self, values: Tensor, steps: Tensor, active: Tensor) -> None:
        """Include values (P, n) of active members (P,) in the average; steps (P,): number of steps taken so far."""
        count = (steps - self.start).clamp(min=1)  # number of averaged weights
        share = torch.where(active & (steps > self.start), 1 / count, 0.0).to(values.dtype)
        self.values.lerp_(values, share[:, None])

    def select(self, members: Tensor) -> Self | None:
        """Return the average of these members; None if none of them has the checkpoint "averaged"."""
        start = self.start[members]
        return type(self)(self.values[members], start) if bool(start.isfinite().any()) else None


@contextmanager
def cumulative_statistics(net: nn.Module, n_earlier: int) -> Iterator[None]:
    """Compute running statistics as means over the next batch and `n_earlier` earlier batches inside this context."""
    norms = [layer for layer in net.modules() if isinstance(layer, (BatchNorm, nn.modules.batchnorm._BatchNorm))]
    momenta = [layer.momentum for layer in norms]
    for layer in norms:
        layer.momentum = 1 / (n_earlier + 1)
    try:
        yield
    finally:
        for layer, momentum in zip(norms, momenta, strict=True):
            layer.momentum = momentum
