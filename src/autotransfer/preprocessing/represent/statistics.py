"""statistics: what is usually measured of skin, pulse, temperature and motion.

Of each channel, in this order:

    level          mean; quantiles .05, .25, .5, .75, .95
    spread         log deviation; range of the middle half and of the middle nine tenths, in deviations; linear trend,
                   in deviations and as it is
    shape          skewness; log (1 + kurtosis)
    derivatives    log mean size and log root mean square of the first, log root mean square of the second
    spectrum       entropy; mean and deviation of frequency, as shares of the spectrum
    counts         maxima; maxima half a deviation above the mean; crossings of the mean; each per sample
    memory         autocorrelation at 1, 2, 4 and 8 samples

Then of each pair of channels their correlation, as Fisher's z.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from .base import Representation, centred, log
from .features import products, spectrum

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
LAGS = (1, 2, 4, 8)
HIGH = 0.5  # deviations above the mean
PER_CHANNEL = 26
MOST = 0.999  # of a correlation: Fisher's z of copies is finite


@dataclass(frozen=True)
class Statistics(Representation):
    shortest: ClassVar[int] = 2 * LAGS[-1]

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 1, PER_CHANNEL * channels + channels * (channels - 1) // 2

    def room(self, channels: int, times: int) -> int:
        return 16 * channels * max(channels, times)

    def numbers(self, x: Tensor) -> Tensor:
        return statistics(x, spectrum)

    def numbers_in_graph(self, x: Tensor) -> Tensor:
        return statistics(x, products)


def statistics(x: Tensor, power_of: Callable[[Tensor], Tensor]) -> Tensor:
    """(..., C, T) -> (..., 1, 26 C + C(C − 1)/2), float64. power_of: signals (..., T) -> |spectrum|² (..., T // 2)."""
    own, mean = centred(x)
    channels, times = int(x.shape[-2]), int(x.shape[-1])
    spread = own.square().mean(-1, keepdim=True).sqrt()
    flat = (spread == 0).to(spread.dtype)
    unit = own / (spread + flat)
    slope = own[..., 1:] - own[..., :-1]
    bend = slope[..., 1:] - slope[..., :-1]
    quantiles = _quantiles(unit)
    trend = (unit * torch.linspace(-1, 1, times, dtype=own.dtype, device=own.device)).mean(-1, keepdim=True)
    parts = [
        mean, mean + spread * quantiles,
        log(spread), quantiles[..., 3:4] - quantiles[..., 1:2], quantiles[..., 4:5] - quantiles[..., 0:1],
        trend, trend * spread,
        unit.pow(3).mean(-1, keepdim=True), unit.pow(4).mean(-1, keepdim=True).log1p(),
        log(_mean(slope.abs())), 0.5 * log(_mean(slope.square())), 0.5 * log(_mean(bend.square())),
        *_of_spectrum(power_of(unit)),
        *_counts(unit, slope),
        *(_mean(unit[..., lag:] * unit[..., :-lag]) for lag in LAGS),
    ]  # fmt: skip
    correlation = (unit @ unit.transpose(-1, -2)).flatten(-2).index_select(-1, _pairs(channels).to(x.device)) / times
    pairs = correlation.clamp(-MOST, MOST)
    fisher = 0.5 * ((1 + pairs) / (1 - pairs)).log()
    return torch.cat([torch.cat(parts, -1).flatten(-2), fisher], -1)[..., None, :]


def _mean(x: Tensor) -> Tensor:
    return x.mean(-1, keepdim=True)


def _quantiles(x: Tensor) -> Tensor:
    """(..., T) -> (..., 5), between neighbours by their distance."""
    ranked = x.sort(-1).values
    places = [q * (int(x.shape[-1]) - 1) for q in QUANTILES]
    below = torch.tensor([math.floor(place) for place in places], device=x.device)
    share = torch.tensor([place - math.floor(place) for place in places], dtype=x.dtype, device=x.device)
    low, high = ranked.index_select(-1, below), ranked.index_select(-1, below + 1)
    return low + share * (high - low)


def _of_spectrum(power: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of |spectrum|² (..., F): entropy from 0 to 1, mean and deviation of frequency. 0 for silence."""
    total = power.sum(-1, keepdim=True)
    share = power / (total + (total == 0).to(total.dtype))
    count = int(power.shape[-1])
    frequency = torch.arange(1, count + 1, dtype=power.dtype, device=power.device) / count
    entropy = -(share * log(share)).sum(-1, keepdim=True) / math.log(count)
    mean = (share * frequency).sum(-1, keepdim=True)
    return entropy, mean, ((share * (frequency - mean).square()).sum(-1, keepdim=True) + 1e-12).sqrt()


def _counts(unit: Tensor, slope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Shares of samples that are maxima, high maxima, and crossings of the mean."""
    peak = (slope[..., :-1] > 0) & (slope[..., 1:] <= 0)
    high = peak & (unit[..., 1:-1] > HIGH)
    crossing = unit[..., 1:] * unit[..., :-1] < 0
    peaks, highs, crossings = (_mean(one.to(unit.dtype)) for one in (peak, high, crossing))
    return peaks, highs, crossings


@cache
def _pairs(channels: int) -> Tensor:
    """Places of pairs of channels in a flattened matrix."""
    rows, columns = np.triu_indices(channels, 1)
    return torch.from_numpy(rows * channels + columns)
