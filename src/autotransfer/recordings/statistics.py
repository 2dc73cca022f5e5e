"""Statistics of the values of windows, by subject and channel."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .chunks import window_chunks
from .raw import Array

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# An isolated value occurs at least this often, at a distance of this multiple of the range of all other values.
MIN_REPEATS, ISOLATION = 3, 3.0


class Signals(NamedTuple):
    """Statistics of the values of each subject (S) and channel (C)."""

    spread: Floats  # (S, C) root mean variance of windows; NaN without finite windows
    low: Floats  # (S, C) the smallest value; infinite without finite windows
    high: Floats  # (S, C)
    flat: Floats  # (S, C) share of windows in which the channel is constant
    not_finite: Array  # (C,) int64: windows that hold NaN or infinite values

    @property
    def constant(self) -> Array:
        """Return which channels have one value in all windows, (S, C) bool."""
        return np.asarray(self.low == self.high)

    @property
    def scales(self) -> Floats:
        """Return the median spread of channels that vary, (S,); NaN if all are constant."""
        varying = np.where((self.spread > 0) & ~self.constant, self.spread, np.nan)
        return np.array([np.nanmedian(row) if np.isfinite(row).any() else np.nan for row in varying])


def signal_statistics(X: Array | Tensor, subject: Ints, n_subjects: int) -> Signals:
    """Compute statistics of X (N, C, T) for subjects (N,), in one pass over chunks."""
    n_channels = X.shape[1]
    total, count, flat = (np.zeros((n_subjects, n_channels)) for _ in range(3))
    low, high = np.full((n_subjects, n_channels), np.inf), np.full((n_subjects, n_channels), -np.inf)
    not_finite = np.zeros(n_channels, np.int64)
    for rows in window_chunks(X):
        values = np.asarray(X[rows], dtype=np.float64)
        finite = np.asarray(np.isfinite(values).all(-1))  # (n, C)
        not_finite += (~finite).sum(0)
        values = np.where(finite[..., None], values, 0.0)
        least, most, owner = values.min(-1), values.max(-1), subject[rows]
        with np.errstate(over="ignore"):
            np.add.at(total, owner, values.var(-1))
        np.add.at(count, owner, finite)
        np.add.at(flat, owner, finite & (least == most))
        np.minimum.at(low, owner, np.where(finite, least, np.inf))
        np.maximum.at(high, owner, np.where(finite, most, -np.inf))
    windows = np.bincount(subject, minlength=n_subjects)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        return Signals(np.sqrt(total / count), low, high, flat / windows, not_finite)


def typical_scale(X: Array | Tensor) -> float | None:
    """Return the median over channels of the windows' root mean variance; None if every channel is constant."""
    scale = float(signal_statistics(X, np.zeros(X.shape[0], np.int64), 1).scales[0])
    return scale if math.isfinite(scale) and scale > 0 else None


def find_isolated_values(X: Array | Tensor, subject: Ints, signals: Signals) -> tuple[Floats, Floats]:
    """Return shares (S, C) of samples at an isolated value, and this value.

    An isolated value, such as -9999 for lost samples, occurs several times far outside all other values.
    """
    finite = np.isfinite(signals.low) & np.isfinite(signals.high)
    low, high = (np.where(finite, limit, 0.0) for limit in (signals.low, signals.high))
    count = np.zeros((2, *low.shape))
    gap = np.full_like(count, np.inf)  # from the end to the nearest other value
    for rows in window_chunks(X):
        values, owner = np.asarray(X[rows], dtype=np.float64), subject[rows]
        for side, distance in enumerate((high[owner][..., None] - values, values - low[owner][..., None])):
            np.add.at(count[side], owner, np.count_nonzero(distance <= 0, axis=-1))
            np.minimum.at(gap[side], owner, np.where(distance > 0, distance, np.inf).min(-1))  # NaN is not > 0
    others = high - low - gap.sum(0)  # range of all other values
    is_isolated = (count >= MIN_REPEATS) & (others > 0) & (gap > ISOLATION * others)
    samples = np.bincount(subject, minlength=len(low))[:, None] * X.shape[2]
    return (is_isolated * count).sum(0) / samples, np.where(is_isolated[0], high, low)
