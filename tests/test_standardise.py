"""Standardisation against plain numpy in float64, and exact zeros where there is nothing to scale."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autotransfer.errors import UserError
from autotransfer.recordings.standardise import affine, apply, standardise
from autotransfer.settings import STANDARDISATIONS

N, C, T = 23, 3, 17
SUBJECT = torch.arange(N) % 4
ROWS = torch.tensor([1, 2, 5, 11, 20])


def signal(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    rng = np.random.default_rng(0)
    scale, offset = np.array([1e-6, 1.0, 300.0]), np.array([-5e-6, 40.0, 0.0])
    X = rng.standard_normal((N, C, T)) * scale[:, None] * rng.uniform(0.5, 2, (N, 1, 1)) + offset[:, None]
    return torch.tensor(X, dtype=dtype)


def by_numpy(X: torch.Tensor, kind: str) -> np.ndarray:
    x = X.numpy().astype(np.float64)
    out = np.empty_like(x)
    for n in range(N):
        if kind == "trial":
            group = x[n : n + 1]
        elif kind in ("subject", "running"):
            group = x[SUBJECT.numpy() == SUBJECT[n].item()]
        elif kind == "channel":
            group = x[ROWS.numpy()]
        else:
            return x
        mean, std = group.mean(axis=(0, 2)), group.std(axis=(0, 2))
        out[n] = (x[n] - mean[:, None]) / std[:, None]
    return out


@pytest.mark.parametrize("kind", STANDARDISATIONS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-11)])
@pytest.mark.parametrize("chunk", [1, 4 * C * T, 10**6])
def test_equals_numpy(
    kind: str, dtype: torch.dtype, tolerance: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotransfer.recordings.chunks.CHUNK_VALUES", chunk)
    X = signal(dtype)
    out = standardise(X, SUBJECT, kind, rows=ROWS)
    assert out.dtype == dtype
    np.testing.assert_allclose(out.numpy(), by_numpy(X, kind), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("kind", "groups"), [("trial", N), ("subject", 4), ("channel", 1), ("none", 1)])
def test_shapes_and_the_formula(kind: str, groups: int) -> None:
    X = signal()
    shift, gain, index = affine(X, SUBJECT, kind, rows=ROWS)
    assert shift.shape == gain.shape == (groups, C)
    assert shift.dtype == gain.dtype == X.dtype
    assert index.shape == (N,)
    assert index.dtype == torch.int64
    rows = torch.tensor([[3, 8], [0, 22]])  # leading axes: a population's batches
    out = apply(X[rows], shift[index[rows]], gain[index[rows]])
    assert torch.equal(out, standardise(X, SUBJECT, kind, rows=ROWS)[rows])
    for row, n in zip(out.flatten(0, 1), rows.flatten(), strict=True):
        assert torch.equal(row, (X[n] - shift[index[n]][:, None]) * gain[index[n]][:, None])


def test_none_changes_nothing() -> None:
    assert torch.equal(standardise(signal(), None, "none"), signal())


@pytest.mark.parametrize("kind", ["trial", "subject", "channel"])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e8, -1e15, 1e-30, 36.6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_constant_channel_becomes_exactly_zero(kind: str, value: float, dtype: torch.dtype) -> None:
    X = signal(dtype)
    X[:, 1] = value
    shift, gain, index = affine(X, SUBJECT, kind, rows=ROWS)
    out = apply(X, shift[index], gain[index])
    assert (out[:, 1] == 0).all()
    assert torch.isfinite(out).all()
    assert (out[:, 0].std(-1) > 0.1).all()
    assert (shift[:, 1] == torch.tensor(value, dtype=dtype)).all()


def test_a_channel_constant_in_one_trial_is_zero_there_only() -> None:
    X = signal()
    X[5, 2] = 0.1
    out = standardise(X, None, "trial")
    assert (out[5, 2] == 0).all()
    others = torch.arange(N) != 5
    assert torch.equal(out[others], standardise(signal(), None, "trial")[others])


def test_channel_uses_the_training_rows_only_and_subject_the_own_trials_only() -> None:
    X = signal()
    changed = X.clone()
    changed[0] *= 100  # not a training row; of subject 0
    for part, same in zip(
        affine(X, None, "channel", rows=ROWS), affine(changed, None, "channel", rows=ROWS), strict=True
    ):
        assert torch.equal(part, same)
    mask = torch.zeros(N, dtype=torch.bool)
    mask[ROWS] = True
    assert torch.equal(affine(X, None, "channel", rows=mask)[1], affine(X, None, "channel", rows=ROWS)[1])
    before, after = affine(X, SUBJECT, "subject")[1], affine(changed, SUBJECT, "subject")[1]
    assert torch.equal(before[1:], after[1:])
    assert not torch.equal(before[0], after[0])


def test_a_spread_too_small_to_invert_stays_finite() -> None:
    X = signal()
    X[:, 0] = 0
    X[:, 0, 0] = 1e-44
    assert torch.isfinite(standardise(X, None, "trial")).all()


def test_a_subject_without_trials_gives_finite_numbers() -> None:
    shift, gain, _ = affine(signal(), SUBJECT + 2, "subject")
    assert shift.shape == (6, C)
    assert torch.isfinite(shift).all()
    assert torch.isfinite(gain).all()


def test_mistakes() -> None:
    X = signal()
    with pytest.raises(UserError, match="unknown standardise 'z'; choose from 'trial', 'channel', 'subject', 'none'"):
        affine(X, SUBJECT, "z")
    with pytest.raises(UserError, match="needs the training rows"):
        affine(X, SUBJECT, "channel")
    with pytest.raises(UserError, match="no training rows"):
        affine(X, SUBJECT, "channel", rows=ROWS[:0])
    with pytest.raises(UserError, match="needs the subject"):
        affine(X, None, "subject")
    with pytest.raises(UserError, match="needs the subject"):
        affine(X, SUBJECT[:-1], "subject")


@settings(max_examples=80, deadline=None)
@given(
    hnp.arrays(np.float32, (3, 2, 8), elements=st.floats(-(2.0**49), 2.0**49, width=32)),
    st.sampled_from(["trial", "subject", "channel"]),
)
def test_any_admitted_value_gives_finite_numbers_of_zero_mean_and_unit_spread(x: np.ndarray, kind: str) -> None:
    X = torch.tensor(x)
    shift, gain, index = affine(X, torch.tensor([0, 1, 1]), kind, rows=torch.arange(3))
    out = apply(X, shift[index], gain[index])
    assert torch.isfinite(out).all()
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
