"""features: each channel's means of 16 segments, log power in 16 bands, log deviation and log deviation of slopes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from .base import N_SEGMENTS, Representation, log, log_power, segment_means, subtract_means


@dataclass(frozen=True)
class Features(Representation):
    display_name = "linear models on features"

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return channels, min(N_SEGMENTS, times) + min(N_SEGMENTS, times // 2) + 2

    def compute(self, x: Tensor) -> Tensor:
        return compute_features(x, power_spectrum)

    def compute_in_graph(self, x: Tensor) -> Tensor:
        return compute_features(x, power_spectrum_in_graph)


def compute_features(x: Tensor, power_of: Callable[[Tensor], Tensor]) -> Tensor:
    """Map (..., C, T) to (..., C, means + bands + 2), float64. power_of: `power_spectrum` or its version for graphs."""
    signal, mean = subtract_means(x)
    means = segment_means(signal) + mean
    bands = segment_means(power_of(signal))
    slope, _ = subtract_means(signal[..., 1:] - signal[..., :-1])
    deviations = [x.square().mean(-1, keepdim=True).sqrt() for x in (signal, slope)]
    return torch.cat([means, log_power(bands), log(torch.cat(deviations, -1))], -1)


def power_spectrum(x: Tensor) -> Tensor:
    """Return the power (..., T // 2) at each frequency above 0 of signals (..., T) under a Hann window."""
    window = hann(int(x.shape[-1])).to(x)
    power: Tensor = torch.fft.rfft(x * window)[..., 1:].abs().square()
    return power


@cache
def hann(times: int) -> Tensor:
    return torch.from_numpy(np.hanning(times))


def power_spectrum_in_graph(x: Tensor) -> Tensor:
    """Compute `power_spectrum` by products with Fourier matrices, for export."""
    times = x.shape[-1]
    angle = np.outer(np.arange(times), np.arange(1, times // 2 + 1)) % times * (2 * math.pi / times)
    window = np.hanning(times)[:, None]
    real, imaginary = (x @ torch.from_numpy(window * part(angle)) for part in (np.cos, np.sin))
    return real.square() + imaginary.square()
