"""How a session follows a person without labels: found on held-out people who are played back.

Every way (person/adaptation.py) is tried in every order of the windows. The delivered model has the way that gains most
in the order in which it gains least; where every way loses in some order, the model stays as it was. So it does where
people lost, in any order, by the way that the others chose for them: that is what a new person can expect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..person.adaptation import NO_WAY, WAYS
from ..person.decoder import Decoder
from ..training.metrics import balanced_accuracy_of

FEWEST = 2  # people who can show anything


class Followed(NamedTuple):
    """Balanced accuracy of one person by the order of their windows."""

    zero_shot: NDArray[np.float64]  # (orders,)
    ways: NDArray[np.float64]  # (ways, orders)

    def gains(self, way: str) -> NDArray[np.float64]:
        """By being followed (orders,)."""
        return np.zeros_like(self.zero_shot) if way == NO_WAY else self.ways[list(WAYS).index(way)] - self.zero_shot


def follow_all(decoder: Decoder, codes: Sequence[Sequence[Tensor]], log_p: Tensor, y: Tensor) -> Followed:
    """codes: of each order, (P, n, D) of each stack; log_p: (orders, n, C) up to a number for each window; y: (orders,
    n)."""
    x = torch.stack([decoder.adaptation().project(own) for own in codes], 1)  # (n, orders, P, R), the same in all ways
    ways = [decoder.adaptation(way).follow(x, log_p.transpose(0, 1)).transpose(0, 1) for way in WAYS]
    return Followed(_scores(log_p, y), np.stack([_scores(said, y) for said in ways]))


def _scores(log_p: Tensor, y: Tensor) -> NDArray[np.float64]:
    """(orders, n, C) -> (orders,)"""
    said = log_p.argmax(-1).numpy()
    return np.array([balanced_accuracy_of(*own, log_p.shape[-1]) for own in zip(said, y.numpy(), strict=True)])


def chosen(people: Sequence[Followed]) -> str:
    """The way that these people fare best with."""
    if len(people) < FEWEST:
        return NO_WAY
    gains = np.mean([own.ways - own.zero_shot for own in people], 0)  # (ways, orders)
    least: NDArray[np.float64] = gains.min(1)
    return list(WAYS)[least.argmax()] if least.max() > 0 else NO_WAY


def delivered(people: Sequence[Followed]) -> str:
    """The same for a new person: none where these people lost in some order by what the others among them chose, or
    gained in none."""
    if not people:
        return NO_WAY
    gains = np.mean([own.gains(chosen([*people[:n], *people[n + 1 :]])) for n, own in enumerate(people)], 0)
    return chosen(people) if gains.min() >= 0 and gains.max() > 0 else NO_WAY
