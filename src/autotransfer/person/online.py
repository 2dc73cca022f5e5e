"""One person and the average that uses their windows: every window is answered by those before it, then counts itself.

Only logits of centred members move with the person (training/centring.py). What all others say of a window is worked
out once, so that many rules and orders of windows can be tried side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..models.ensemble import TINY
from ..training.centring import Centred, Centring, CentringRule, Known

Floats = NDArray[np.float64]


class Said(NamedTuple):
    """What a model makes of n windows before anything is known of their person."""

    settled: Floats  # (n, C): log-probabilities of the parts that stay as they are, each to its exponent
    logits: Floats  # (n, P, C): of the P centred members


class Follow:
    """mean: (K, P), of the members of each centred part; exponents: (K,). rule: one, or several side by side (L,)."""

    def __init__(
        self, centring: Centring, mean: Floats, exponents: Floats, rule: CentringRule | tuple[CentringRule, ...]
    ) -> None:
        self.centred, self.mean, self.exponents = Centred(centring, rule), mean, exponents

    def next(self, said: Said, known: Known) -> tuple[Floats, Known]:
        """The next windows of a person, in order -> log-probabilities (n, C) up to a number for each window, and what
        is known after them."""
        orders = np.arange(len(said.settled))
        return self._follow(said, orders, known)

    def side_by_side(self, said: Said, orders: Sequence[NDArray[np.int64]]) -> Floats:
        """Somebody new, by every rule and in every order of their windows, O times (n,): (L, O, n, C)."""
        lanes = (len(self.centred.prior), len(orders))
        found, _ = self._follow(said, np.stack(orders, 1), self.centred.begin(*lanes))
        return np.moveaxis(found, 0, -2)

    def _follow(self, said: Said, orders: NDArray[np.int64], known: Known) -> tuple[Floats, Known]:
        """orders: (n, ...) -> (n, lanes..., C)."""
        every = self.centred.beside(said.logits)
        offset = self.centred.offset(known)
        found = []
        for place in orders:
            log_p = said.settled[place] + self.pool(said.logits[place] - offset)
            found.append(log_p)
            power = np.exp(log_p - log_p.max(-1, keepdims=True))
            known = self.centred.count(known, every[place], power / power.sum(-1, keepdims=True))
            offset = self.centred.offset(known)
        return np.stack(found), known

    def pool(self, logits: Floats) -> Floats:
        """(..., P, C) -> (..., C)."""
        power = np.exp(logits - logits.max(-1, keepdims=True))
        power /= power.sum(-1, keepdims=True)
        return np.asarray(self.exponents @ np.log(np.maximum(self.mean @ power, TINY)))
