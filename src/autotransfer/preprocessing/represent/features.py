"""features: of each channel means of 16 stretches, log power in 16 bands, log deviation, and that of its slope."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from .base import POINTS, Representation, centered, deviation, log, log_power, stretches


@dataclass(frozen=True)
class Features(Representation):
    display_names = ("Linear on features", "linear models on features")

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return channels, min(POINTS, times) + min(POINTS, times // 2) + 2

    def numbers(self, x: Tensor) -> Tensor:
        return features(x, spectrum)

    def numbers_in_graph(self, x: Tensor) -> Tensor:
        return features(x, products)


def features(x: Tensor, power_of: Callable[[Tensor], Tensor]) -> Tensor:
    """Map (..., C, T) to (..., C, means + bands + 2), float64. power_of: as `spectrum`."""
    signal, mean = centered(x)
    means = stretches(signal) + mean
    bands = stretches(power_of(signal))
    spread = signal.square().mean(-1, keepdim=True).sqrt()
    slope = deviation(signal[..., 1:] - signal[..., :-1])[..., None]
    return torch.cat([means, log_power(bands), log(torch.cat([spread, slope], -1))], -1)


def spectrum(x: Tensor) -> Tensor:
    """Return the power at each frequency but 0 of signals (..., T) under a Hann window: (..., T // 2)."""
    window = hann(int(x.shape[-1])).to(x)
    power: Tensor = torch.fft.rfft(x * window)[..., 1:].abs().square()
    return power


@cache
def hann(times: int) -> Tensor:
    return torch.from_numpy(np.hanning(times))


def products(x: Tensor) -> Tensor:
    """Compute `spectrum` in products with the matrices of the transform, for graphs."""
    times = x.shape[-1]
    angle = np.outer(np.arange(times), np.arange(1, times // 2 + 1)) % times * (2 * math.pi / times)
    window = np.hanning(times)[:, None]
    real, imaginary = (x @ torch.from_numpy(window * part(angle)) for part in (np.cos, np.sin))
    return real.square() + imaginary.square()
