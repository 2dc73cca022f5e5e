"""Statistics of a window against NumPy and SciPy, one channel at a time."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.signal import find_peaks
from scipy.stats import entropy, kurtosis, skew

from autotransfer.preprocessing.represent.base import N_SEGMENTS
from autotransfer.preprocessing.represent.combined import FLOOR, Combined
from autotransfer.preprocessing.represent.statistics import LAGS, N_FEATURES, QUANTILES, Statistics


def expected(x: NDArray[np.float64]) -> list[float]:
    """Of one channel (T,)."""
    mean, spread = x.mean(), x.std()
    unit = (x - mean) / spread
    at = np.quantile(unit, QUANTILES)
    trend = np.mean(unit * np.linspace(-1, 1, len(x)))
    power = np.abs(np.fft.rfft(unit * np.hanning(len(x))))[1:] ** 2
    share, frequency = power / power.sum(), np.arange(1, len(power) + 1) / len(power)
    center = np.sum(share * frequency)
    first, second = np.diff(x), np.diff(x, 2)
    between = len(x) - 2
    return [
        mean, *np.quantile(x, QUANTILES),
        np.log(spread), at[3] - at[1], at[4] - at[0], trend, trend * spread,
        skew(x), np.log1p(kurtosis(x, fisher=False)),
        np.log(np.abs(first).mean()), 0.5 * np.log(np.mean(first**2)), 0.5 * np.log(np.mean(second**2)),
        entropy(share) / np.log(len(share)), center, np.sqrt(np.sum(share * (frequency - center) ** 2)),
        len(find_peaks(x)[0]) / between, len(find_peaks(unit, height=0.5)[0]) / between,
        np.mean(np.diff(np.sign(unit)) != 0),
        *(np.mean(unit[lag:] * unit[:-lag]) for lag in LAGS),
    ]  # fmt: skip


def test_statistics_are_those_of_scipy() -> None:
    draw = np.random.default_rng(0)
    X = draw.gamma(2.0, size=(4, 3, 90)).cumsum(-1) - 2 * np.arange(90) + draw.standard_normal((4, 1, 90))
    out = Statistics().compute(torch.from_numpy(X))
    assert out.shape[1:] == Statistics().shape(3, 90)
    torch.testing.assert_close(Statistics().compute_in_graph(torch.from_numpy(X)), out)
    for window, own in zip(X, out[:, 0].numpy(), strict=True):
        for place, channel in enumerate(window):
            start = N_FEATURES * place
            np.testing.assert_allclose(own[start : start + N_FEATURES], expected(channel), rtol=1e-7, atol=1e-9)
        correlation = np.corrcoef(window)[np.triu_indices(3, 1)]
        np.testing.assert_allclose(own[3 * N_FEATURES :], np.arctanh(correlation), atol=1e-9)


def intervals(signal: NDArray[np.float64]) -> list[float]:
    """Between upward crossings of zero of one signal (T,)."""
    before, times = signal[:-1] <= 0, len(signal)
    places = np.flatnonzero(before & (signal[1:] > 0))
    gaps = np.diff(places)
    share = gaps / gaps.mean()
    steps, away = np.diff(share), share - 1
    memory = np.mean(away[1:] * away[:-1]) / share.var()
    return [
        len(places) / (times - 1), np.log(gaps.mean() / times), share.std(), np.sqrt(np.mean(steps**2)),
        np.abs(steps).mean(), share.max(), share.min(), memory,
    ]  # fmt: skip


def test_combined_has_statistics_intervals_and_speed() -> None:
    draw = np.random.default_rng(0)
    X = np.sin(np.arange(220) ** 1.1) + 0.5 * draw.standard_normal((4, 2, 220))
    out = Combined().compute(torch.from_numpy(X))
    assert out.shape[1:] == Combined().shape(2, 220)
    torch.testing.assert_close(Combined().compute_in_graph(torch.from_numpy(X)), out)
    for window, own in zip(X, out[:, 0].numpy(), strict=True):
        step = np.diff(window)
        speed = np.hypot(*step)
        wanted = [Statistics().compute(torch.from_numpy(window)).numpy().ravel()]
        for channel in window:
            rise = channel[2:] - channel[:-2]
            wanted += [intervals(channel - channel.mean()), intervals(rise - rise.mean() - rise.std())]
        paths = [part.mean() for part in np.array_split(speed, N_SEGMENTS)]
        nets = [np.hypot(*part.mean(1)) for part in np.array_split(step, N_SEGMENTS, axis=1)]
        wanted += [np.log(np.array(lengths) + FLOOR * speed.mean()) for lengths in (paths, nets)]
        np.testing.assert_allclose(own, np.concatenate([*wanted, expected(speed)]), rtol=1e-6, atol=1e-8)


def test_windows_without_events_have_finite_features() -> None:
    flat = torch.zeros(1, 2, 40)
    line = torch.arange(40.0).expand(1, 2, 40)
    for window in (flat, line, 1e-30 * line, 1e30 * line):
        assert Combined().compute(window).isfinite().all()
