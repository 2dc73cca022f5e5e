"""Subjects with windows of one class are listed and are in no mean."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.folds import check_scorable, scorable_subjects
from autotransfer.recordings import save_npz
from autotransfer.runs.choice import NamedSetting, read_choice
from autotransfer.search.evidence import ClassificationEvidence
from faults import OPTIONS, call, few_settings
from tiny import create_run, described, tiny

pytestmark = pytest.mark.usefixtures("brief_results")

SHORT = ["--epochs", 2, "--set", "batch_size=16", "--device", "cpu", "--seeds", 1]
NAMES = ["p0", "one class", "p2", "p3", "one trial", "p5"]


def with_people_of_one_class(alone: dict[int, int] | None = None) -> at.Recordings:
    """Six subjects; 1 has class 0 alone, 4 a single window. alone: how many windows these have, all of class 0."""
    rec = tiny(6)
    keep = np.ones(rec.n_windows, dtype=bool)
    for person, most in (alone or {1: 6, 4: 1}).items():
        own = np.flatnonzero(rec.subject.numpy() == person)
        keep[own] = False
        keep[own[rec.y.numpy()[own] == 0][:most]] = True
    rows = np.flatnonzero(keep)
    people = np.array(NAMES)[rec.subject.numpy()[rows]]
    return at.Recordings(rec.X[rows], rec.y[rows], people, sfreq=16, subjects=NAMES)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "some.npz"
    save_npz(path, with_people_of_one_class())
    return path


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="average"),
        pytest.param(("--rule", "published"), id="published"),
        pytest.param(("--search", "tpe", "--trials", 3), id="tpe", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_they_are_reported_before_a_run_and_are_in_no_mean(
    tmp_path: Path, source: Path, options: tuple[object, ...]
) -> None:
    run = tmp_path / "run"
    with few_settings(), pytest.warns(UserWarning, match=r"one class, one trial.* cannot be scored"):
        result = call("run", source, *SHORT, "--adaptation", "none", *options, "--out", run)
    assert result.code == 0, result.err
    choice, scored = read_choice(run), {"p0", "p2", "p3", "p5"}
    assert choice.unscored_subjects == ["one class", "one trial"]
    tables = [*choice.test_scores.values(), *choice.alternatives.values(), choice.nested_test_scores]
    if choice.ensemble is not None:
        assert set(choice.ensemble.nested) == scored
    for table in tables:
        assert set(table) == scored
        assert not any(map(math.isnan, table.values()))
    results = pd.read_csv(run / "results.csv")
    unscored = results["test_subject"].isin(choice.unscored_subjects)
    assert unscored.any()
    assert results.loc[unscored, "test_score"].isna().all()
    assert results.loc[~unscored, "test_score"].notna().all()
    page = (run / "report.html").read_text()
    assert "one class, one trial" in page
    assert "NaN" not in (run / "choice.json").read_text()


def test_a_split_whose_validation_subject_cannot_be_scored_compares_no_settings(tmp_path: Path) -> None:

    rec = with_people_of_one_class({5: 6})  # the last one validates the first fold
    run = create_run(tmp_path / "run", described(source="x", **OPTIONS), recordings=rec)
    assert run.folds()[0] == (5, 0)
    assert run.search_fold() == (0, 1)
    run.database.close()


def test_weights_do_not_depend_on_them() -> None:
    y = {0: np.array([0, 1] * 4), 1: np.array([0] * 8), 2: np.array([1, 0] * 4)}

    def held_out(sure: float) -> ClassificationEvidence:
        found = {}
        for fold in ((2, 0), (0, 1), (1, 2)):
            for person in fold:
                p = np.random.default_rng(person).random((2, 8, 2)) if person != 1 else np.full((2, 8, 2), 1 - sure)
                p[:, :, 0] = sure if person == 1 else p[:, :, 0]
                found[fold, person] = np.log(p / p.sum(-1, keepdims=True)).astype(np.float32)
        candidates = [NamedSetting(str(lr), at.Setting(lr=lr)) for lr in (0.001, 0.01)]
        return ClassificationEvidence(tuple(candidates), ("0", "1", "2"), found, y)

    assert held_out(0.9).held_out_subjects == [0, 2]
    sure, unsure = (held_out(p).weights([0, 1]) for p in (0.9, 0.1))
    np.testing.assert_array_equal(sure, unsure)


def test_too_few_scorable_subjects_are_refused(tmp_path: Path) -> None:
    rec = with_people_of_one_class({1: 3, 2: 3, 3: 1, 4: 1, 5: 2})
    assert scorable_subjects(rec) == [0]
    with pytest.raises(UserError, match="only 1 of 6 subjects have windows of two classes; at least 2 are needed"):
        check_scorable(rec)
    save_npz(tmp_path / "few.npz", rec)
    for more in ((), ("--dry-run",)):
        result = call("run", tmp_path / "few.npz", *SHORT, *more, "--out", tmp_path / "run")
        assert (result.code, len(result.err.splitlines())) == (2, 1)
    assert not (tmp_path / "run").exists()
    assert check_scorable(tiny()) is None
