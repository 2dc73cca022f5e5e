"""How a session follows a person without labels: found on held-out people who are played back.

Every way (person/adaptation.py) is tried with several shares of its correction, in every order of the windows. The
delivered model has the way and the share of the lowest Brier score over people and orders, among those that make it
worse in no order and whose gain has a 95 % interval over people above 0: where it is not clear that people gain, the
model stays as it was. The Brier score is bounded, so that no person outvotes the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from ..person.adaptation import WAYS
from ..person.decoder import Decoder
from ..training.metrics import balanced_accuracy_of

SHARES = (0.0, 0.25, 0.5, 1.0)


class Followed(NamedTuple):
    """One person, by way, order and share."""

    loss: NDArray[np.float64]  # Brier score, classes alike
    score: NDArray[np.float64]  # balanced accuracy


def follow_all(decoder: Decoder, codes: Sequence[Sequence[Tensor]], log_p: Tensor, y: Tensor) -> Followed:
    """codes: of each order, (P, n, D) of each stack; log_p: (orders, n, C) up to a number for each window; y: (orders,
    n)."""
    shares = torch.tensor(SHARES, dtype=log_p.dtype)[:, None]  # (K, 1)
    losses, scores = [], []
    project = decoder.adaptation().project  # the same in all ways
    x = torch.stack([project(own) for own in codes], 1)[:, :, None]  # (n, orders, 1, P, R)
    for way in WAYS:
        said = decoder.adaptation(way, shares).follow(x, log_p.transpose(0, 1)[:, :, None])  # (n, orders, K, C)
        said = said.permute(1, 2, 0, 3)  # (orders, K, n, C)
        losses.append([[_brier(one, truth) for one in own] for own, truth in zip(said, y, strict=True)])
        scores.append([[_score(one, truth) for one in own] for own, truth in zip(said, y, strict=True)])
    return Followed(np.array(losses), np.array(scores))


def _brier(log_p: Tensor, y: Tensor) -> float:
    """Of what is said of windows (n, C) whose classes are (n,), the mean over classes."""
    p = log_p.softmax(-1)
    each = 1 + p.square().sum(-1) - 2 * p[torch.arange(len(y)), y]
    return float(torch.stack([each[y == label].mean() for label in y.unique()]).mean())  # type: ignore[no-untyped-call]  # torch's


def _score(log_p: Tensor, y: Tensor) -> float:
    return balanced_accuracy_of(log_p.argmax(1).numpy(), y.numpy(), log_p.shape[1])


def chosen(people: Sequence[Followed]) -> tuple[int, int]:
    """Places of the way and the share that these people fare best with; a share of 0 where none helps them."""
    gains = np.stack([own.loss[..., :1] - own.loss for own in people])  # (people, ways, orders, shares)
    each = gains.mean(2)  # (people, ways, shares)
    taken = (gains.mean(0) >= 0).all(1) & clear(each)  # (ways, shares)
    way, share = np.unravel_index(int(np.where(taken, each.mean(0), 0.0).argmax()), taken.shape)
    return int(way), int(share)


def clear(gains: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Of gains (people, ...): where the 95 % interval of their mean lies above 0 (...). One person shows nothing."""
    if len(gains) < 2:
        return np.zeros(gains.shape[1:], dtype=bool)
    error = stats.t.ppf(0.975, len(gains) - 1) * gains.std(0, ddof=1) / np.sqrt(len(gains))
    return np.asarray(gains.mean(0) > error)
