"""Mixup within class, across people: a window with some of another person's window of the same class mixed in.

What a class has in common stays, and what is particular to a person is diluted. Labels are not mixed: both windows have
the same class, and the larger part is always from the window's own person. Partners come from the same minibatch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..randomness import bits, uniform
from .augmentation import Augmentation, TrainingBatch


@dataclass(frozen=True)
class Mixup(Augmentation):
    share: float = 0.3  # the largest share of the partner; it is drawn uniformly from 0 on

    name, rule, limit = "mixup", "be a share in (0, 0.5], so that a window stays its own", 0.5

    def __call__(self, x: Tensor, key: Tensor, batch: TrainingBatch) -> Tensor:
        partner, exists = partners(key, batch)
        share = (self.share * uniform(key, 1)[..., 0]).to(x.dtype) * exists  # (G, B), 0 without a partner
        groups, rows, channels, times = x.shape
        signal = x.transpose(1, 2)  # (G, C, B, T), as it is in memory
        first = torch.arange(groups * channels, device=x.device).view(groups, channels, 1) * rows
        other = signal.reshape(-1, times).index_select(0, (first + partner[:, None]).flatten()).view(signal.shape)
        return (signal + share[:, None, :, None] * (other - signal)).transpose(1, 2)


def partners(key: Tensor, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
    """Return for every row another person's row of the same class (G, B), and whether there is one (G, B).

    Rows are put on a circle at random, by hashing their keys, and each takes the next eligible row. Every eligible row
    is therefore equally likely, and the order of rows in the batch does not matter.
    """
    place = bits(key, 2)[..., 1].long()  # (G, B); the first word says how much
    # how far ahead of row i, around the circle of 2³² places, row j stands
    ahead = (place[:, None, :] - place[:, :, None]) & 0xFFFFFFFF
    eligible = (batch.y[:, None, :] == batch.y[:, :, None]) & (batch.s[:, None, :] != batch.s[:, :, None])
    nearest = torch.where(eligible, ahead, 2**32).min(-1)
    return nearest.indices, nearest.values < 2**32
