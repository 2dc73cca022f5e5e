"""statistics: common statistics of skin conductance, pulse, temperature and motion signals.

The features of each channel, in this order:

    level          mean; quantiles .05, .25, .5, .75, .95
    spread         log standard deviation (SD); interquartile range and 5-95 % range, relative to the SD; linear trend,
                   relative to the SD and in the unit of the signal
    shape          skewness; log (1 + kurtosis)
    derivatives    log mean absolute value and log root mean square of the first, log root mean square of the second
    spectrum       entropy; mean and SD of the frequency, relative to the highest frequency
    counts         maxima; maxima more than SD/2 above the mean; crossings of the mean; each per sample
    time           autocorrelation at 1, 2, 4 and 8 samples

The correlations of all pairs of channels, as Fisher's z, follow.
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
HIGH_PEAK = 0.5  # minimum height of a high maximum above the mean, in standard deviations
N_FEATURES = 26  # per channel
MAX_CORRELATION = 0.999  # limit of correlations, so that Fisher's z of identical channels is finite
MIN_VARIANCE = 1e-12  # smallest variance of frequencies that is not a rounding error


@dataclass(frozen=True)
class Statistics(Representation):
    display_name = "statistics of windows"
    min_samples: ClassVar[int] = 2 * LAGS[-1]
    has_sample_counts: ClassVar[bool] = True

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 1, N_FEATURES * channels + channels * (channels - 1) // 2

    def values_per_window(self, channels: int, times: int) -> int:
        return 16 * channels * max(channels, times)

    def compute(self, x: Tensor) -> Tensor:
        return compute_statistics(x, power_spectrum)

    def compute_in_graph(self, x: Tensor) -> Tensor:
        return compute_statistics(x, power_spectrum_in_graph)


def compute_statistics(x: Tensor, power_of: Callable[[Tensor], Tensor]) -> Tensor:
    """Map (..., C, T) to (..., 1, 26 C + C(C − 1)/2), float64. power_of: see `compute_features`."""
    signal, mean = subtract_means(x)
    channels, times = int(x.shape[-2]), int(x.shape[-1])
    constants = _shape_constants(channels, times, x.device)
    spread = signal.square().mean(-1, keepdim=True).sqrt()
    unit = signal / (spread + (spread == 0).to(spread.dtype))
    square = unit.square()
    slope = signal[..., 1:] - signal[..., :-1]
    curvature = slope[..., 1:] - slope[..., :-1]
    is_peak = (slope[..., :-1] > 0) & (slope[..., 1:] <= 0)
    is_high = is_peak & (unit[..., 1:-1] > HIGH_PEAK)
    is_crossing = unit[..., 1:] * unit[..., :-1] < 0
    # Means are computed together, because the time for a single window depends on the number of operations.
    trend, cube, fourth = _means(unit * constants.ramp, square * unit, square.square())
    size, first, crossings = _means(slope.abs(), slope.square(), is_crossing.to(unit.dtype))
    second, peaks, high_peaks = _means(curvature.square(), is_peak.to(unit.dtype), is_high.to(unit.dtype))
    ordered = unit.sort(-1).values
    lower, upper = ordered.index_select(-1, constants.rank), ordered.index_select(-1, constants.rank + 1)
    quantiles = lower + constants.fraction * (upper - lower)
    parts = [
        mean, mean + spread * quantiles,
        log(spread), quantiles[..., 3:4] - quantiles[..., 1:2], quantiles[..., 4:5] - quantiles[..., 0:1],
        trend, trend * spread,
        cube, fourth.log1p(),
        log(size), 0.5 * log_power(first), 0.5 * log_power(second),
        *_spectral_features(power_of(unit), constants.frequency),
        peaks, high_peaks, crossings,
        *((unit[..., lag:] * unit[..., :-lag]).mean(-1, keepdim=True) for lag in LAGS),
    ]  # fmt: skip
    correlation = (unit @ unit.transpose(-1, -2)).flatten(-2).index_select(-1, constants.pairs) / times
    bounded = correlation.clamp(-MAX_CORRELATION, MAX_CORRELATION)
    fisher = 0.5 * (torch.log1p(bounded) - torch.log1p(-bounded))  # atanh, which ONNX has only in float32
    return torch.cat([torch.cat(parts, -1).flatten(-2), fisher], -1)[..., None, :]


def _means(*signals: Tensor) -> tuple[Tensor, ...]:
    """Return the mean (..., 1) of each tensor (..., T); all tensors have one shape."""
    return torch.stack(signals).mean(-1, keepdim=True).unbind()


def _spectral_features(power: Tensor, frequency: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return entropy in [0, 1], mean and deviation of the frequency, from power (..., F); 0 for a constant signal."""
    total = power.sum(-1, keepdim=True)
    share = power / (total + (total == 0).to(total.dtype))
    entropy = -(share * log(share)).sum(-1, keepdim=True) / math.log(int(power.shape[-1]))
    mean, square = (share[..., None, :] * frequency).sum(-1).unsqueeze(-1).unbind(-2)
    return entropy, mean, (square - mean.square()).clamp(min=MIN_VARIANCE).sqrt()


class ShapeConstants(NamedTuple):
    """Constants that depend only on the shape of a window."""

    ramp: Tensor  # (T,) numbers from −1 to 1
    rank: Tensor  # (5,) last rank below each quantile
    fraction: Tensor  # (5,) position of each quantile between `rank` and the next rank
    frequency: Tensor  # (2, T // 2) frequencies from 0 to 1, and their squares
    pairs: Tensor  # indices of pairs of channels in a flattened matrix


@cache
def _shape_constants(channels: int, times: int, device: torch.device) -> ShapeConstants:
    position = np.array(QUANTILES) * (times - 1)
    frequency = np.arange(1, times // 2 + 1) / (times // 2)
    rows, columns = np.triu_indices(channels, 1)
    arrays = (
        np.linspace(-1, 1, times), np.floor(position).astype(np.int64), position - np.floor(position),
        np.stack([frequency, frequency**2]), rows * channels + columns,
    )  # fmt: skip
    # Copies are contiguous. The strides of an empty NumPy array may be 0, which `torch.export.save` does not accept.
    return ShapeConstants(*(torch.tensor(array, device=device) for array in arrays))
