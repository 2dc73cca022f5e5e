"""benchmarks.as_it_comes: everybody who is asked for is left out once, and what is known is not computed again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks import as_it_comes
from benchmarks.as_it_comes import COLUMNS, left_out, main

import autotransfer as at
from tiny import tiny, tiny_file


def test_people_are_spread_evenly() -> None:
    assert [fold.test_subject for fold in left_out(tiny(7), 3)] == [0, 3, 6]
    assert len(left_out(tiny(4), None)) == len(left_out(tiny(4), 9)) == 4


def test_it_writes_a_row_for_every_person_and_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def guess(_: object, recordings: at.Recordings, folds: list[at.Fold], device: str) -> list[tuple[float, float]]:
        seen.extend(fold.test_subject for fold in folds)
        return [(1.0, 2.0)] * len(folds)

    monkeypatch.setattr(as_it_comes, "stacked", guess)
    arguments = [str(tiny_file(tmp_path)), "--out", str(tmp_path / "out.csv"), "--people", "2", "--device", "cpu"]
    main(arguments)
    table = pd.read_csv(tmp_path / "out.csv")
    assert tuple(table.columns) == COLUMNS
    assert table.groupby("model")["subject"].apply(sorted).to_dict() == {
        "CensoredClassifier()": [0, 3],
        "CensoredClassifier(channel_mask=0)": [0, 3],
    }
    main([*arguments[:-4], "--people", "3", "--device", "cpu"])
    assert seen == [0, 3] * 2 + [2] * 2, "rows that are there are kept"
    assert len(pd.read_csv(tmp_path / "out.csv")) == 6


def test_the_test_person_is_never_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    rec = tiny(4)
    handed: list[at.Job] = []

    def train(recordings: at.Recordings, jobs: list[at.Job], *_: object, **__: object) -> list[at.Outcome]:
        handed.extend(jobs)
        return []

    monkeypatch.setattr(at, "train", train)
    as_it_comes.stacked(at.CensoredClassifier(), rec, left_out(rec, None), "cpu")
    who = rec.subject.numpy()
    for person, job in enumerate(handed):
        assert set(who[job.fold.test]) == {person}
        assert person not in who[np.concatenate([job.fold.train, job.fold.validation])]
    assert len(handed) == 4
