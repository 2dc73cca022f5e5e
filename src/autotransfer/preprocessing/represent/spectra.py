"""Short-time spectra as products with constant matrices, which can be exported; used by bands and band_tangent."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from torch import Tensor

from ...errors import UserError

Band = tuple[float, float]  # lower and upper limit in Hz
Bins = tuple[tuple[int, ...], ...]  # frequencies of each band, in multiples of the resolution

SEGMENT_SECONDS = 1.0  # spectra of half-overlapping segments are averaged (Welch 1967)


def segment_length(sfreq: float, times: int) -> int:
    return min(times, round(SEGMENT_SECONDS * sfreq))


def cut_segments(x: Tensor, length: int) -> Tensor:
    """Cut (..., T) into half-overlapping segments (..., n, length); remaining samples are not used."""
    times = int(x.shape[-1])
    starts = range(0, times - length + 1, length - length // 2)
    return torch.stack([x[..., start : start + length] for start in starts], -2)


@cache
def find_bins(name: str, bands: tuple[Band, ...], sfreq: float, times: int) -> Bins:
    """Return the frequency bins of each band in the spectrum of a segment, without empty bands."""
    step = sfreq / segment_length(sfreq, times)
    highest = (segment_length(sfreq, times) - 1) // 2
    bins = (tuple(k for k in range(1, highest + 1) if low <= k * step < high) for low, high in bands)
    nonempty = tuple(filter(None, bins))
    if not nonempty:
        raise UserError(f"represent {name!r} needs frequencies from {bands[0][0]:g} to {bands[-1][1]:g} Hz; windows of "
                        f"{times} samples at {sfreq:g} Hz have none of them")  # fmt: skip
    return nonempty


@cache
def fourier_matrix(length: int, bins: tuple[int, ...]) -> Tensor:
    """Return a matrix (length, 2 bins) from segments to Fourier coefficients under a Hann window, cosines first."""
    angle = np.outer(np.arange(length), np.array(bins)) % length * (2 * math.pi / length)
    hann = 0.5 - 0.5 * np.cos(2 * math.pi * np.arange(length) / length)
    waves = hann[:, None] * np.concatenate([np.cos(angle), np.sin(angle)], 1)
    return torch.from_numpy(waves - waves.mean(0))
