"""What the values of windows are like, by person and channel."""

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

NEAR = 0.05  # of the range: values so near to the largest one are about as frequent in an intact signal
PILE = 3.0  # times as frequent as values near it: then the largest value is the limit of the device


class Signals(NamedTuple):
    """Statistics of the values of X."""

    spread: Floats  # (S, C) root mean variance of windows; NaN without finite windows
    low: Floats  # (S, C) the smallest value; infinite without finite windows
    high: Floats  # (S, C)
    flat: Floats  # (S, C) share of windows in which nothing changes
    not_finite: Array  # (C,) int64: windows that hold NaN or infinite values

    @property
    def constant(self) -> Array:
        """Tell whether a channel has one value in all windows, (S, C) bool."""
        return np.asarray(self.low == self.high)

    @property
    def scales(self) -> Floats:
        """Return the median spread over channels that vary, (S,); NaN without any."""
        varying = np.where((self.spread > 0) & ~self.constant, self.spread, np.nan)
        return np.array([np.nanmedian(row) if np.isfinite(row).any() else np.nan for row in varying])


def signals_of(X: Array | Tensor, person: Ints, n_people: int) -> Signals:
    """Compute the statistics of X (N, C, T) of people (N,), in one pass over chunks."""
    n_channels = X.shape[1]
    total, count, flat = (np.zeros((n_people, n_channels)) for _ in range(3))
    low, high = np.full((n_people, n_channels), np.inf), np.full((n_people, n_channels), -np.inf)
    not_finite = np.zeros(n_channels, np.int64)
    for rows in window_chunks(X):
        values = np.asarray(X[rows], dtype=np.float64)
        finite = np.asarray(np.isfinite(values).all(-1))  # (n, C)
        not_finite += (~finite).sum(0)
        values = np.where(finite[..., None], values, 0.0)
        least, most, who = values.min(-1), values.max(-1), person[rows]
        with np.errstate(over="ignore"):
            np.add.at(total, who, values.var(-1))
        np.add.at(count, who, finite)
        np.add.at(flat, who, finite & (least == most))
        np.minimum.at(low, who, np.where(finite, least, np.inf))
        np.maximum.at(high, who, np.where(finite, most, -np.inf))
    windows = np.bincount(person, minlength=n_people)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        return Signals(np.sqrt(total / count), low, high, flat / windows, not_finite)


def typical_scale(X: Array | Tensor) -> float | None:
    """Return the median over channels of the windows' root mean variance; None if nothing varies."""
    scale = float(signals_of(X, np.zeros(X.shape[0], np.int64), 1).scales[0])
    return scale if math.isfinite(scale) and scale > 0 else None


def clipped_share(X: Array | Tensor, person: Ints, signals: Signals) -> Floats:
    """Return the share (S, C) of samples that lie at the ends of the device's range."""
    finite = np.isfinite(signals.low) & np.isfinite(signals.high)
    low, high = (np.where(finite, limit, 0.0) for limit in (signals.low, signals.high))
    near = NEAR * (high - low)
    ends, about = np.zeros((2, *low.shape)), np.zeros((2, *low.shape))
    for rows in window_chunks(X):
        values, who = np.asarray(X[rows], dtype=np.float64), person[rows]
        moving = values.max(-1) != values.min(-1)
        for side, distance in enumerate((high[who][..., None] - values, values - low[who][..., None])):
            np.add.at(ends[side], who, moving * np.count_nonzero(distance <= 0, axis=-1))
            np.add.at(about[side], who, moving * np.count_nonzero(distance < near[who][..., None], axis=-1))
    piled = np.where(ends > PILE * np.maximum(about - ends, 1), ends, 0.0).sum(0)
    clipped: Floats = piled / (np.bincount(person, minlength=len(low))[:, None] * X.shape[2])
    return clipped
