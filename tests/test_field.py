"""Baselines of the field: held-out subjects, rows that are not computed twice, and tables."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import engineered, field, field_baselines
from benchmarks.csv_rows import read_known_rows
from benchmarks.shallow import Task
from sklearn.linear_model import RidgeClassifierCV

import autotransfer as at

SFREQ = 128.0


def flicker(n_people: int = 4, each: int = 6, noise: float = 0.3, locked: bool = True) -> at.Recordings:
    """Two stimuli and rest, in phase with the window or not."""
    draw = np.random.default_rng(0)
    y = np.tile(np.arange(3), n_people * each)
    phase = 0.0 if locked else draw.uniform(0, 2 * np.pi, (len(y), 1))
    waves = (y < 2)[:, None] * np.sin(2 * np.pi * np.array([13, 17, 0])[y, None] * np.arange(128) / SFREQ + phase)
    X = draw.standard_normal((4,))[None, :, None] * waves[:, None] + noise * draw.standard_normal((len(y), 4, 128))
    names = np.array(["13 Hz", "17 Hz", "rest"])[y]
    return at.Recordings(X, names, np.repeat(np.arange(n_people), 3 * each), sfreq=SFREQ, name="eeg_flicker")


@pytest.fixture
def score(monkeypatch: pytest.MonkeyPatch) -> Callable[[at.Recordings, str], list[dict[str, Any]]]:
    """Return the rows of a baseline, with averages."""

    def rows(recordings: at.Recordings, family: str) -> list[dict[str, Any]]:
        use(recordings, monkeypatch)
        found = field.compute(field.FieldJob("a", family, 0, None, "cpu"))
        scored = field.score_rows(recordings, [*found, *field.average(found)])
        return [dict(zip(field.COLUMNS, row, strict=True)) for row in scored]

    return rows


def use(recordings: at.Recordings, monkeypatch: pytest.MonkeyPatch) -> None:
    field.load.cache_clear()
    field.prepare.cache_clear()
    monkeypatch.setattr(at, "load", lambda _: recordings)


@pytest.mark.parametrize("family", ["cca", "fbcca"])
def test_stimuli_are_told_apart(
    family: str, score: Callable[..., list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = score(flicker(), family)
    assert {row["subject"] for row in rows} == {"0", "1", "2", "3"}
    assert min(row["score"] for row in rows if row["adaptation"] == "zero-shot") > 0.9
    assert score(at.synthetic(n_subjects=3, windows_per_class=2), family) == []
    assert "Hz" in capsys.readouterr().out


def test_the_test_group_has_no_labels_and_known_sets_are_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[int]] = []

    def ready(recordings: at.Recordings, seed: int, device: str) -> field_baselines.Predict:
        def predict(task: Task) -> field_baselines.Predictions:
            assert (task.y[task.test] == -1).all()
            assert (task.y[task.known] == recordings.y.numpy()[task.known]).all()
            assert not set(task.known) & set(task.test)
            assert len(task.known) + len(task.test) == recordings.n_windows
            asked.append(set(task.subject[task.test].tolist()))
            yield "constant", "zero-shot", np.zeros(len(task.test), dtype=np.int64)
            yield "uncertain", "zero-shot", np.tile([0.1, 0.5, 0.4], (len(task.test), 1))

        return predict

    monkeypatch.setitem(field.BASELINES, "constant", field_baselines.FieldBaseline(ready))
    use(flicker(), monkeypatch)
    out = tmp_path / "field.csv"
    options = Namespace(files=["a"], baselines=["constant", "average"], out=out, seeds=1, device="cpu", jobs=0)
    field.run(options)
    assert asked == [{0}, {1}, {2}, {3}]
    rows = read_known_rows(out)
    assert {row["baseline"] for row in rows} == {"constant", "uncertain", "average of generic baselines"}
    assert [float(row["score"]) for row in rows] == pytest.approx([1 / 3] * 12, abs=1e-5)
    field.run(options)
    assert len(asked) == 4
    assert read_known_rows(out) == rows


def test_averages_weight_baselines_equally() -> None:
    """A baseline with two seeds counts once, and specialists and other adaptations do not count."""
    rows = np.arange(1)
    given = [("a", "lda", 0, 0.9), ("b", "networks", 0, 0.2), ("b", "networks", 1, 0.4), ("c", "cca", 0, 0.0)]
    found = [field.Predicted(n, "zero-shot", f, s, rows, np.array([[p, 1 - p]]), 0.0) for n, f, s, p in given]
    found.append(found[0]._replace(adaptation="transductive", probabilities=np.array([[0.0, 1.0]])))
    means = {one.adaptation: one.probabilities for one in field.average(found)}
    np.testing.assert_allclose(means["zero-shot"], [[0.6, 0.4]])
    np.testing.assert_allclose(means["transductive"], [[0.0, 1.0]])


def test_expectation_maximization_follows_a_shifted_subject() -> None:
    """The classes of the test subject are moved by almost half of their distance."""
    draw, y, subject = np.random.default_rng(0), np.tile([0, 1], 200), np.repeat(np.arange(4), 100)
    moved = np.where(subject == 3, 3.5, 0.0)[:, None]
    values = draw.standard_normal((400, 2)) + np.stack([8.0 * y, 0.0 * y], 1) + moved
    known, test = np.flatnonzero(subject < 3), np.flatnonzero(subject == 3)
    task = Task(values[:, :, None], np.where(subject == 3, -1, y), subject, at.Fold(known, test=test), None, 2, 0)
    adapted = engineered.maximize_expectation(values, task).argmax(1)
    assert (adapted == y[test]).mean() > 0.97
    assert (engineered.discriminant(values, task).argmax(1) == y[test]).mean() < 0.9


@pytest.mark.parametrize("prepare", [engineered.beat_intervals, engineered.gaze_velocities, engineered.motion])
def test_features_of_specialists_are_finite(prepare: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that are flat, and windows that are not, have the same number of features."""
    kept: list[np.ndarray] = []
    monkeypatch.setattr(engineered, "predict_with", lambda name, values, *_: kept.append(values))
    X = np.random.default_rng(0).standard_normal((6, 6, 200)).astype(np.float32)
    X[0] = 0.0
    prepare(at.Recordings(X, np.arange(6) % 2, np.arange(6) // 2, sfreq=100.0), 0, "cpu")
    assert kept[0].shape[0] == 6
    assert kept[0].shape[1] > 20
    assert np.isfinite(kept[0]).all()
    assert len(np.unique(kept[0][1:], axis=0)) == 5


@pytest.mark.parametrize("n_classes", [2, 3])
def test_ridge_of_inner_products_is_that_of_scikit_learn(n_classes: int) -> None:
    """Rows of unequal classes and more features than rows, where strengths matter."""
    rng = np.random.default_rng(n_classes)
    y = np.minimum(rng.integers(n_classes + 2, size=90), n_classes - 1)
    values = rng.standard_normal((90, 150)) + 0.25 * y[:, None] * (np.arange(150) < 20) + 3.0
    known, test = np.arange(60), np.arange(60, 90)
    theirs = RidgeClassifierCV(field_baselines.STRENGTHS, class_weight="balanced").fit(values[known], y[known])
    gram = torch.as_tensor(values @ values.T)
    ours = field_baselines.ridge(gram, y[known], known, test, "cpu")
    assert (ours == theirs.predict(values[test])).all()
    assert len(np.unique(ours)) == n_classes
    assert theirs.alpha_ not in (field_baselines.STRENGTHS[0], 1.0)
