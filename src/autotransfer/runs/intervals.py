"""How sure a mean over people is."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

RESAMPLES = 10_000


def bootstrap_interval(
    values: ArrayLike, *, seed: int, level: float = 0.95, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """Interval for the mean of `values` (n,), resampling subjects; None for n < 2.

    The percentile interval is too narrow for a dozen subjects: it lacks the factor √(n/(n-1)) and the heavier tails
    of Student's t. Both are put back by taking the percentiles further out (Hesterberg 2015, "expanded percentile").
    """
    data = np.sort(np.asarray(values, dtype=float))  # the order of subjects must not matter, not even by rounding
    n = len(data)
    if n < 2:
        return None
    rows = np.random.default_rng(seed).integers(0, n, (resamples, n))
    means = data[rows].mean(axis=1)
    t = stats.t.ppf((1 - level) / 2, n - 1)
    tail = float(stats.norm.cdf(math.sqrt(n / (n - 1)) * t))
    low, high = np.quantile(means, (tail, 1 - tail))
    return float(low), float(high)
