"""Mixup of windows of one class and two subjects.

The mixture keeps properties of the class and weakens properties of one subject. Labels are not mixed, because both
windows have one class. The second window, the partner, is in the same minibatch.
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

    share: float = 0.3  # largest share of the partner; shares are drawn uniformly between 0 and this share

    name, rule, limit = "mixup", "be a share in (0, 0.5]", 0.5

    def __call__(self, x: Tensor, key: Tensor, batch: TrainingBatch) -> Tensor:
        partner, has_partner = find_partners(key, batch)
        share = (self.share * uniform(key, 1)[..., 0]).to(x.dtype) * has_partner  # (G, B), 0 without a partner
        groups, rows, channels, times = x.shape
        signal = x.transpose(1, 2)  # (G, C, B, T), contiguous in memory
        first = torch.arange(groups * channels, device=x.device).view(groups, channels, 1) * rows
        partner_signal = signal.reshape(-1, times).index_select(0, (first + partner[:, None]).flatten())
        return (signal + share[:, None, :, None] * (partner_signal.view(signal.shape) - signal)).transpose(1, 2)


def find_partners(key: Tensor, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
    """Return the partner (G, B) of every window, a window of another subject and the same class, and whether it exists.

    Windows have random positions on a circle, which are hashes of their keys. The partner of a window is the next
    eligible window, so that all eligible windows are equally likely, independent of their order in the batch.
    """
    position = bits(key, 2)[..., 1].long()  # (G, B), in 0 … 2³² − 1; the first word determines the share
    distance = (position[:, None, :] - position[:, :, None]) & 0xFFFFFFFF  # from window i forward to window j
    is_eligible = (batch.y[:, None, :] == batch.y[:, :, None]) & (batch.s[:, None, :] != batch.s[:, :, None])
    nearest = torch.where(is_eligible, distance, 2**32).min(-1)
    return nearest.indices, nearest.values < 2**32
