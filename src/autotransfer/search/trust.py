"""How much a person's few labels count: found on held-out people who are played back.

A model of how people differ (training/effects.py) is fitted on few people, and may rely too much on a label. The logits
of a calibrated model are therefore

    sharpness · (log p + share · correction)

with the share and the sharpness of the lowest Brier score on other people's windows. That score is bounded: one person
whose labels mislead cannot outvote everybody else, as a few windows with tiny likelihoods could. A share of 0 leaves
the model as it was. Both change with the number of labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..training.metrics import balanced_accuracy_of

SHARES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4)
SHARPNESS = (0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1.0, 1.4)


class TrustTrial(NamedTuple):
    """One person with a number of labels."""

    loss: NDArray[np.float64]  # (shares, sharpnesses): Brier score of the other windows
    score: NDArray[np.float64]  # (shares,): balanced accuracy on them


def try_all(log_p: Tensor, correction: Tensor, y: Tensor) -> TrustTrial:
    """log_p (n, C): of the model; correction (n, C): what labels add to it; y (n,): the classes."""
    corrected = log_p + torch.tensor(SHARES, dtype=log_p.dtype)[:, None, None] * correction.to(log_p)  # (S, n, C)
    sharp = torch.tensor(SHARPNESS, dtype=log_p.dtype)[:, None, None, None]
    p = (sharp * corrected).softmax(-1)  # (T, S, n, C)
    loss = (1 + p.square().sum(-1) - 2 * p[..., torch.arange(len(y)), y]).mean(-1)  # (T, S)
    score = [balanced_accuracy_of(logits.argmax(1).numpy(), y.numpy(), log_p.shape[1]) for logits in corrected]
    return TrustTrial(loss.T.double().numpy(), np.array(score))


def best_trust(people: Sequence[TrustTrial]) -> tuple[int, int]:
    """Indices of the share and the sharpness with the lowest loss over these people; of 1 and 1 without people."""
    if not people:
        return SHARES.index(1.0), SHARPNESS.index(1.0)
    loss = np.mean([tried.loss for tried in people], axis=0)
    share, sharpness = np.unravel_index(int(loss.argmin()), loss.shape)
    return int(share), int(sharpness)
