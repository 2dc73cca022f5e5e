"""Labeled windows and scored windows never share a group."""

from __future__ import annotations

import numpy as np
import pytest

import autotransfer as at
from autotransfer.folds import Fold
from autotransfer.models.building import CandidateFits, build_model
from autotransfer.models.calibration import LABELS
from autotransfer.search.labels import split_windows, window_groups
from autotransfer.search.replay import replay_subject
from autotransfer.settings import Setting


def overlapping(seed: int = 0) -> at.Recordings:
    """Windows of a group are all but equal, and say nothing of other groups. 24 groups a subject, each of one class, in
    turn."""
    draw = np.random.default_rng(seed)
    n_people, n_groups, per = 6, 24, 8
    subject = np.repeat(np.arange(n_people), n_groups * per)
    group = np.tile(np.arange(n_groups), per * n_people)
    y = group % 2
    trial = draw.standard_normal((n_people * n_groups, 3, 16))
    X = trial[subject * n_groups + group] + 0.01 * draw.standard_normal((len(y), 3, 16))
    return at.Recordings(X, y, subject, sfreq=16, columns={"group": group})


def test_a_group_is_labeled_or_scored() -> None:
    rec = overlapping()
    rows = np.flatnonzero(rec.subject.numpy() == 1)
    y, groups = rec.y.numpy()[rows], window_groups(rec, rows)
    assert len(np.unique(groups)) == 24
    for labels in LABELS:
        known, left = split_windows(y, groups, labels)
        assert (np.bincount(y[known]) == labels).all()
        assert not set(groups[known]) & set(groups[left])
        assert set(y[left]) == {0, 1}
        assert (np.bincount(y[left]) == 8 * (12 - labels)).all()


def test_groups_are_those_of_a_session_and_missing_ones_are_alone() -> None:
    group = np.array([0.0, 0, 1, 1, np.nan, np.nan] * 3)
    session = np.tile([1, 1, 1, 2, 2, 2], 3)
    rec = at.Recordings(
        np.random.default_rng(0).standard_normal((18, 2, 8)), np.tile([0, 1], 9), np.repeat([0, 1, 2], 6),
        session=session, columns={"group": [None if np.isnan(value) else int(value) for value in group]},
    )  # fmt: skip
    found = window_groups(rec, np.arange(6, 12))
    assert found[0] == found[1]
    assert len(set(found)) == 5


@pytest.mark.parametrize("told", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_windows_like_labeled_ones_are_not_scored(told: bool) -> None:
    """Labels of a group tell all of its other windows, and nothing of other groups: where a column says so, a subject's
    own classifier must look as useless as it is."""
    rec = overlapping()
    rec = rec if told else at.Recordings(rec.X, rec.y, rec.subject, sfreq=16)
    fold, setting = Fold(np.arange(rec.n_windows)), Setting(encoder="linear", represent="features", standardize="none")
    (outcome,) = at.train(rec, [at.Job(setting, fold, 0)], "cpu", progress=False)
    model = build_model(rec, [CandidateFits(setting, [outcome.final_state], [fold], 1.0)], scores={})
    people = [replay_subject(model, rec, np.flatnonzero(rec.subject.numpy() == person))[0] for person in range(0, 6, 3)]
    score = np.mean([own["personal", "10"] for own in people])
    assert score < 0.75 if told else score > 0.85
