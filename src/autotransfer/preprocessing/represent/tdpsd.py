"""tdpsd: moments of the power spectrum from the time domain (Khushaba et al. 2014), and the log deviation.

Of a signal and its slopes: zero, second and fourth moment, sparseness, irregularity and the ratio of waveform lengths,
each a logarithm a; the same of the signal's log power gives b; the numbers are −2ab / (a² + b²), as LibEMG has them.
These would depend on the unit of the recordings. So every channel is taken in units of its own deviation in the window,
and how large that is comes as a seventh number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .base import QUIET, Representation, centered, log
from .time_domain import deviation_of, difference

POWER = 0.1  # to which moments are raised, so that they hardly depend on amplitude
LEAST = float(np.finfo(np.float64).tiny) ** (POWER / 2) / POWER  # what 0 is raised to
FLOOR = 1e-4  # of the power in a sample, in units of the variance: 0 has no logarithm


@dataclass(frozen=True)
class TDPSD(Representation):
    display_names = ("TDPSD features", "power spectrum descriptors of the time domain")

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return channels, 7

    def room(self, channels: int, times: int) -> int:
        return 12 * channels * times

    def numbers(self, x: Tensor) -> Tensor:
        signal, _ = centered(x)
        spread = deviation_of(signal)
        unit = signal / spread[..., None]
        a, b = (moments(of) for of in (unit, (unit.square() + FLOOR).log()))
        fused = -2 * a * b / (a.square() + b.square()).clamp(min=QUIET)  # 0 where a flat channel has 0/0
        return torch.cat([fused, log(spread)[..., None]], -1)


def moments(x: Tensor) -> Tensor:
    """Map (..., T) to moments (..., 6), all logarithms."""
    steps = x.shape[-1] - 1
    slope = difference(x)
    bend = difference(slope)
    zero = raised(x.square().sum(-1) / steps**2)
    second, fourth = (raised(of.square().sum(-1) / steps) for of in (slope, bend))
    fall, rise = (zero - second).abs(), (zero - fourth).abs()
    sparseness = 0.5 * (log(fall) + log(rise)) - log(zero)
    irregularity = log(second) - 0.5 * (log(zero) + log(fourth))
    lengths = 0.5 * (log(slope.abs().sum(-1)) - log(bend.abs().sum(-1)))
    return torch.stack([log(zero), log(fall), log(rise), sparseness, irregularity, lengths], -1)


def raised(square: Tensor) -> Tensor:
    """Return a squared moment (...) as the power of its root."""
    power = (square + torch.finfo(square.dtype).tiny) ** (POWER / 2) / POWER
    return power.clamp(min=LEAST)  # once more: exporters write `tiny` in single precision, where it is 0
