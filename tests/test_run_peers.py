"""Peers in every run: closed forms that are trained already, or are trained for it; pyRiemann where it is installed."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import autotransfer as at
from autotransfer.report.collect import collect
from autotransfer.report.comparison import contenders
from autotransfer.report.page import render
from autotransfer.report.terminal import answer
from autotransfer.report.wording import peer_words
from autotransfer.runs.choice import Choice, read_choice
from autotransfer.runs.options import RunOptions
from autotransfer.runs.run import Run
from autotransfer.search import peers
from autotransfer.search.peers import LDA, PYRIEMANN, TANGENT, closed_peers, peer_scores, shrunk
from autotransfer.search.procedure import conduct
from faults import quiet
from tiny import tiny_file


def finished(folder: Path, **changes: object) -> tuple[Run, Choice]:
    given = {"source": str(tiny_file(folder, n_subjects=5)), "epochs": 2, "batch_size": 8, "device": "cpu"}
    run = Run.create(folder / "run", RunOptions(**given | changes))
    return run, conduct(run, quiet, shown=False)


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Choice]:
    folder = tmp_path_factory.mktemp("peers")
    return finished(folder, preprocessing="zero-shot", grid="uncensored", folds=3)


def test_closed_forms_among_the_candidates_are_the_peers(averaged: tuple[Run, Choice]) -> None:
    run, choice = averaged
    lda = closed_peers(run)[LDA]
    assert lda in [one.setting for one in choice.shortlist]
    records = [entry for entry in run.ledger.entries() if entry.setting == lda]
    assert len(records) == 3, "nothing was trained for it"
    scores = {str(p): e.record.score_on(p) for e in records if e.record is not None for p in run.groups[e.test]}
    assert choice.peers[LDA] == scores
    assert set(scores) == {str(person) for person in range(5)}
    assert {entry.stage for entry in run.ledger.entries()} == {"folds"}


def test_where_they_are_no_candidates_they_are_solved_for_the_report(tmp_path: Path) -> None:
    run, choice = finished(tmp_path, rule="published", grid="uncensored")
    assert {e.setting.network.closed_form for e in run.ledger.entries()} == {False}, "the ledger is the run's own"
    fold = at.leave_one_subject_out(run.recordings)[2]
    (outcome,) = at.train(run.recordings, [at.Job(closed_peers(run)[LDA], fold)], "cpu")
    assert choice.peers[LDA]["2"] == outcome.test_score
    run.ledger.close()


def test_pyriemann_takes_the_place_of_our_own_tangent_space(
    averaged: tuple[Run, Choice], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("pyriemann")
    run, choice = averaged
    assert set(choice.peers) == {LDA, PYRIEMANN}
    assert set(choice.peers[PYRIEMANN]) == set(choice.peers[LDA])
    run.ledger.remember(peers={"known": {"0": 0.5}})
    assert peer_scores(run) == {"known": {"0": 0.5}}, "a report does not compute it again"
    monkeypatch.setitem(sys.modules, "pyriemann.tangentspace", None)  # as if it could not be imported
    monkeypatch.setattr(run.ledger, "recall", lambda *_: None)
    monkeypatch.setattr(run.ledger, "remember", lambda **_: None)
    assert set(peer_scores(run)) == {LDA, TANGENT}
    monkeypatch.undo()
    monkeypatch.setattr(run.ledger, "recall", lambda *_: None)
    monkeypatch.setattr(run.ledger, "remember", lambda **_: None)
    assert set(peer_scores(run, until=0.0)) == {LDA, TANGENT}, "a budget is over"


def test_test_people_are_unknown_to_pyriemann(averaged: tuple[Run, Choice]) -> None:
    pytest.importorskip("pyriemann")
    run, _ = averaged
    rec = run.recordings
    fold = at.leave_one_subject_out(rec)[0]
    C = peers._covariances(rec.X, closed_peers(run)[TANGENT])
    y = rec.y.numpy().copy()
    before = peers._predicted(C, y, fold, rec.n_times)
    y[fold.test] = 1 - y[fold.test]
    np.testing.assert_array_equal(peers._predicted(C, y, fold, rec.n_times), before)
    assert np.mean(before == rec.y.numpy()[fold.test]) > 0.7


def test_the_shrinkage_is_that_of_scikit_learn() -> None:
    from sklearn.covariance import OAS

    X = np.random.default_rng(0).standard_normal((3, 4, 20))
    X -= X.mean(2, keepdims=True)
    expected = [OAS(assume_centered=True).fit(one.T).covariance_ for one in X]
    np.testing.assert_allclose(shrunk(X @ X.transpose(0, 2, 1) / 20, 20), expected)


def test_they_stand_in_report_terminal_and_results(averaged: tuple[Run, Choice]) -> None:
    run, choice = averaged
    assert read_choice(run.folder).peers == choice.peers
    summary = collect(run)
    rows = {row.label: row for row in contenders(summary) if row.is_peer}
    assert set(rows) == set(choice.peers)
    assert not any(row.is_method for row in rows.values())
    page, text = render(summary), "\n".join(answer(choice))
    for name, scores in choice.peers.items():
        assert name in page
        assert f"{np.mean(list(scores.values())):.3f}" in text


def test_a_peer_that_does_as_well_is_named(averaged: tuple[Run, Choice]) -> None:
    _, choice = averaged
    people = list(choice.nested_test_scores)
    low, high = dict.fromkeys(people, 0.1), dict.fromkeys(people, 0.9)
    own = replace(choice, nested_test_scores=dict.fromkeys(people, 0.6))
    assert peer_words(replace(own, peers={"A": low})) == []
    (told,) = peer_words(replace(own, peers={"A": low, "B": high}))
    assert told.startswith("B scores 0.900")
    assert "not clearly better" in told


def test_too_many_channels_leave_lda(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", RunOptions(source=str(tiny_file(tmp_path)), epochs=1))
    run._recordings = at.synthetic(n_subjects=3, n_channels=100, n_times=64)
    assert TANGENT not in closed_peers(run)
    run.ledger.close()
