"""Mixup within a class and across subjects: adds a share of another subject's window of the same class.

The common part of a class is kept, and properties of single subjects are reduced. Labels are not mixed, because both
windows have the same class. Partners come from the same minibatch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..randomness import bits, uniform
from .augmentation import Augmentation, TrainingBatch


@dataclass(frozen=True)
class Mixup(Augmentation):
    """Mixture of a window with another subject's window of the same class."""

    share: float = 0.3  # maximum share of the partner, which is drawn uniformly from 0

    name, rule, limit = "mixup", "be a share in (0, 0.5]", 0.5

    def __call__(self, x: Tensor, key: Tensor, batch: TrainingBatch) -> Tensor:
        partner, exists = partners(key, batch)
        share = (self.share * uniform(key, 1)[..., 0]).to(x.dtype) * exists  # (G, B), 0 without a partner
        groups, rows, channels, times = x.shape
        signal = x.transpose(1, 2)  # (G, C, B, T), contiguous in memory
        first = torch.arange(groups * channels, device=x.device).view(groups, channels, 1) * rows
        other = signal.reshape(-1, times).index_select(0, (first + partner[:, None]).flatten()).view(signal.shape)
        return (signal + share[:, None, :, None] * (other - signal)).transpose(1, 2)


def partners(key: Tensor, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
    """Return for every window another subject's window of the same class (G, B), and whether there is one (G, B).

    Hashed keys put windows on a circle at random, and each takes the next eligible window. So every eligible window is
    equally likely, and the order of windows in the batch does not matter.
    """
    place = bits(key, 2)[..., 1].long()  # (G, B); the first word determines the share
    # distance from window i ahead to window j, on the circle of 2³² places
    ahead = (place[:, None, :] - place[:, :, None]) & 0xFFFFFFFF
    eligible = (batch.y[:, None, :] == batch.y[:, :, None]) & (batch.s[:, None, :] != batch.s[:, :, None])
    nearest = torch.where(eligible, ahead, 2**32).min(-1)
    return nearest.indices, nearest.values < 2**32
