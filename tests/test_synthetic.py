"""The generator keeps what its parameters promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import LeaveOneGroupOut, StratifiedKFold, cross_val_score
from threadpoolctl import threadpool_limits

from autotransfer.errors import UserError
from autotransfer.recordings import Recordings, synthetic
from tiny import preprocessed

CHANCE = 1 / 8  # of the default eight subjects


def features(rec: Recordings, kind: str = "trial") -> np.ndarray:
    """Log spectrum of each channel and correlations between channels: (N, features)."""
    X = preprocessed(rec.X, rec.subject, standardize=kind)
    spectrum = torch.fft.rfft(X).abs().square()[..., 1:37]
    power = spectrum.unflatten(-1, (12, 3)).mean(-1).add(1e-3).log()
    upper = torch.triu_indices(rec.n_channels, rec.n_channels, offset=1)
    products = (X @ X.transpose(1, 2) / rec.n_times)[:, upper[0], upper[1]]
    return torch.cat([power.flatten(1), products], dim=1).numpy()


def accuracy(x: np.ndarray, target: torch.Tensor, groups: torch.Tensor | None = None) -> float:
    probe = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1)
    folds = StratifiedKFold(4, shuffle=True, random_state=0) if groups is None else LeaveOneGroupOut()
    with threadpool_limits(1):  # small matrices: threads that wait for each other take ten times as long
        return float(cross_val_score(probe, x, target, groups=groups, cv=folds).mean())


def test_sizes_and_repeatability() -> None:
    rec = synthetic(5, 3, 4, 6, 40, 50.0, seed=3)
    assert (rec.n_windows, rec.n_channels, rec.n_times, rec.n_subjects, rec.n_classes) == (60, 6, 40, 5, 3)
    assert rec.sfreq == 50.0
    assert torch.equal(rec.X, synthetic(5, 3, 4, 6, 40, 50.0, seed=3).X)
    assert not torch.equal(rec.X, synthetic(5, 3, 4, 6, 40, 50.0, seed=4).X)
    for s in range(5):
        assert torch.bincount(rec.y[rec.subject == s]).tolist() == [4, 4, 4]
    assert synthetic(3, 5, 1, 1, 8).n_channels == 1  # fewer channels than classes, one window of each


def test_without_shift_only_classes_can_be_classified() -> None:
    rec = synthetic(subject_shift=0.0)
    for kind in ("trial", "none"):
        assert accuracy(features(rec, kind), rec.subject) < 2 * CHANCE
    assert accuracy(features(rec), rec.y, rec.subject) > 0.95


def test_subject_shift_survives_standardization() -> None:
    found = [accuracy(features(rec), rec.subject) for rec in (synthetic(subject_shift=d) for d in (0.0, 0.2, 1.0))]
    assert found[0] < 2 * CHANCE
    assert found[0] + 0.2 < found[1]
    assert found[2] > 0.9
    by_default = synthetic()
    assert accuracy(features(by_default), by_default.subject) > 0.7


def test_subject_shift_makes_an_unseen_subject_harder() -> None:
    def gap(dial: float) -> float:
        rec = synthetic(subject_shift=dial, n_classes=4, noise=1.5, windows_per_class=15)
        x = features(rec)
        return accuracy(x, rec.y) - accuracy(x, rec.y, rec.subject)

    assert gap(0.0) < 0.03
    assert gap(1.0) > 0.1


def test_the_class_signal_has_the_documented_frequency_and_power() -> None:
    rec = synthetic(subject_shift=0.0, noise=0.0, n_times=400, sfreq=100.0)
    power = torch.fft.rfft(rec.X.double()).abs().square().sum(1) / (400**2 / 2)  # (N, frequencies)
    for n in range(0, rec.n_windows, 25):
        peaks = power[n].topk(2).indices.sort().values * 100 / 400
        assert peaks.tolist() == [6.0, [10.0, 25.0][int(rec.y[n])]]
        assert power[n].topk(2).values.tolist() == pytest.approx([1.0, 1.0], abs=1e-4)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"n_subjects": 2}, "there are 2 subjects"),
        ({"n_classes": 1}, "at least 2 classes"),
        ({"n_times": 7}, "at least 8 samples"),
    ],
)
def test_mistakes(options: dict[str, float], text: str) -> None:
    with pytest.raises(UserError, match=text):
        synthetic(**options)
