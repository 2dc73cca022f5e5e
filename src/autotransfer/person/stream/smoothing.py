"""Smoothing of decisions over time.

    majority:N             shares of the last N decisions
    posterior:HALF_LIFE    the posterior given all windows so far, which are forgotten with a half-life in seconds

The posterior is that of a state that may change at any time: after the half-life half of the belief is left, and the
rest is spread over all classes; then the next window is taken into account. A window that overlaps the one before
counts by the share of it that is new.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError, shown

LEAST = 1e-12  # of a probability: a window that rules a class out may be wrong
MOST_VOTES = 10_000


class Smoothing:
    """None."""

    words = ""  # what probabilities are

    def feed(self, probability: NDArray[np.float64], elapsed: float | None) -> NDArray[np.float64]:
        """Probabilities (classes,) of the next window, `elapsed` seconds after the last; None: it is the first."""
        return probability


class Majority(Smoothing):
    def __init__(self, votes: int) -> None:
        self.votes: deque[int] = deque(maxlen=votes)
        self.words = f"probabilities are shares of the last {votes} decisions, of fewer in the first windows"

    def feed(self, probability: NDArray[np.float64], elapsed: float | None) -> NDArray[np.float64]:
        if elapsed is None:
            self.votes.clear()
        self.votes.append(int(probability.argmax()))
        share: NDArray[np.float64] = np.bincount(list(self.votes), minlength=len(probability)) / len(self.votes)
        ties = share == share.max()
        if ties.sum() > 1:  # the latest of them is ahead by next to nothing
            latest = next(vote for vote in reversed(self.votes) if ties[vote])
            share[latest] += 1e-9
            share /= share.sum()
        return share


class Posterior(Smoothing):
    def __init__(self, half_life: float, window: float) -> None:
        """Both in seconds."""
        self.half_life, self.window = half_life, window
        self.belief: NDArray[np.float64] | None = None
        self.words = f"probabilities are given all windows so far, half of which is forgotten after {half_life:g} s"

    def feed(self, probability: NDArray[np.float64], elapsed: float | None) -> NDArray[np.float64]:
        classes = len(probability)
        if elapsed is None or self.belief is None:
            self.belief, new = np.full(classes, 1 / classes), 1.0
        else:
            kept = 2 ** (-elapsed / self.half_life)
            self.belief = kept * self.belief + (1 - kept) / classes
            new = min(1.0, elapsed / self.window)
        power = np.log(self.belief) + new * np.log(np.maximum(probability, LEAST))
        power = np.exp(power - power.max())
        self.belief = power / power.sum()
        return self.belief


def smoothing_of(text: str | None, window: float) -> Smoothing:
    """text: as on the command line; window: seconds."""
    if text is None or text == "none":
        return Smoothing()
    kind, _, number = text.partition(":")
    try:
        if kind == "majority" and 1 <= int(number) <= MOST_VOTES:
            return Majority(int(number))
        if kind == "posterior" and math.isfinite(float(number)) and float(number) > 0:
            return Posterior(float(number), window)
    except ValueError:
        pass
    raise UserError(
        f"smooth is {shown(text)}; give majority:N (decisions, at least 1), posterior:SECONDS (half-life) or none"
    )
