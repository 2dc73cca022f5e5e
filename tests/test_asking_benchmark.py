"""Benchmarks of labels: nobody's labelled and scored windows share a group, and shares are what they are called."""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
import pytest
import torch
from benchmarks import asking, days, smoothing

import autotransfer as at

REC = at.synthetic(n_subjects=4, trials_per_class=24, n_channels=3, n_times=32)
PLACE = np.arange(REC.n_trials) % (REC.n_trials // 4)  # of a window among its person's
SESSION, GROUP = PLACE // (PLACE.max() // 2 + 1), PLACE // 4


@pytest.fixture(scope="module")
def people() -> list[asking.Person]:
    rec = at.Recordings(REC.X, REC.y, REC.subject, session=SESSION, sfreq=REC.sfreq, columns={"group": GROUP})
    return list(asking.people(rec, 4))


def test_halves_share_no_group(people: list[asking.Person]) -> None:
    assert len(people) == 4
    for person in people:
        split = asking.halves(person, 0)
        assert split is not None
        come, scored = split
        assert not set(person.groups[come]) & set(person.groups[scored])
        anybody, _ = asking.curve(person, come[:6], scored, asks=False)
        asked, first = asking.curve(person, come[:6], scored, asks=True)
        assert len(anybody) == 7
        assert anybody[0] == asked[0]
        assert first <= len(asked) - 1 <= 6


def test_curves_of_people_with_different_numbers_of_labels() -> None:
    used, score = asking.mean_curve([[0.5, 0.7], [0.5, 0.6, 0.8, 0.9]], 3)
    np.testing.assert_allclose(used, [0, 1, 1.5, 2])
    np.testing.assert_allclose(score, [0.5, 0.65, 0.75, 0.8])
    curve = np.stack([used, score])
    assert asking.needed(curve, 0.7) == 1.5
    assert np.isnan(asking.needed(curve, 0.9))


def test_days(people: list[asking.Person]) -> None:
    rows = []
    for person in people:
        row = days.row_of(person, SESSION[person.rows])
        assert row is not None
        rows.append({"dataset": "synthetic", "subject": person.name, "kept_shift": 1, "kept_interaction": 1} | row)
        assert row["days"] == 1
        assert row["today"] >= row["none"] - 0.1
    assert "synthetic" in days.table_of(pd.DataFrame(rows))


def test_smoothing_gains_where_classes_last() -> None:
    order = np.lexsort((REC.y.numpy(), REC.subject.numpy()))  # a class, then the other
    lasting = at.Recordings(REC.X[order] + 2 * torch.randn(REC.X.shape, generator=torch.Generator().manual_seed(0)),
                            REC.y[order], REC.subject[order], session=SESSION, sfreq=REC.sfreq)  # fmt: skip
    rows = pd.DataFrame(list(smoothing.measured(lasting, argparse.Namespace(folds=4))))
    assert list(rows.columns) == smoothing.COLUMNS
    assert len(rows) == 4
    # two sessions of three people, each of 24 windows of one class, and one pair added of either kind
    assert rows["stay"].unique() == [pytest.approx((23 * 6 + 1) / (23 * 6 + 2), abs=1e-4)]
    assert rows["whole"].mean() > rows["single"].mean() + 0.1
    rows["dataset"] = "lasting"
    assert "| lasting | 4 | 0.993 |" in smoothing.table_of(rows)
