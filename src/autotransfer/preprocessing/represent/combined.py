"""combined: statistics, intervals between events, and speed, for trees and linear models.

    statistics   features of `statistics`
    intervals    between upward crossings of the mean, and between steep rises such as heartbeats, of each channel
    speed        norm over channels of the difference of successive samples, such as the speed of an eye from x and y

A rise is steep if the change over a hundredth of the window exceeds the standard deviation of such changes. Features of
speed are log means of 16 segments, log norms of the mean difference in each segment, which are smaller if the direction
changes, and statistics. If channels have several units, channels with large differences determine the speed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import N_SEGMENTS, log, segment_means, subtract_means
from .features import power_spectrum, power_spectrum_in_graph
from .statistics import N_FEATURES, Statistics, compute_statistics

N_INTERVAL_FEATURES = 16  # per channel
FLOOR = 0.01  # number added to speeds before the logarithm, relative to the mean speed of the window
MIN_VARIANCE = 1e-12  # number added to variances, so that rounding errors are not divided by 0


@dataclass(frozen=True)
class Combined(Statistics):
    display_name = "statistics, intervals and speed"
    min_samples: ClassVar[int] = Statistics.min_samples + 1  # speed has one sample less

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        n_speed = 2 * min(N_SEGMENTS, times - 1) + N_FEATURES
        return 1, super().shape(channels, times)[1] + N_INTERVAL_FEATURES * channels + n_speed

    def compute(self, x: Tensor) -> Tensor:
        return _combine(x, power_spectrum)

    def compute_in_graph(self, x: Tensor) -> Tensor:
        return _combine(x, power_spectrum_in_graph)


def _combine(x: Tensor, power_of: Callable[[Tensor], Tensor]) -> Tensor:
    """Map (..., C, T) to (..., 1, S), float64. power_of: see `compute_features`."""
    exact = x.to(torch.float64)
    step = exact[..., 1:] - exact[..., :-1]
    speed = _channel_norm(step)
    floor = FLOOR * speed.mean(-1, keepdim=True)
    paths = [log(length + floor) for length in (segment_means(speed), _channel_norm(segment_means(step)))]
    parts = [compute_statistics(x, power_of), _interval_features(x), *paths, compute_statistics(speed, power_of)]
    return torch.cat(parts, -1)


def _channel_norm(x: Tensor) -> Tensor:
    """Return the norm over channels (..., 1, T) of (..., C, T)."""
    return (x.square().sum(-2, keepdim=True) + torch.finfo(x.dtype).tiny).sqrt()


def _interval_features(x: Tensor) -> Tensor:
    """Return features (..., 1, 16 C) of the intervals between crossings and between rises of windows (..., C, T)."""
    lag = max(1, int(x.shape[-1]) // 100)
    signal, _ = subtract_means(x)
    rise, _ = subtract_means(signal[..., lag:] - signal[..., :-lag])
    variance = rise.square().mean(-1, keepdim=True) + MIN_VARIANCE * signal.square().mean(-1, keepdim=True)
    excess = rise - (variance + torch.finfo(rise.dtype).tiny).sqrt()  # above 0 where a rise is steep
    return torch.cat([describe_intervals(signal), describe_intervals(excess)], -1).flatten(-2)[..., None, :]


def describe_intervals(signal: Tensor) -> Tensor:
    """Return features (..., 8) of the intervals between upward crossings of zero of signals (..., T).

    Features are the crossings per sample; the log mean interval, relative to the window; standard deviation, root mean
    square and mean absolute successive difference, maximum and minimum of the intervals, relative to their mean; and
    the autocorrelation of successive intervals.
    """
    times = int(signal.shape[-1])
    is_crossing = (signal[..., :-1] <= 0) & (signal[..., 1:] > 0)
    index = torch.arange(times - 1, dtype=signal.dtype, device=signal.device)
    crossings = torch.where(is_crossing, index, float(times)).sort(-1).values[..., : times // 2 + 1]  # then padding
    interval, is_interval = crossings[..., 1:] - crossings[..., :-1], crossings[..., 1:] < times
    count, pairs = (mask.sum(-1, keepdim=True).clamp(min=1) for mask in (is_interval, is_interval[..., 1:]))
    intervals = torch.where(is_interval, interval, 0.0)
    total = intervals.sum(-1, keepdim=True)
    mean = torch.where(total > 0, total / count, float(times))  # the length of the window if there is no interval
    deviation = torch.where(is_interval, interval / mean - 1, 0.0)
    change = torch.where(is_interval[..., 1:], deviation[..., 1:] - deviation[..., :-1], 0.0)
    # A sum with MIN_VARIANCE would not be bounded in ONNX files, because the exporter leaves out so small a number.
    variance = (deviation.square().sum(-1, keepdim=True) / count).clamp(min=MIN_VARIANCE)
    shortest = torch.where(is_interval, interval, float(times)).amin(-1, keepdim=True)
    features = [
        is_crossing.to(signal.dtype).mean(-1, keepdim=True), log(mean / times), variance.sqrt(),
        (change.square().sum(-1, keepdim=True) / pairs + MIN_VARIANCE).sqrt(),
        change.abs().sum(-1, keepdim=True) / pairs, intervals.amax(-1, keepdim=True) / mean, shortest / mean,
        (deviation[..., 1:] * deviation[..., :-1]).sum(-1, keepdim=True) / pairs / variance,
    ]  # fmt: skip
    return torch.cat(features, -1)
