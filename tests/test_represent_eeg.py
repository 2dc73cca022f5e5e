"""Representations of rhythms and of EEG against SciPy and scikit-learn, one window at a time.

A canonical correlation is the cosine of the least angle between two subspaces.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.linalg import logm, subspace_angles
from scipy.signal import welch
from sklearn.covariance import oas

from autotransfer.preprocessing.represent import Represent
from autotransfer.preprocessing.represent.band_tangent import BANDS
from autotransfer.preprocessing.represent.bands import Bands, FineBands
from autotransfer.preprocessing.represent.rhythms import LOWER_LIMITS, whiten, whiten_by_elimination

SFREQ = 100.0


def windows(count: int = 3, channels: int = 4, times: int = 233) -> NDArray[np.float64]:
    """Noise of many colors about a level, with a rhythm of 13 Hz in some channels."""
    draw = np.random.default_rng(0)
    noise = draw.standard_normal((channels, channels)) @ draw.standard_normal((count, channels, times)).cumsum(-1)
    wave = draw.uniform(0, 3, (count, channels, 1)) * np.sin(2 * np.pi * 13 * np.arange(times) / SFREQ)
    return noise + wave + draw.standard_normal(noise.shape) + 7


def numbers(kind: str, X: NDArray[np.float64], *constants: float) -> NDArray[np.float64]:
    spec = Represent(kind, SFREQ, constants or None).representation
    given = torch.from_numpy(X)
    out = spec.compute(given)
    torch.testing.assert_close(spec.compute_in_graph(given), out, rtol=1e-7, atol=1e-7)
    assert out.shape[1:] == spec.shape(*X.shape[1:])
    return out.numpy()


def test_rhythms_are_canonical_correlations_in_sub_bands() -> None:
    X, frequencies = windows(), (8.0, 13.0, 26.0)
    out = numbers("rhythms", X, *frequencies)[:, 0]
    times = X.shape[-1]
    at = np.fft.rfftfreq(times, 1 / SFREQ)
    for window, own in zip(X, out, strict=True):
        expected = []
        for low in LOWER_LIMITS:
            kept = np.fft.rfft(window) * ((at >= low) & (at <= 1.5 * 26))
            filtered = np.fft.irfft(kept, n=times)
            for f in (f for f in frequencies if f >= low):
                angle = 2 * np.pi * f * np.arange(times) / SFREQ
                waves = np.stack([np.sin(angle), np.cos(angle)], 1)
                expected.append(np.cos(subspace_angles(filtered.T, waves - waves.mean(0))).max())
        np.testing.assert_allclose(own, expected, atol=1e-6)


def test_elimination_whitens_as_a_decomposition_does() -> None:
    draw = torch.Generator().manual_seed(0)
    A = torch.randn(2, 3, 9, 20, generator=draw, dtype=torch.float64)
    B = torch.randn(2, 3, 9, 5, generator=draw, dtype=torch.float64)
    covariance = A @ A.mT
    torch.testing.assert_close(whiten_by_elimination(covariance, B), whiten(covariance, B))
    torch.testing.assert_close(
        whiten(covariance, B).mT @ whiten(covariance, B), B.mT @ torch.linalg.solve(covariance, B)
    )


@pytest.mark.parametrize("kind", [Bands, FineBands])
@pytest.mark.parametrize("times", [80, 233])
def test_bands_are_those_of_welch(kind: type[Bands], times: int) -> None:
    """As recorded, and against the mean of all channels."""
    X = windows(times=times)
    length = min(times, 100)
    for window, own in zip(X, numbers(kind.name, X), strict=True):
        signals = np.concatenate([window, window - window.mean(0)])
        at, density = welch(signals, SFREQ, nperseg=length)
        inside = [(at >= low) & (at < high) for low, high in kind.bands]
        power = np.stack([density[:, own].mean(1) for own in inside if own.any()], 1)
        gain = SFREQ * np.sum(np.square(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length))) / 2
        np.testing.assert_allclose(own, 0.5 * np.log(gain * power), atol=1e-6)


def test_band_tangent_vectors_are_those_of_scipy() -> None:
    X = windows(times=333)
    step = 50
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(100) / 100)
    at = np.fft.rfftfreq(100, 1 / SFREQ)
    for window, own in zip(X, numbers("band_tangent", X)[:, 0], strict=True):
        cuts = [window[:, start : start + 100] for start in range(0, 333 - 99, step)]
        spectra = np.stack([np.fft.rfft((cut - cut.mean(1, keepdims=True)) * hann) for cut in cuts], 1)
        expected: list[float] = []
        for low, high in BANDS:
            inside = spectra[..., (at >= low) & (at < high)].reshape(4, -1)
            rows = np.concatenate([inside.real, inside.imag], 1)
            size = np.sqrt(np.square(rows).mean(1))
            log = logm(oas((rows / size[:, None]).T, assume_centered=True)[0])
            upper = [log[i, j] * (1 if i == j else np.sqrt(2)) for i in range(4) for j in range(i, 4)]
            expected += [*np.log(size), *upper]
        np.testing.assert_allclose(own, expected, atol=1e-8)
