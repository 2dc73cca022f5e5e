"""Representations of muscle activity, against what LibEMG 2.0.3 computes, written out here window by window: LibEMG
itself needs an earlier NumPy and drivers of armbands."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from autotransfer.preprocessing.represent.tdpsd import FLOOR
from test_represent import represented

Signal = NDArray[np.float64]


def windows(times: int = 41) -> Tensor:
    """(6, 3, times) of several amplitudes and rhythms, far from 0."""
    draw = torch.Generator().manual_seed(0)
    noise = torch.randn(6, 3, times, generator=draw, dtype=torch.float64)
    return (noise + 0.8 * noise.roll(1, -1)) * torch.tensor([0.01, 1.0, 30.0], dtype=torch.float64)[:, None] + 5


def check(kind: str, numbers: list[object], times: int = 41) -> None:
    """numbers: functions of one channel of one window with mean 0, in the order of the representation."""
    X = windows(times)
    expected = [
        [[of(channel - channel.mean()) for of in numbers] for channel in window]  # type: ignore[operator]
        for window in X.numpy()
    ]
    np.testing.assert_allclose(represented(X, kind), expected, rtol=1e-9, atol=1e-9)


def log_mav(x: Signal) -> float:
    return float(np.log(sum(abs(v) for v in x) / len(x)))


def zero_crossings(x: Signal) -> float:
    return sum(np.sign(a) * np.sign(b) == -1 for a, b in itertools.pairwise(x)) / (len(x) - 1)


def slope_sign_changes(x: Signal) -> float:
    """LibEMG counts flat stretches, too; here are none."""
    return sum((x[i] - x[i - 1]) * (x[i] - x[i + 1]) >= 0 for i in range(1, len(x) - 1)) / (len(x) - 2)


def log_length(x: Signal) -> float:
    return float(np.log(sum(abs(b - a) for a, b in itertools.pairwise(x)) / (len(x) - 1)))


def l_scale(x: Signal) -> float:
    """Half the mean distance of two different samples."""
    return float(np.log(np.mean([abs(a - b) for a, b in itertools.combinations(x, 2)]) / 2))


def mean_root(x: Signal) -> float:
    return float(np.log(abs(np.mean(np.sqrt(x.astype(complex))))))


def willison(x: Signal) -> float:
    return float(np.mean(np.abs(np.diff(x)) > x.std()))


def log_rms(x: Signal) -> float:
    return float(np.log(np.sqrt(np.mean(x**2))))


def log_rms_of_slope(x: Signal) -> float:
    return log_rms(np.diff(x))


HUDGINS = [log_mav, zero_crossings, slope_sign_changes, log_length]
LS4 = [l_scale, log_length, mean_root, willison]


@pytest.mark.parametrize("times", [9, 41, 200])
def test_groups_of_libemg(times: int) -> None:
    check("ls9", [*LS4, zero_crossings, log_rms, log_mav, log_rms_of_slope], times)


def burg(x: Signal, order: int) -> Signal:
    """As textbooks have it, sample by sample; librosa's lpc, which LibEMG calls, is the same."""
    n, a = len(x), [1.0]
    f, b = list(x), list(x)
    for m in range(1, order + 1):
        above = sum(f[t] * b[t - 1] for t in range(m, n))
        below = sum(f[t] ** 2 + b[t - 1] ** 2 for t in range(m, n))
        k = -2 * above / below
        f, b = (
            [f[t] + k * b[t - 1] if t >= m else 0.0 for t in range(n)],
            [b[t - 1] + k * f[t] if t >= m else 0.0 for t in range(n)],
        )
        padded = [*a, 0.0]
        a = [padded[i] + k * padded[m - i] for i in range(m + 1)]
    return np.array(a[1:])


@pytest.mark.parametrize("times", [9, 41, 200])
def test_autoregression_is_burgs(times: int) -> None:
    X = windows(times)
    found = represented(X, "tdar")
    first = [[[feature(channel - channel.mean()) for feature in HUDGINS] for channel in w] for w in X.numpy()]
    np.testing.assert_allclose(found[..., :4], first, rtol=1e-9, atol=1e-9)
    expected = [[burg(channel - channel.mean(), 4) for channel in window] for window in X.numpy()]
    np.testing.assert_allclose(found[..., 4:], expected, rtol=1e-9, atol=1e-9)


def six(x: Signal) -> list[float]:
    """LibEMG's functions M0, M2, M4, SPARSI, IRF and WLF before they are fused."""
    n = len(x)
    d1, d2 = np.diff(x), np.diff(x, 2)
    m0 = (np.sqrt(np.sum(x**2)) / (n - 1)) ** 0.1 / 0.1
    m2 = np.sqrt(np.sum(d1**2) / (n - 1)) ** 0.1 / 0.1
    m4 = np.sqrt(np.sum(d2**2) / (n - 1)) ** 0.1 / 0.1
    sparseness = np.sqrt(np.abs((m0 - m2) * (m0 - m4))) / m0
    lengths = np.sqrt(np.abs(d1).sum() / np.abs(d2).sum())
    values = [m0, abs(m0 - m2), abs(m0 - m4), sparseness, m2 / np.sqrt(m0 * m4), lengths]
    return [float(np.log(value)) for value in values]


@pytest.mark.parametrize("times", [9, 41, 200])
def test_tdpsd_is_that_of_libemg_in_units_of_the_deviation(times: int) -> None:
    def fused(place: int) -> object:
        def number(x: Signal) -> float:
            unit = x / x.std()
            a, b = six(unit)[place], six(np.log(unit**2 + FLOOR))[place]
            return -2 * a * b / (a**2 + b**2)

        return number

    check("tdpsd", [*(fused(place) for place in range(6)), log_rms], times)
