"""Linear models fitted in closed form equal scikit-learn and stack like other members."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.covariance import ledoit_wolf

import autotransfer as at
from autotransfer.folds import Fold
from autotransfer.runs.checkpoint import restore_population, save_checkpoint
from autotransfer.runs.executor import serialize_outcome
from autotransfer.training.closed_form import ABSENT_LOGIT, ClassMoments, ClosedFormTrainer, make_population
from autotransfer.training.outcomes import make_outcome
from autotransfer.training.windows import prepare_windows
from tiny import people, tiny

pytestmark = pytest.mark.usefixtures("brief_results")

CPU = torch.device("cpu")
WAYS: dict[str, dict[str, Any]] = {
    "raw": {"encoder": "linear", "standardize": "train"},
    "features": {"encoder": "linear", "standardize": "none", "represent": "features"},
    "tangent": {"encoder": "linear", "standardize": "none", "delays": 2, "lag": 3, "represent": "tangent"},
    "transductive": {"encoder": "linear", "standardize": "none", "represent": "tangent", "center": "transductive"},
    "online": {"encoder": "linear", "standardize": "none", "represent": "features", "center": "online"},
    "templates": {"encoder": "templates", "standardize": "train"},
    "evoked": {"encoder": "evoked", "standardize": "train"},
    "trees": {"encoder": "trees", "standardize": "none", "represent": "statistics", "trees": 10},
    "boosting": {"encoder": "boosting", "standardize": "none", "represent": "statistics", "trees": 10},
    "fitted": {"encoder": "linear", "standardize": "trial", "represent": "minirocket", "center": "online"},
}
EVERY = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def jobs_of(rec: at.Recordings, **values: Any) -> list[at.Job]:
    return [at.Job(at.Setting(**values), fold) for fold in at.leave_one_subject_out(rec)]


# the solution


def rows(n: int, dim: int, classes: int = 3, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    draw = np.random.default_rng(seed)
    y = draw.integers(0, classes, n)
    means = draw.standard_normal((classes, dim))
    return means[y] + draw.standard_normal((n, dim)) @ draw.standard_normal((dim, dim)), y


def solved(z: NDArray[np.float64], y: NDArray[np.int64], classes: int = 3) -> ClassMoments:
    return ClassMoments(torch.from_numpy(z), torch.from_numpy(y), classes)


@pytest.mark.parametrize(("n", "dim"), [(60, 8), (300, 20), (30, 50), (9, 200)])
def test_shrinkage_is_ledoit_and_wolf_s(n: int, dim: int) -> None:
    z, y = rows(n, dim)
    within = z - np.stack([z[y == k].mean(0) for k in range(3)])[y]
    assert solved(z, y).estimate_shrinkage() == pytest.approx(ledoit_wolf(within, assume_centered=True)[1], abs=1e-12)


@pytest.mark.parametrize("share", [0.01, 0.5, 1.0, "auto"])
@pytest.mark.parametrize(("n", "dim"), [(300, 20), (30, 50)])
def test_the_classifier_follows_from_the_formula(n: int, dim: int, share: float | str) -> None:
    """With fewer rows than numbers it is solved among the rows."""
    z, y = rows(n, dim)
    found = solved(z, y)
    assert found.by_rows == (n < dim)
    means = np.stack([z[y == k].mean(0) for k in range(3)])
    S = (z - means[y]).T @ (z - means[y]) / n
    a = found.estimate_shrinkage() if isinstance(share, str) else share
    inverse = np.linalg.inv((1 - a) * S + a * np.trace(S) / dim * np.eye(dim))
    weight, bias = found.solve(share)
    np.testing.assert_allclose(weight, means @ inverse, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(bias, -0.5 * np.einsum("kd,de,ke->k", means, inverse, means), rtol=1e-6, atol=1e-8)


def test_a_class_without_rows_is_never_predicted() -> None:
    z, y = rows(50, 4, classes=2)
    weight, bias = solved(z, y, classes=3).solve("auto")
    assert bias[2] == ABSENT_LOGIT
    assert weight.isfinite().all()
    assert not weight[2].any()


@pytest.mark.parametrize("shape", [(20, 5), (5, 20)])
@pytest.mark.parametrize("share", [0.0, "auto"])
def test_rows_without_spread_give_finite_weights(shape: tuple[int, int], share: float | str) -> None:
    z, y = np.zeros(shape), np.arange(shape[0]) % 2
    for own in (z, z + y[:, None], np.where(np.arange(shape[1]) == 1, rows(*shape)[0], z)):
        weight, bias = solved(own, y, 2).solve(share)
        assert weight.isfinite().all()
        assert bias.isfinite().all()


# members


@EVERY
def test_a_stacked_member_is_the_same_alone(way: dict[str, Any]) -> None:
    rec = people()
    together, alone = (at.train(rec, jobs_of(rec, **way), population=size) for size in (5, 1))
    assert {outcome.population for outcome in together} == {5}
    for found, expected in zip(together, alone, strict=True):
        assert found.failure is None
        assert found.history.keys() == expected.history.keys()
        for name, values in found.history.items():
            assert np.isfinite(values).all()
            np.testing.assert_allclose(values, expected.history[name], rtol=0, atol=1e-5)
        assert found.test_score == expected.test_score
        for name, tensor in found.state.items():
            torch.testing.assert_close(tensor, expected.state[name], rtol=1e-5, atol=1e-6)


def test_members_of_one_stack_differ_in_shrinkage() -> None:
    rec = people()
    fold = at.leave_one_subject_out(rec)[0]
    settings = [at.Setting(**WAYS["features"], shrinkage=share) for share in ("auto", 0.5, 1.0)]
    together = at.train(rec, [at.Job(setting, fold) for setting in settings])
    assert {outcome.population for outcome in together} == {3}
    for setting, found in zip(settings, together, strict=True):
        (alone,) = at.train(rec, [at.Job(setting, fold)])
        torch.testing.assert_close(found.held_out_log_probs, alone.held_out_log_probs)
    assert not torch.allclose(together[0].held_out_log_probs, together[1].held_out_log_probs)


@EVERY
def test_held_out_labels_change_nothing(way: dict[str, Any]) -> None:
    rec = people()
    fold = at.leave_one_subject_out(rec)[0]
    y = rec.y.clone()
    held = np.concatenate([fold.validation, fold.test])
    y[held] = 1 - y[held]
    changed = at.Recordings(rec.X, y, rec.subject, sfreq=24)
    first, other = (at.train(data, [at.Job(at.Setting(**way), fold)])[0] for data in (rec, changed))
    assert torch.equal(first.held_out_log_probs, other.held_out_log_probs)
    assert first.test_score == pytest.approx(1 - other.test_score)


def test_a_fold_that_lacks_a_class_and_one_without_held_out_rows() -> None:
    rec = tiny(n_subjects=4)
    y = torch.where(rec.subject == 3, 2, rec.y)
    three = at.Recordings(rec.X, y, rec.subject, sfreq=16)
    for way in WAYS.values():
        setting = at.Setting(**way)
        outcomes = at.train(three, [at.Job(setting, fold) for fold in at.leave_one_subject_out(three)])
        assert all(outcome.failure is None and outcome.held_out_log_probs.isfinite().all() for outcome in outcomes)
        everybody = Fold(np.arange(rec.n_windows))
        (refit,) = at.train(rec, [at.Job(setting, everybody)])
        assert refit.failure is None
        assert refit.best_epoch == 1


# in a run


def test_a_checkpoint_restores_a_linear_population(tmp_path: Path) -> None:
    rec = tiny()
    jobs = jobs_of(rec, **WAYS["templates"])
    windows = prepare_windows(rec, jobs[0], device=CPU, dtype=torch.float32)
    population = make_population(jobs, windows)
    population.train_epoch()
    population.evaluate()
    keys = [str(place) for place in range(len(jobs))]
    save_checkpoint(tmp_path / "checkpoint", population, keys)
    again = restore_population(dict(zip(keys, jobs, strict=True)), windows, tmp_path / "checkpoint")
    assert again is not None
    assert type(again[0]) is ClosedFormTrainer
    for member in range(len(jobs)):
        assert serialize_outcome(make_outcome(again[0], member, None)) == serialize_outcome(
            make_outcome(population, member, None)
        )
