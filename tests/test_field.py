"""Baselines of the field: held-out subjects, rows that are not computed twice, and tables."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import field, field_baselines
from benchmarks.csv_rows import read_known_rows
from benchmarks.shallow import Task
from sklearn.linear_model import RidgeClassifierCV

import autotransfer as at
from autotransfer.errors import UserError

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


def evaluated(recordings: at.Recordings, family: str, skip: set[str] = frozenset()) -> list[dict[str, Any]]:
    folds = field.evaluate(recordings, family, 0, skip=skip)
    return [dict(zip(field.COLUMNS, row, strict=True)) for rows in folds for row in rows]


@pytest.mark.parametrize(("family", "least"), [("cca", 0.9), ("fbcca", 0.9)])
def test_stimuli_are_told_apart(family: str, least: float) -> None:
    rows = evaluated(flicker(), family)
    assert {row["subject"] for row in rows} == {"0", "1", "2", "3"}
    assert min(row["score"] for row in rows if row["adaptation"] == "zero-shot") > least
    with pytest.raises(UserError, match="Hz"):
        evaluated(at.synthetic(n_subjects=3, windows_per_class=2), family)


def test_the_test_group_has_no_labels_and_known_rows_are_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[int]] = []

    def ready(recordings: at.Recordings, seed: int, device: str) -> field_baselines.Predict:
        def predict(task: Task) -> field_baselines.Predictions:
            assert (task.y[task.test] == -1).all()
            assert not set(task.known) & set(task.test)
            assert len(task.known) + len(task.test) == recordings.n_windows
            asked.append(set(task.subject[task.test].tolist()))
            yield "constant", "zero-shot", np.zeros(len(task.test), dtype=np.int64)

        return predict

    monkeypatch.setitem(field.BASELINES, "constant", field_baselines.FieldBaseline(ready))
    monkeypatch.setattr(at, "load", lambda _: flicker())
    out = tmp_path / "field.csv"
    options = Namespace(files=["a"], baselines=["constant"], out=out, seeds=1, device="cpu")
    field.run(options)
    assert asked == [{0}, {1}, {2}, {3}]
    rows = read_known_rows(out)
    assert [float(row["score"]) for row in rows] == pytest.approx([1 / 3] * 4, abs=1e-5)
    lines = out.read_text().splitlines()
    out.write_text("\n".join(lines[:3]) + "\n")  # as if it had been stopped after two subjects
    field.run(options)
    assert asked[4:] == [{2}, {3}]
    assert [row["subject"] for row in read_known_rows(out)] == ["0", "1", "2", "3"]


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
