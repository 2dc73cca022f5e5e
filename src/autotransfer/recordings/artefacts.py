"""Artefacts: channels of a person that are clipped, mostly flat, or full of mains hum."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .chunks import window_chunks
from .raw import Array

NEAR = 0.05  # of the range: values so near to the largest one are about as frequent in an intact signal
PILE = 3.0  # times as frequent as values near it: then the largest value is the limit of the device
MAINS = (50.0, 60.0)  # Hz
WIDTH = 1.0  # Hz either side
MOST_WINDOWS = 40  # of a person, of which spectra are computed
SHORTEST = 0.5  # s: spectra of shorter windows do not resolve the mains


class Artefacts(NamedTuple):
    """Shares by person and channel, each (S, C)."""

    clipped: NDArray[np.float64]  # of samples that lie at the end of the device's range
    flat: NDArray[np.float64]  # of windows in which nothing changes
    mains: NDArray[np.float64]  # of the power that lies at 50 or 60 Hz; NaN where the rate or length is too low


def artefacts_of(
    X: Array | Tensor,
    person: NDArray[np.int64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    sfreq: float | None,
) -> Artefacts:
    """X (N, C, T), person (N,); low and high (S, C): the extreme values of each person's channels."""
    n_people, n_channels = low.shape
    low, high = (np.where(np.isfinite(low) & np.isfinite(high), limit, 0.0) for limit in (low, high))
    near = NEAR * (high - low)
    top, bottom, near_top, near_bottom, flat = (np.zeros((n_people, n_channels)) for _ in range(5))
    for rows in window_chunks(X):
        values = np.asarray(X[rows], dtype=np.float32)
        who = person[rows]
        still = values.max(-1) == values.min(-1)  # (n, C)
        above, below = (limit.astype(np.float32)[who][..., None] for limit in (high, low))
        room = near.astype(np.float32)[who][..., None]
        for at_end, about, end, close in (
            (top, near_top, values >= above, values > above - room),
            (bottom, near_bottom, values <= below, values < below + room),
        ):
            ends = np.where(still, 0, np.count_nonzero(end, axis=-1))
            np.add.at(at_end, who, ends)
            np.add.at(about, who, np.where(still, 0, np.count_nonzero(close, axis=-1)) - ends)
        np.add.at(flat, who, still)
    windows = np.bincount(person, minlength=n_people)[:, None].astype(np.float64)
    samples = windows * X.shape[2]
    clipped = sum(
        np.where(at_end > PILE * np.maximum(about, 1), at_end, 0.0)
        for at_end, about in ((top, near_top), (bottom, near_bottom))
    )
    return Artefacts(clipped / samples, flat / windows, _mains(X, person, n_people, sfreq))


def _mains(X: Array | Tensor, person: NDArray[np.int64], n_people: int, sfreq: float | None) -> NDArray[np.float64]:
    """The median over a person's windows of the share of power at the mains, the larger of both."""
    shares = np.full((n_people, int(X.shape[1])), np.nan)
    n_times = int(X.shape[2])
    if sfreq is None or n_times / sfreq < SHORTEST or sfreq < 2 * (MAINS[0] + WIDTH):
        return shares
    hz = np.fft.rfftfreq(n_times, 1 / sfreq)
    bands = [np.abs(hz - line) <= max(WIDTH, 1.01 * sfreq / n_times) for line in MAINS if line + WIDTH < sfreq / 2]
    window = np.hanning(n_times)
    for s in range(n_people):
        rows = np.flatnonzero(person == s)
        rows = rows[:: max(1, len(rows) // MOST_WINDOWS)][:MOST_WINDOWS]
        values = np.asarray(X[rows], dtype=np.float64)
        values = np.where(np.isfinite(values).all(-1, keepdims=True), values, 0.0)
        values = (values - values.mean(-1, keepdims=True)) * window
        power = np.abs(np.fft.rfft(values)) ** 2
        total = np.maximum(power[..., 1:].sum(-1), np.finfo(np.float64).tiny)  # (n, C)
        shares[s] = np.max([np.median(power[..., band].sum(-1) / total, axis=0) for band in bands], axis=0)
    return shares
