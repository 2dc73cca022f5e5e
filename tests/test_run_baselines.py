"""Baselines of a run: linear models among the candidates, fitted for the report, and pyRiemann."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autotransfer as at
from autotransfer.report.collect import collect
from autotransfer.report.findings import describe_missing
from autotransfer.report.page import render_page
from autotransfer.runs.choice import Choice
from autotransfer.runs.run import Run
from autotransfer.search import baselines
from autotransfer.search.baselines import (
    LDA,
    PYRIEMANN,
    RECENTERED,
    TANGENT,
    Baseline,
    SkippedBaseline,
    baseline_scores,
    linear_baselines,
    oas_covariances,
)
from autotransfer.search.procedure import perform_plan
from faults import quiet
from tiny import create_run, described, tiny_file


def finished(folder: Path, **changes: object) -> tuple[Run, Choice]:
    given = {"source": str(tiny_file(folder, n_subjects=5)), "max_epochs": 2, "batch_size": 8, "device": "cpu"}
    run = create_run(folder / "run", described(**given | changes))
    return run, perform_plan(run, quiet, progress=False)


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Choice]:
    folder = tmp_path_factory.mktemp("baselines")
    return finished(folder, adaptation="zero-shot", grid="uncensored", folds=3)


def test_linear_candidates_are_the_baselines(averaged: tuple[Run, Choice]) -> None:
    run, choice = averaged
    lda = linear_baselines(run)[LDA]
    assert lda in [one.setting for one in choice.shortlist]
    records = [entry for entry in run.database.entries() if entry.setting == lda]
    assert len(records) == 3, "nothing was trained for it"
    scores = {str(p): e.record.score_on(p) for e in records if e.record is not None for p in run.groups[e.test]}
    assert choice.baselines[LDA] == scores
    assert set(scores) == {str(person) for person in range(5)}
    assert {entry.stage for entry in run.database.entries()} == {"folds", "sessions"}


def test_other_linear_baselines_are_fitted_for_the_report(tmp_path: Path) -> None:
    run, choice = finished(tmp_path, rule="published", grid="uncensored")
    assert {e.setting.network.is_closed_form for e in run.database.entries()} == {False}, (
        "the database is the run's own"
    )
    fold = at.leave_one_subject_out(run.recordings)[2]
    (outcome,) = at.train(run.recordings, [at.Job(linear_baselines(run)[LDA], fold)], "cpu")
    assert choice.baselines[LDA]["2"] == outcome.test_score
    run.database.close()


def test_every_baseline_has_scores_or_a_reason(averaged: tuple[Run, Choice], monkeypatch: pytest.MonkeyPatch) -> None:
    run, choice = averaged
    ours = set(linear_baselines(run))
    assert ours > {LDA, TANGENT}, "and what the field would try on such a signal"
    assert set(choice.baselines) == ours | {PYRIEMANN}
    assert choice.skipped_baselines == {}
    assert set(choice.baselines[PYRIEMANN]) == set(choice.baselines[LDA])
    summary, kept = collect(run), dict[str, object]()
    monkeypatch.setattr(run.database, "load_fact", lambda *_: kept.get("baselines"))
    monkeypatch.setattr(run.database, "store_facts", lambda **facts: kept.update(facts))

    def fails(*_: object) -> None:
        raise ValueError("a matrix is singular")

    def refuses(*_: object) -> None:
        raise SkippedBaseline("it takes images")

    more = {"broken": Baseline(fails), "choosy": Baseline(refuses)}
    monkeypatch.setattr(baselines, "BASELINES", baselines.BASELINES | more)
    scores, skipped = baseline_scores(run, fit_missing=False)
    assert set(scores) == ours, "which the run has fitted"
    assert skipped["broken"] == skipped["choosy"] == skipped[PYRIEMANN] == baselines.LATER
    scores, skipped = baseline_scores(run)
    assert scores == choice.baselines, "the others follow"
    assert "a matrix is singular" in skipped["broken"]
    assert skipped["choosy"] == "it takes images"
    told = replace(choice, skipped_baselines=skipped)
    assert any("a matrix is singular" in line for line in describe_missing(told))
    assert "a matrix is singular" in render_page(replace(summary, choice=told))
    monkeypatch.setitem(baselines.BASELINES, PYRIEMANN, Baseline(fails))
    assert baseline_scores(run)[0] == choice.baselines, "a report does not compute it again"


@pytest.mark.parametrize("predict", [baseline.predict for baseline in baselines.BASELINES.values()])
def test_pyriemann_baselines_do_not_see_test_subjects(averaged: tuple[Run, Choice], predict: Any) -> None:
    rec = averaged[0].recordings
    fold = at.leave_one_subject_out(rec)[0]
    before = predict(rec, fold)
    y = rec.y.numpy().copy()
    y[fold.test] = 1 - y[fold.test]
    np.testing.assert_array_equal(predict(replace(rec, y=y), fold), before)
    assert np.mean(before.argmax(1) == rec.y.numpy()[fold.test]) > 0.7


def test_recentering_removes_a_subjects_amplitude() -> None:
    rec = at.synthetic(n_subjects=4, windows_per_class=20, n_channels=3, n_times=64)
    louder = rec.X.numpy().copy()
    louder[rec.subject.numpy() == 0] *= 30
    fold = at.leave_one_subject_out(rec)[0]
    predictors = (baselines.BASELINES[RECENTERED].predict, baselines.tangent_space)
    undone, plain = (predict(replace(rec, X=louder), fold) for predict in predictors)
    np.testing.assert_allclose(undone, baselines.BASELINES[RECENTERED].predict(rec, fold), atol=1e-3)
    assert not np.allclose(plain, baselines.tangent_space(rec, fold), atol=1e-2)


def test_baselines_use_no_more_of_a_new_subject_than_the_run(averaged: tuple[Run, Choice]) -> None:
    run = averaged[0]
    for adaptation, more in (("online", set()), ("transductive", {RECENTERED})):
        run_of = SimpleNamespace(options=replace(run.options, adaptation=adaptation), recordings=run.recordings)
        settings = linear_baselines(run_of)
        used = {name: setting.adaptation for name, setting in settings.items()}
        kinds = Counter(used.values())
        assert set(kinds) == {"none", adaptation}
        assert kinds["none"] >= kinds[adaptation] >= 2
        assert all((adaptation in name) == (kind != "none") for name, kind in used.items())
        assert set(baselines.library_baselines(run_of)) == {PYRIEMANN} | more


def test_the_shrinkage_is_that_of_scikit_learn() -> None:
    from sklearn.covariance import OAS

    X = np.random.default_rng(0).standard_normal((3, 4, 20))
    X -= X.mean(2, keepdims=True)
    expected = [OAS(assume_centered=True).fit(one.T).covariance_ for one in X]
    np.testing.assert_allclose(oas_covariances(X @ X.transpose(0, 2, 1) / 20, 20), expected)
