"""Short-time spectra as products with fixed matrices, which graphs can export; used by bands and band_tangent."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from torch import Tensor

from ...errors import UserError

Band = tuple[float, float]  # Hz, from and up to
Bins = tuple[tuple[int, ...], ...]  # frequencies of each band, in multiples of the resolution

SECOND = 1.0  # length of a segment; spectra of half-overlapping segments are averaged (Welch 1967)


def segment_length(sfreq: float, times: int) -> int:
    return min(times, round(SECOND * sfreq))


def segments(x: Tensor, length: int) -> Tensor:
    """Cut (..., T) into half-overlapping segments (..., n, length); the last samples may be in none."""
    times = int(x.shape[-1])
    starts = range(0, times - length + 1, length - length // 2)
    return torch.stack([x[..., start : start + length] for start in starts], -2)


@cache
def bands_within(name: str, bands: tuple[Band, ...], sfreq: float, times: int) -> Bins:
    """Return the bins of each band, without empty bands."""
    step = sfreq / segment_length(sfreq, times)
    highest = (segment_length(sfreq, times) - 1) // 2
    bins = (tuple(k for k in range(1, highest + 1) if low <= k * step < high) for low, high in bands)
    inside = tuple(filter(None, bins))
    if not inside:
        raise UserError(f"represent {name!r} needs frequencies from {bands[0][0]:g} to {bands[-1][1]:g} Hz; windows of "
                        f"{times} samples at {sfreq:g} Hz have none of them")  # fmt: skip
    return inside


@cache
def fourier(length: int, bins: tuple[int, ...]) -> Tensor:
    """Return waves (length, 2 bins), cosines first, for coefficients of centered segments under a Hann window."""
    angle = np.outer(np.arange(length), np.array(bins)) % length * (2 * math.pi / length)
    hann = 0.5 - 0.5 * np.cos(2 * math.pi * np.arange(length) / length)
    waves = hann[:, None] * np.concatenate([np.cos(angle), np.sin(angle)], 1)
    return torch.from_numpy(waves - waves.mean(0))
