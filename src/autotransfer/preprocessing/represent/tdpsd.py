"""tdpsd: moments of the power spectrum, computed in the time domain (Khushaba et al. 2014), and the log deviation.

Zeroth, second and fourth moment, sparseness, irregularity and waveform length ratio of the signal are logarithms a;
those of its log power are b. Features are −2ab / (a² + b²), as in LibEMG. Because they depend on the unit, each channel
is divided by its standard deviation in the window, whose logarithm is the seventh feature.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .base import QUIET, Representation, log, subtract_means
from .time_domain import difference, root_mean_square

POWER = 0.1  # exponent of moments, which makes them depend little on amplitude
LEAST = float(np.finfo(np.float64).tiny) ** (POWER / 2) / POWER  # result for 0
FLOOR = 1e-4  # added to the power of samples, in units of the variance, before the logarithm


@dataclass(frozen=True)
class TDPSD(Representation):
    display_name = "power spectrum descriptors of the time domain"

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return channels, 7

    def values_per_window(self, channels: int, times: int) -> int:
        return 12 * channels * times

    def compute(self, x: Tensor) -> Tensor:
        signal, _ = subtract_means(x)
        spread = root_mean_square(signal)
        unit = signal / spread[..., None]
        a, b = (moments(signal) for signal in (unit, (unit.square() + FLOOR).log()))
        fused = -2 * a * b / (a.square() + b.square()).clamp(min=QUIET)  # 0 instead of 0/0 for flat channels
        return torch.cat([fused, log(spread)[..., None]], -1)


def moments(x: Tensor) -> Tensor:
    """Return log moments (..., 6) of (..., T)."""
    steps = x.shape[-1] - 1
    slope = difference(x)
    bend = difference(slope)
    zero = raise_root(x.square().sum(-1) / steps**2)
    second, fourth = (raise_root(x.square().sum(-1) / steps) for x in (slope, bend))
    fall, rise = (zero - second).abs(), (zero - fourth).abs()
    sparseness = 0.5 * (log(fall) + log(rise)) - log(zero)
    irregularity = log(second) - 0.5 * (log(zero) + log(fourth))
    lengths = 0.5 * (log(slope.abs().sum(-1)) - log(bend.abs().sum(-1)))
    return torch.stack([log(zero), log(fall), log(rise), sparseness, irregularity, lengths], -1)


def raise_root(square: Tensor) -> Tensor:
    """Return the square root of squared moments (...) to the power POWER, divided by POWER."""
    power = (square + torch.finfo(square.dtype).tiny) ** (POWER / 2) / POWER
    return power.clamp(min=LEAST)  # exporters write `tiny` in single precision, as 0
