"""Alignment and online standardization have known results, and subjects are independent in training."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import autotransfer as at
from autotransfer.folds import Fold
from autotransfer.preprocessing import Preprocessing
from autotransfer.preprocessing import align as align_module
from autotransfer.preprocessing.align import SHRINKAGE, Align, covariance, inverse_root
from autotransfer.preprocessing.standardize import PRIOR_WINDOWS
from tiny import people, preprocessed

ONLINE = [("online", "none"), ("trial", "online"), ("train", "online"), ("online", "online"), ("none", "online")]
MIXED = [*ONLINE, ("online", "transductive"), ("transductive", "online")]


def by_hand(rec: at.Recordings, kind: str, align: str, fold: Fold, person: int) -> np.ndarray:
    """The same by a loop over windows in plain numpy, for one held-out subject."""
    X, who = rec.X.double().numpy(), rec.subject.numpy()
    train = np.unique(who[fold.train])

    def second(x: np.ndarray) -> np.ndarray:
        S = x @ x.T / x.shape[1]
        return (1 - SHRINKAGE) * S + SHRINKAGE * np.trace(S) / len(S) * np.eye(len(S))

    def whole(x: np.ndarray) -> np.ndarray:
        if kind == "online":
            return (x - x.mean((0, 2), keepdims=True)) / x.std((0, 2), keepdims=True)
        if kind == "train":
            own = X[fold.train]
            return (x - own.mean((0, 2))[:, None]) / own.std((0, 2))[:, None]
        if kind == "trial":
            return (x - x.mean(2, keepdims=True)) / x.std(2, keepdims=True)
        return x

    shift0 = np.mean([X[who == s].mean((0, 2)) for s in train], 0)
    variance0 = np.mean([X[who == s].var((0, 2)) for s in train], 0)
    R0 = np.mean([np.mean([second(x) for x in whole(X[who == s])], 0) for s in train], 0)
    m, own, total, out = PRIOR_WINDOWS, X[who == person], np.zeros_like(R0), []
    for i, x in enumerate(own):
        n, seen = i + 1, own[: i + 1]
        if kind == "online":
            shift = (m * shift0 + n * seen.mean((0, 2))) / (m + n)
            variance = (m * variance0 + n * seen.var((0, 2))) / (m + n)
            z = (x - shift[:, None]) / np.sqrt(variance)[:, None]
        else:
            z = whole(x[None])[0]
        if align == "online":
            total = total + second(z)
            values, vectors = np.linalg.eigh((m * R0 + total) / (m + n))
            z = vectors @ np.diag(values**-0.5) @ vectors.T @ z
        out.append(z)
    return np.stack(out)


# the mathematics


@pytest.mark.parametrize("shrinkage", [0.0, SHRINKAGE])
def test_after_whole_subject_alignment_the_mean_covariance_is_the_identity(
    shrinkage: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(align_module, "SHRINKAGE", shrinkage)
    rec = people(channels=6)
    X = rec.X.double()
    standardized = preprocessed(X, rec.subject, standardize="transductive")
    found = preprocessed(X, rec.subject, standardize="transductive", align="transductive")
    fitted = Preprocessing((Align("transductive"),)).fit(standardized, rec.subject, [np.arange(rec.n_windows)])
    for person in range(rec.n_subjects):
        rows = rec.subject == person
        W, Z, aligned = fitted.align.inverse_roots[0, person], standardized[rows], found[rows]
        torch.testing.assert_close(W, W.T)
        near = {"atol": 1e-8, "rtol": 0}
        torch.testing.assert_close(W @ covariance(Z).mean(0) @ W, torch.eye(6).double(), **near)
        mean = (aligned @ aligned.mT / 24).mean(0)
        if shrinkage:  # directions without much variance are left small
            assert 1 < torch.linalg.eigvalsh(mean).max() < 1 + 2 * shrinkage
        else:
            torch.testing.assert_close(mean, torch.eye(6).double(), **near)


def test_more_channels_than_rank_stay_finite() -> None:
    """61 channels, 128 samples, an average reference and a flat channel."""
    X = torch.randn(4, 61, 128, generator=torch.Generator().manual_seed(0))
    X = X - X.mean(1, keepdim=True)
    X[:, 7] = 0
    out = preprocessed(X, torch.zeros(4, dtype=torch.long), standardize="none", align="transductive")
    assert torch.isfinite(out).all()
    assert out[:, 7].abs().max() < 1e-5
    assert torch.linalg.eigvalsh((out.double() @ out.double().mT / 128).mean(0)).max() < 1.2  # no noise blown up
    assert torch.equal(inverse_root(torch.zeros(2, 3, 3).double()), torch.eye(3).double().expand(2, 3, 3))


def followed(rec: at.Recordings, kind: str, align: str, fold: Fold, person: int) -> torch.Tensor:
    """Windows of a new subject, prepared in order by what was fitted on the fold's training subjects."""
    way = Preprocessing.from_values({"standardize": kind, "align": align})
    return (
        way.fit(rec.X.double(), rec.subject, [fold.train])
        .start_subject()
        .feed(rec.X[rec.subject == person].double())[0]
    )


@pytest.mark.parametrize(("kind", "align"), ONLINE)
def test_online_is_the_formula(kind: str, align: str) -> None:
    rec = people()
    fold = at.leave_one_subject_out(rec)[1]
    for person in (0, 1):
        found = followed(rec, kind, align, fold, person)
        np.testing.assert_allclose(found.numpy(), by_hand(rec, kind, align, fold, person), atol=1e-6)
