"""statistics: common statistics of skin conductance, pulse, temperature and motion signals.

The features of each channel, in this order:

    level          mean; quantiles .05, .25, .5, .75, .95
    spread         log deviation; interquartile range and 5-95 % range, in deviations; linear trend, in deviations and
                   in the unit of the signal
    shape          skewness; log (1 + kurtosis)
    derivatives    log mean absolute value and log root mean square of the first, log root mean square of the second
    spectrum       entropy; mean and deviation of frequency, as shares of the spectrum
    counts         maxima; maxima half a deviation above the mean; crossings of the mean; each per sample
    memory         autocorrelation at 1, 2, 4 and 8 samples

They are followed by the correlation of each pair of channels, as Fisher's z.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .base import Representation, log, log_power, subtract_means
from .features import power_spectrum, power_spectrum_in_graph

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
LAGS = (1, 2, 4, 8)
HIGH = 0.5  # deviations above the mean
PER_CHANNEL = 26
MOST = 0.999  # largest correlation, so that Fisher's z of identical channels is finite
LEAST = 1e-12  # smallest variance of frequencies; less is a rounding error


@dataclass(frozen=True)
class Statistics(Representation):
    display_name = "statistics of windows"
    min_samples: ClassVar[int] = 2 * LAGS[-1]
    counts_samples: ClassVar[bool] = True

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 1, PER_CHANNEL * channels + channels * (channels - 1) // 2

    def values_per_window(self, channels: int, times: int) -> int:
        return 16 * channels * max(channels, times)

    def compute(self, x: Tensor) -> Tensor:
        return compute_statistics(x, power_spectrum)

    def compute_in_graph(self, x: Tensor) -> Tensor:
        return compute_statistics(x, power_spectrum_in_graph)


def compute_statistics(x: Tensor, power_of: Callable[[Tensor], Tensor]) -> Tensor:
    """Map (..., C, T) to (..., 1, 26 C + C(C − 1)/2), float64. power_of: as of `compute_features`."""
    signal, mean = subtract_means(x)
    channels, times = int(x.shape[-2]), int(x.shape[-1])
    fixed = _shape_constants(channels, times, x.device)
    spread = signal.square().mean(-1, keepdim=True).sqrt()
    unit = signal / (spread + (spread == 0).to(spread.dtype))
    square = unit.square()
    slope = signal[..., 1:] - signal[..., :-1]
    bend = slope[..., 1:] - slope[..., :-1]
    peak = (slope[..., :-1] > 0) & (slope[..., 1:] <= 0)
    high = peak & (unit[..., 1:-1] > HIGH)
    crossing = unit[..., 1:] * unit[..., :-1] < 0
    # Means are computed together because the number of operations determines the time of a single window.
    trend, cube, fourth = _means(unit * fixed.ramp, square * unit, square.square())
    size, first, crossings = _means(slope.abs(), slope.square(), crossing.to(unit.dtype))
    second, peaks, highs = _means(bend.square(), peak.to(unit.dtype), high.to(unit.dtype))
    ranked = unit.sort(-1).values
    low, above = ranked.index_select(-1, fixed.below), ranked.index_select(-1, fixed.below + 1)
    quantiles = low + fixed.share * (above - low)
    parts = [
        mean, mean + spread * quantiles,
        log(spread), quantiles[..., 3:4] - quantiles[..., 1:2], quantiles[..., 4:5] - quantiles[..., 0:1],
        trend, trend * spread,
        cube, fourth.log1p(),
        log(size), 0.5 * log_power(first), 0.5 * log_power(second),
        *_spectral_features(power_of(unit), fixed.frequency),
        peaks, highs, crossings,
        *((unit[..., lag:] * unit[..., :-lag]).mean(-1, keepdim=True) for lag in LAGS),
    ]  # fmt: skip
    correlation = (unit @ unit.transpose(-1, -2)).flatten(-2).index_select(-1, fixed.pairs) / times
    bounded = correlation.clamp(-MOST, MOST)
    fisher = 0.5 * (torch.log1p(bounded) - torch.log1p(-bounded))  # atanh, which ONNX has in float32 alone
    return torch.cat([torch.cat(parts, -1).flatten(-2), fisher], -1)[..., None, :]


def _means(*signals: Tensor) -> tuple[Tensor, ...]:
    """Return the means (..., 1) of tensors (..., T) of equal shape."""
    return torch.stack(signals).mean(-1, keepdim=True).unbind()


def _spectral_features(power: Tensor, frequency: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return entropy in [0, 1], mean and deviation of frequency of power (..., F); 0 for a flat signal."""
    total = power.sum(-1, keepdim=True)
    share = power / (total + (total == 0).to(total.dtype))
    entropy = -(share * log(share)).sum(-1, keepdim=True) / math.log(int(power.shape[-1]))
    mean, square = (share[..., None, :] * frequency).sum(-1).unsqueeze(-1).unbind(-2)
    return entropy, mean, (square - mean.square()).clamp(min=LEAST).sqrt()


class ShapeConstants(NamedTuple):
    """Constants that depend on the shape of a window alone."""

    ramp: Tensor  # (T,) from −1 to 1
    below: Tensor  # (5,): ranks below the quantiles
    share: Tensor  # (5,): fraction of the step to the next rank
    frequency: Tensor  # (2, T // 2): frequencies from 0 to 1, and their squares
    pairs: Tensor  # indices of pairs of channels in a flattened matrix


@cache
def _shape_constants(channels: int, times: int, device: torch.device) -> ShapeConstants:
    place = np.array(QUANTILES) * (times - 1)
    frequency = np.arange(1, times // 2 + 1) / (times // 2)
    rows, columns = np.triu_indices(channels, 1)
    arrays = (
        np.linspace(-1, 1, times), np.floor(place).astype(np.int64), place - np.floor(place),
        np.stack([frequency, frequency**2]), rows * channels + columns,
    )  # fmt: skip
    return ShapeConstants(*(torch.from_numpy(array).to(device) for array in arrays))
