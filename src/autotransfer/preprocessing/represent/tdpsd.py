"""tdpsd: moments of the power spectrum, computed in the time domain (Khushaba et al. 2014), and the log deviation.

Let a be the logarithms of zeroth, second and fourth moment, sparseness, irregularity and waveform length ratio of a
signal, and b the same logarithms of its log power. Features are −2ab / (a² + b²), as in LibEMG. Because a depends on
the unit, each channel is divided by its standard deviation, whose logarithm is the seventh feature.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .base import LOG_FLOOR, Representation, log, subtract_means
from .time_domain import difference, root_mean_square

POWER = 0.1  # exponent of moments, small so that moments depend little on amplitude
ZERO_RESULT = float(np.finfo(np.float64).tiny) ** (POWER / 2) / POWER  # result of `raise_root` for 0
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
        a, b = (log_moments(signal) for signal in (unit, (unit.square() + FLOOR).log()))
        features = -2 * a * b / (a.square() + b.square()).clamp(min=LOG_FLOOR)  # 0 instead of 0/0 for constant channels
        return torch.cat([features, log(spread)[..., None]], -1)


def log_moments(x: Tensor) -> Tensor:
    """Return six logarithms (..., 6) of signals (..., T), in the order of the module docstring."""
    steps = x.shape[-1] - 1
    slope = difference(x)
    curvature = difference(slope)
    zeroth = raise_root(x.square().sum(-1) / steps**2)
    second, fourth = (raise_root(x.square().sum(-1) / steps) for x in (slope, curvature))
    zeroth_second, zeroth_fourth = (zeroth - second).abs(), (zeroth - fourth).abs()
    sparseness = 0.5 * (log(zeroth_second) + log(zeroth_fourth)) - log(zeroth)
    irregularity = log(second) - 0.5 * (log(zeroth) + log(fourth))
    length_ratio = 0.5 * (log(slope.abs().sum(-1)) - log(curvature.abs().sum(-1)))
    logarithms = [log(zeroth), log(zeroth_second), log(zeroth_fourth), sparseness, irregularity, length_ratio]
    return torch.stack(logarithms, -1)


def raise_root(square: Tensor) -> Tensor:
    """Return the square roots of squared moments (...), raised to POWER and divided by POWER."""
    power = (square + torch.finfo(square.dtype).tiny) ** (POWER / 2) / POWER
    return power.clamp(min=ZERO_RESULT)  # exporters round `tiny` to 0 in single precision
