"""benchmarks.as_it_comes: everybody who is asked for is left out once, and what is known is not computed again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks import as_it_comes
from benchmarks.as_it_comes import COLUMNS, MODELS, SHORT, STACKED, left_out, main

import autotransfer as at
from tiny import tiny, tiny_file


def test_people_are_spread_evenly() -> None:
    assert [fold.test_subject for fold in left_out(tiny(7), 3)] == [0, 3, 6]
    assert len(left_out(tiny(4), None)) == len(left_out(tiny(4), 9)) == 4


def test_it_writes_a_row_for_every_person_and_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def guess(recordings: at.Recordings, fold: at.Fold, device: str) -> np.ndarray:
        seen.append(fold.test_subject)
        return recordings.y.numpy()[fold.test]

    monkeypatch.setitem(as_it_comes.MODELS, "AutoTransferClassifier()", guess)
    arguments = [str(tiny_file(tmp_path)), "--out", str(tmp_path / "out.csv"), "--people", "2", "--device", "cpu"]
    main([*arguments, "--models", "lda", "auto"])
    table = pd.read_csv(tmp_path / "out.csv")
    assert list(table.columns) == COLUMNS
    assert table.groupby("model")["subject"].apply(sorted).to_dict() == {
        "LDA": [0, 3],
        "AutoTransferClassifier()": [0, 3],
    }
    assert (table[table["model"] == "AutoTransferClassifier()"]["score"] == 1).all()
    main([*arguments, "--models", "auto"])
    assert seen == [0, 3], "rows that are there are kept"


def test_models_never_see_the_test_person() -> None:
    rec = tiny(4)
    fold = left_out(rec, None)[1]
    handed: dict[str, np.ndarray] = {}

    class Spy:
        def set_params(self, **_: object) -> Spy:
            return self

        def fit(self, X: object, y: np.ndarray, subjects: np.ndarray) -> Spy:
            handed.update(y=y, subjects=subjects)
            return self

        def predict(self, X: np.ndarray) -> np.ndarray:
            return np.zeros(len(X), dtype=int)

    as_it_comes.fitted(lambda _: Spy())(rec, fold, "cpu")
    assert set(handed["subjects"]) == {0, 2, 3}
    assert set(SHORT.values()) == {*MODELS, *STACKED}


def test_nor_does_a_stack(monkeypatch: pytest.MonkeyPatch) -> None:
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
