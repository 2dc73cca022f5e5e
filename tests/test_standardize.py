"""Standardization against plain numpy in float64, and exact zeros where there is nothing to scale."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autotransfer.preprocessing import Preprocessing
from autotransfer.preprocessing.standardize import FITTED_SCALES, Standardize
from tiny import preprocessed

N, C, T = 23, 3, 17
SUBJECT = torch.arange(N) % 4
ROWS = np.array([1, 2, 5, 11, 20])
ALL = [*FITTED_SCALES, "none"]


def signal(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    rng = np.random.default_rng(0)
    scale, offset = np.array([1e-6, 1.0, 300.0]), np.array([-5e-6, 40.0, 0.0])
    X = rng.standard_normal((N, C, T)) * scale[:, None] * rng.uniform(0.5, 2, (N, 1, 1)) + offset[:, None]
    return torch.tensor(X, dtype=dtype)


def standardized(X: torch.Tensor, kind: str, subject: torch.Tensor = SUBJECT) -> torch.Tensor:
    """As windows of training subjects."""
    return preprocessed(X, subject, ROWS, standardize=kind)


def by_numpy(X: torch.Tensor, kind: str) -> np.ndarray:
    x = X.numpy().astype(np.float64)
    out = np.empty_like(x)
    for n in range(N):
        if kind == "trial":
            group = x[n : n + 1]
        elif kind in ("transductive", "online"):
            group = x[SUBJECT.numpy() == SUBJECT[n].item()]
        elif kind == "train":
            group = x[ROWS]
        else:
            return x
        mean, std = group.mean(axis=(0, 2)), group.std(axis=(0, 2))
        out[n] = (x[n] - mean[:, None]) / std[:, None]
    return out


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-11)])
@pytest.mark.parametrize("chunk", [1, 4 * C * T, 10**6])
def test_equals_numpy(
    kind: str, dtype: torch.dtype, tolerance: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotransfer.recordings.chunks.CHUNK_VALUES", chunk)
    X = signal(dtype)
    out = standardized(X, kind)
    assert out.dtype == dtype
    np.testing.assert_allclose(out.numpy(), by_numpy(X, kind), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", FITTED_SCALES)
@pytest.mark.parametrize("value", [0.0, 0.1, 1e8, -1e15, 1e-30, 36.6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_constant_channel_becomes_exactly_zero(kind: str, value: float, dtype: torch.dtype) -> None:
    X = signal(dtype)
    X[:, 1] = value
    out = standardized(X, kind)
    assert (out[:, 1] == 0).all()
    assert torch.isfinite(out).all()
    assert (out[:, 0].std(-1) > 0.1).all()
    stored = Preprocessing((Standardize(kind),)).fit(X, SUBJECT, [ROWS]).state_dict()
    if kind == "train":
        assert (stored["standardize.shift"][:, 1] == torch.tensor(value, dtype=dtype)).all()
        assert (stored["standardize.inv_std"][:, 1] == 0).all()


@settings(max_examples=80, deadline=None)
@given(
    hnp.arrays(np.float32, (3, 2, 8), elements=st.floats(-(2.0**49), 2.0**49, width=32)),
    st.sampled_from(["trial", "transductive", "train"]),
)
def test_any_admitted_value_gives_finite_numbers_of_zero_mean_and_unit_spread(x: np.ndarray, kind: str) -> None:
    X, subject = torch.tensor(x), torch.tensor([0, 1, 1])
    out = preprocessed(X, subject, standardize=kind)
    assert torch.isfinite(out).all()
    index = {"trial": torch.arange(3), "transductive": subject, "train": torch.zeros(3)}[kind]
    for group in index.unique():
        inside = out[index == group].double()  # (n, channels, times)
        raw = X[index == group].double()
        for c in range(2):
            if raw[:, c].amin() == raw[:, c].amax():
                assert (inside[:, c] == 0).all()
            elif raw[:, c].std() > 1e-6 * raw[:, c].abs().amax() and raw[:, c].std() > 1e-30:
                # float32 resolves the values to 6e-8 of their size, hence the spread to 6e-2 at worst
                assert inside[:, c].std(correction=0) == pytest.approx(1, abs=0.1)
                assert inside[:, c].mean().abs() < 0.1
