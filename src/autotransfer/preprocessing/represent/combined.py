"""combined: statistics, intervals and speed together, for trees and linear models.

    statistics   those of `statistics`
    intervals    of each channel, between upward crossings of the mean and between steep rises, such as heartbeats
    speed        norm over channels of the difference of successive samples, such as that of the eye from x and y

A rise is steep if the change over a hundredth of the window exceeds its standard deviation. Speed has its logarithm in
16 segments, the logarithm of the norm of the mean difference in each segment, which is smaller if the direction
changes, and statistics. Channels with large differences dominate it if channels have several units.
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

OF_INTERVALS = 16  # features of a channel
FLOOR = 0.01  # times the mean speed of the window, added before logarithms
LEAST = 1e-12  # smallest variance; less is a rounding error


@dataclass(frozen=True)
class Combined(Statistics):
    display_name = "statistics, intervals and speed"
    min_samples: ClassVar[int] = Statistics.min_samples + 1  # speed has one sample less

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        of_speed = 2 * min(N_SEGMENTS, times - 1) + N_FEATURES
        return 1, super().shape(channels, times)[1] + OF_INTERVALS * channels + of_speed

    def compute(self, x: Tensor) -> Tensor:
        return _combine(x, power_spectrum)

    def compute_in_graph(self, x: Tensor) -> Tensor:
        return _combine(x, power_spectrum_in_graph)


def _combine(x: Tensor, power_of: Callable[[Tensor], Tensor]) -> Tensor:
    """Map (..., C, T) to (..., 1, S), float64. power_of: as of `compute_features`."""
    exact = x.to(torch.float64)
    step = exact[..., 1:] - exact[..., :-1]
    speed = _norm(step)
    least = FLOOR * speed.mean(-1, keepdim=True)
    paths = [log(length + least) for length in (segment_means(speed), _norm(segment_means(step)))]
    parts = [compute_statistics(x, power_of), _describe_rhythm(x), *paths, compute_statistics(speed, power_of)]
    return torch.cat(parts, -1)


def _norm(x: Tensor) -> Tensor:
    """Return the norm over channels (..., 1, T) of (..., C, T)."""
    return (x.square().sum(-2, keepdim=True) + torch.finfo(x.dtype).tiny).sqrt()


def _describe_rhythm(x: Tensor) -> Tensor:
    """Return features (..., 1, 16 C) of the intervals between crossings and between rises of windows (..., C, T)."""
    lag = max(1, int(x.shape[-1]) // 100)
    signal, _ = subtract_means(x)
    rise, _ = subtract_means(signal[..., lag:] - signal[..., :-lag])
    variance = rise.square().mean(-1, keepdim=True) + LEAST * signal.square().mean(-1, keepdim=True)
    steep = rise - (variance + torch.finfo(rise.dtype).tiny).sqrt()
    return torch.cat([describe_intervals(signal), describe_intervals(steep)], -1).flatten(-2)[..., None, :]


def describe_intervals(signal: Tensor) -> Tensor:
    """Return features (..., 8) of the intervals between upward crossings of zero of signals (..., T).

    They are crossings per sample; the log mean interval as a share of the window; in mean intervals, their deviation,
    root mean square and mean absolute difference of successive ones, longest and shortest; and their autocorrelation.
    """
    times = int(signal.shape[-1])
    crossing = (signal[..., :-1] <= 0) & (signal[..., 1:] > 0)
    place = torch.arange(times - 1, dtype=signal.dtype, device=signal.device)
    places = torch.where(crossing, place, float(times)).sort(-1).values[..., : times // 2 + 1]
    gap, is_gap = places[..., 1:] - places[..., :-1], places[..., 1:] < times
    count, pairs = (mask.sum(-1, keepdim=True).clamp(min=1) for mask in (is_gap, is_gap[..., 1:]))
    gaps = torch.where(is_gap, gap, 0.0)
    total = gaps.sum(-1, keepdim=True)
    mean = torch.where(total > 0, total / count, float(times))  # no interval: as long as the window
    away = torch.where(is_gap, gap / mean - 1, 0.0)
    change = torch.where(is_gap[..., 1:], away[..., 1:] - away[..., :-1], 0.0)
    variance = away.square().sum(-1, keepdim=True) / count + LEAST
    features = [
        crossing.to(signal.dtype).mean(-1, keepdim=True), log(mean / times), variance.sqrt(),
        (change.square().sum(-1, keepdim=True) / pairs + LEAST).sqrt(), change.abs().sum(-1, keepdim=True) / pairs,
        gaps.amax(-1, keepdim=True) / mean, torch.where(is_gap, gap, float(times)).amin(-1, keepdim=True) / mean,
        (away[..., 1:] * away[..., :-1]).sum(-1, keepdim=True) / pairs / variance,
    ]  # fmt: skip
    return torch.cat(features, -1)
