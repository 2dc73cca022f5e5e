"""The average for sessions: every window is predicted from those before it, then counts itself.

Only logits of centred members move with the person (training/centring.py). All others are computed once, so that many
rules and orders of windows can be tried side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..models.ensemble import TINY, softmax
from ..training.centring import Centred, Centring, CentringRule, Known

Floats = NDArray[np.float64]


class ZeroShot(NamedTuple):
    """Predictions of n windows before anything is known of their person."""

    settled: Floats  # (n, C): log-probabilities of the parts that are not centred, each times its exponent
    logits: Floats  # (n, P, C): of the P centred members


class Follow:
    """mean: (K, P), weights of the members in the mean of each centred part; exponents: (K,)
    rule: one, or several side by side (L,)
    """

    def __init__(
        self, centring: Centring, mean: Floats, exponents: Floats, rule: CentringRule | tuple[CentringRule, ...]
    ) -> None:
        self.centred, self.mean, self.exponents = Centred(centring, rule), mean, exponents

    def next(self, windows: ZeroShot, known: Known) -> tuple[Floats, Known]:
        """The next windows of a person, in order -> log-probabilities (n, C) up to a constant for each window, and what
        is known after them."""
        return self._follow(windows, np.arange(len(windows.settled)), known)

    def side_by_side(self, windows: ZeroShot, orders: Sequence[NDArray[np.int64]]) -> Floats:
        """A new person, by every rule and in each of O orders (n,) of their windows: (L, O, n, C)."""
        lanes = (len(self.centred.prior), len(orders))
        log_p, _ = self._follow(windows, np.stack(orders, 1), self.centred.begin(*lanes))
        return np.moveaxis(log_p, 0, -2)

    def _follow(self, windows: ZeroShot, orders: NDArray[np.int64], known: Known) -> tuple[Floats, Known]:
        """orders: (n, ...) -> (n, lanes..., C)."""
        u = self.centred.beside(windows.logits)
        predictions = []
        for place in orders:
            offset = self.centred.offset(known)
            log_p = windows.settled[place] + self.pool(windows.logits[place] - offset)
            predictions.append(log_p)
            known = self.centred.count(known, u[place], softmax(log_p))
        return np.stack(predictions), known

    def pool(self, logits: Floats) -> Floats:
        """(..., P, C) -> (..., C)."""
        return np.asarray(self.exponents @ np.log(np.maximum(self.mean @ softmax(logits), TINY)))
