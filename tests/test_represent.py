"""Windows as features and as tangent vectors, against NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.linalg import logm
from sklearn.covariance import oas
from torch import Tensor

import autotransfer as at
from autotransfer.preprocessing.represent import REPRESENTATIONS, Representation
from autotransfer.preprocessing.represent.tangent import logarithm, logarithm_by_roots
from tiny import preprocessed, tiny

KINDS = ("features", "tangent")


def windows(n: int = 5, channels: int = 3, times: int = 40, seed: int = 0) -> Tensor:
    draw = torch.randn(n, channels, times, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return draw.cumsum(-1) + 0.5 * draw.flip(-2) + 3


def represented(X: Tensor, kind: str) -> Tensor:
    return preprocessed(X, torch.zeros(len(X), dtype=torch.int64), standardize="none", represent=kind)


def plain_features(X: NDArray[np.float64]) -> NDArray[np.float64]:
    means = np.stack([part.mean(2) for part in np.array_split(X, min(16, X.shape[2]), axis=2)], 2)
    centered = (X - X.mean(2, keepdims=True)) * np.hanning(X.shape[2])
    power = np.abs(np.fft.rfft(centered, axis=2)[..., 1:]) ** 2
    bands = np.stack([part.mean(2) for part in np.array_split(power, min(16, power.shape[2]), axis=2)], 2)
    spreads = np.stack([X.std(2), np.diff(X, axis=2).std(2)], 2)
    return np.concatenate([means, np.log(bands), np.log(spreads)], 2)


@pytest.mark.parametrize("times", [5, 16, 17, 40, 101])
def test_features_are_those_of_numpy(times: int) -> None:
    X = windows(times=times)
    np.testing.assert_allclose(represented(X, "features"), plain_features(X.numpy()), rtol=1e-9, atol=1e-9)


def test_tangent_vectors_are_those_of_scipy() -> None:
    """Every channel in units of its deviation, scikit-learn's OAS, SciPy's logarithm, one window at a time."""
    X = windows(channels=4)
    found = represented(X, "tangent")[:, 0]
    for window, own in zip(X.numpy(), found, strict=True):
        spread = window.std(1)
        unit = (window - window.mean(1, keepdims=True)) / spread[:, None]
        log = logm(oas(unit.T)[0])
        upper = [log[i, j] * (1 if i == j else np.sqrt(2)) for i in range(4) for j in range(i, 4)]
        np.testing.assert_allclose(own, [*np.log(spread), *upper], atol=1e-9)


def test_a_flat_channel_gives_the_same_features_at_any_level() -> None:
    X = windows().float()
    X[:, 1] = 0.1
    other = X.clone()
    other[:, 1] = 12345.678
    assert torch.equal(represented(X, "tangent"), represented(other, "tangent"))
    assert torch.equal(represented(X, "features")[:, 1, 16:], represented(other, "features")[:, 1, 16:])


@pytest.mark.parametrize("channels", [1, 2, 16, 40])
@pytest.mark.parametrize("smallest", [1e-5, 1e-2])
def test_the_logarithm_by_roots_is_the_logarithm(channels: int, smallest: float) -> None:
    """Of correlations with eigenvalues from the smallest that shrinkage leaves to all there is."""
    generator = torch.Generator().manual_seed(0)
    Q = torch.linalg.qr(torch.randn(channels, channels, generator=generator, dtype=torch.float64))[0]
    values = torch.logspace(np.log10(smallest), 0, channels, dtype=torch.float64)
    matrix = (Q * (values * channels / values.sum())) @ Q.T  # its trace is that of correlations
    expected = logm(matrix.numpy()).real
    np.testing.assert_allclose(logarithm(matrix), expected, atol=1e-9)
    np.testing.assert_allclose(logarithm_by_roots(matrix), expected, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_representation_is_computed_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    numbers = REPRESENTATIONS[kind].compute

    def counted(spec: Representation, x: Tensor) -> Tensor:
        nonlocal calls
        calls += len(x)
        return numbers(spec, x)

    monkeypatch.setattr(REPRESENTATIONS[kind], "compute", counted)
    rec = tiny()
    plain = at.Setting(encoder="linear", standardize="none", represent=kind)
    forms = [plain.replace(center=center, shrinkage=0.5) for center in ("none", "online", "transductive")]
    folds = at.leave_one_subject_out(rec)
    at.train(rec, [at.Job(setting, fold) for setting in (plain, *forms) for fold in folds], population=1)
    assert calls == rec.n_windows
