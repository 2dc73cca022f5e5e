"""The benchmark of people who wear an armband turned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from benchmarks import turned
from benchmarks.changes import turned as table

import autotransfer as at


def recordings() -> at.Recordings:
    """Six channels in a ring; two classes that differ in the place of their power."""
    draw = np.random.default_rng(0)
    subject, y = np.repeat(np.arange(4), 40), np.tile([0, 1], 80)
    scale = np.ones((160, 6, 1))
    scale[y == 0, 0], scale[y == 1, 2] = 3, 3
    return at.Recordings(scale * draw.standard_normal((160, 6, 64)), y, subject, sfreq=64, ring=True, name="ring")


def test_a_half_is_of_sessions_or_of_each_class() -> None:
    rec = recordings()
    rows = np.arange(40)
    first = turned.first_half(rec, rows)
    assert np.bincount(rec.y.numpy()[rows][first]).tolist() == [10, 10]
    assert first[:20].all()
    days = at.Recordings(rec.X, rec.y, rec.subject, session=np.tile([0, 0, 1, 2], 40))
    assert (turned.first_half(days, rows) == np.tile([True, True, True, False], 10)).all()


def test_turned_people_lose_and_are_turned_back(tmp_path: Path) -> None:
    rec = recordings()
    plain, with_turn = turned.settings(rec)
    rows = [*turned.rows_of(rec, plain), *turned.same_person(rec, plain), *turned.rows_of(rec, with_turn)]
    scores = pd.DataFrame(rows, columns=turned.COLUMNS)
    means = scores.groupby(["turn", "places"])["score"].mean()
    assert means["none", 0] > 0.95
    assert means["same person", 0] > 0.9
    assert means["none", 2] < 0.7
    assert means["transductive", 2] > means["none", 2] + 0.2
    scores.to_csv(tmp_path / "turned.csv", index=False)
    assert "| ring | 4 |" in table(tmp_path)
