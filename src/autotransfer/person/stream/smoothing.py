"""Smoothing of decisions over time.

`posterior:SECONDS` is the posterior given all windows so far, which are forgotten with a half-life in seconds. After
the half-life half of the belief is left, and the rest is spread over all classes. Then the next window is taken into
account. A window that overlaps the one before counts by the share of it that is new.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError, shown

LEAST = 1e-12  # of a probability: a window that rules a class out may be wrong


class Posterior:
    def __init__(self, half_life: float, window: float) -> None:
        """Both in seconds."""
        self.half_life, self.window = half_life, window
        self.belief: NDArray[np.float64] | None = None
        self.words = f"probabilities are given all windows so far, half of which is forgotten after {half_life:g} s"

    def feed(self, probability: NDArray[np.float64], elapsed: float | None) -> NDArray[np.float64]:
        """Probabilities (classes,) of the next window, `elapsed` seconds after the last; None: it is the first."""
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


def smoothing_of(text: str | None, window: float) -> Posterior | None:
    """text: as on the command line; window: seconds."""
    if text is None or text == "none":
        return None
    kind, _, number = text.partition(":")
    try:
        if kind == "posterior" and math.isfinite(float(number)) and float(number) > 0:
            return Posterior(float(number), window)
    except ValueError:
        pass
    raise UserError(f"smooth is {shown(text)}; give posterior:SECONDS (half-life) or none")
