"""Scores on subjects and windows of the training set come with a warning."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app
from autotransfer.errors import UserError
from autotransfer.folds import Fold
from autotransfer.models.adaptation import UNTRIED
from autotransfer.models.building import CandidateFits, build_model
from autotransfer.models.model import Model
from autotransfer.models.overlap import MOST, SIZE, describe_overlap, training_digests, window_digests
from autotransfer.person.calibration import calibrate_model, find_calibration_warnings
from autotransfer.person.predictions import predict_windows
from autotransfer.recordings import Raw
from autotransfer.report.subject_scores import SubjectScores
from autotransfer.tasks.classification import METRICS
from autotransfer.words import score

REC = at.synthetic(n_subjects=6, windows_per_class=12, n_channels=4, n_times=32)
NEW = REC.subject.numpy() == 5
METRIC = METRICS["balanced_accuracy"]


@pytest.fixture(scope="module")
def model() -> Model:
    """Trained on all but one subject, and knowing on whom."""
    rows = np.flatnonzero(~NEW)
    known = at.Recordings(
        REC.X[rows], REC.y[rows], REC.subject[rows], sfreq=REC.sfreq, name="study", channels=list("abcd")
    )
    setting = at.Setting(encoder="linear", represent="features", standardize="none")
    (outcome,) = at.train(known, [at.Job(setting, Fold(np.arange(len(rows))), 0)], "cpu", progress=False)
    state = {name: one for name, one in outcome.final_state.items() if not name.startswith("censor.")}
    found = build_model(known, [CandidateFits(setting, [state], [Fold(np.arange(len(rows)))], 1.0)], scores={})
    found.card = replace(found.card, seen=training_digests(known))
    return found


def raw_of(rows: np.ndarray, name: str = "other", **changes: object) -> Raw:
    own = {"X": REC.X[rows].numpy(), "y": REC.y[rows].numpy(), "subject": [f"{s}" for s in REC.subject[rows].tolist()]}
    own |= {"channels": list("abcd"), "sfreq": REC.sfreq}
    return Raw(**own | changes, name=name)


def lines(model: Model, raw: Raw) -> list[str]:
    X = model.read(raw)
    found = SubjectScores.from_predictions(model, raw, predict_windows(model, raw, X=X))
    assert found is not None
    return found.describe_overlap(model, X, METRIC)


def of_training(model: Model, raw: Raw) -> list[str]:
    return find_calibration_warnings(model, raw, model.read(raw))


def test_subjects_of_the_training_set_are_named(model: Model) -> None:
    (told,) = lines(model, raw_of(np.arange(len(REC.y))))
    assert "trained on windows of 5 subjects ('0', '1', '2', '3', '4')" in told
    assert lines(model, raw_of(np.flatnonzero(NEW))) == []
    some = np.flatnonzero(NEW | (np.arange(len(REC.y)) == 0))
    assert "1 subject ('0')" in lines(model, raw_of(some))[0], "one window is enough, whatever the file is called"
    assert lines(model, raw_of(some, X=REC.X[some].double().numpy())) == lines(model, raw_of(some))


def test_untried_calibration_warns(model: Model) -> None:
    new, untried = raw_of(np.flatnonzero(NEW)), copy(model)
    assert of_training(model, new) == []
    untried.card = replace(model.card, session_method=UNTRIED)
    assert "not tried on held-out subjects" in of_training(untried, new)[0]


def test_calibration_windows_are_counted_and_the_rest_is_scored(model: Model) -> None:
    rows = np.flatnonzero(NEW)
    few = raw_of(rows[:10])
    made, _ = calibrate_model(model, few, REC.X[rows[:10]])
    assert made is not model
    assert lines(model, raw_of(rows)) == []
    first, second = lines(made, raw_of(rows))
    assert "labels of 10 of these 24 windows" in first
    rest = raw_of(rows[10:])
    p = predict_windows(made, rest)
    assert second == f"balanced accuracy on the other 14 windows: {score(METRIC.score(rest.y, p))}"
    assert len(lines(made, few)) == 1, "nothing is left to score"
    again = made
    if made.card.calibrates_with != []:
        again, _ = calibrate_model(made, raw_of(rows[10:12]), REC.X[rows[10:12]])
    assert "calibrated with the labels" in lines(again, few)[0], "windows of the first calibration are kept"


def test_calibrating_for_a_training_subject_warns(model: Model) -> None:
    seen, new = np.arange(6), np.flatnonzero(NEW)[:6]
    assert "trained on windows of 1 subject ('0')" in str(of_training(model, raw_of(seen)))
    for subject in (None, ["5"] * 6):
        assert of_training(model, raw_of(new, subject=subject)) == []


def test_a_card_holds_digests_and_neither_names_nor_many(model: Model) -> None:
    text = json.dumps(asdict(model.card))
    assert len(text) < 20_000
    assert not set(window_digests(REC.X[:3])) & set(window_digests(REC.X[3:6]))
    many = at.Recordings(torch.randn(MOST + 500, 1, 8), np.arange(MOST + 500) % 2, np.arange(MOST + 500) % 3)
    seen = training_digests(many)
    assert len(seen["windows"]) <= (MOST * SIZE + 2) * 4 / 3
    told = describe_overlap(seen, window_digests(many.X[::50]), [f"{s}" for s in many.subject[::50].tolist()])
    assert "3 subjects" in told[0], "some of everybody's windows are known"
    for damage in ("?", "AAAA"):
        with pytest.raises(UserError, match="are damaged"):
            describe_overlap(seen | {"windows": damage}, [], None)


def replayed(folder: Path, rows: np.ndarray, *given: str) -> tuple[list[str], list[str]]:
    """What a replay of these windows, in one table for each subject, has to say of them: the field of its file, and its
    warnings."""
    study = folder / f"study{len(rows)}"
    study.mkdir(exist_ok=True)
    for person in REC.subject[rows].unique().tolist():
        own = [row for row in rows if REC.subject[row] == person]
        values = np.concatenate([REC.X[row].numpy() for row in own], 1).T[:, ::-1]
        names = np.repeat(REC.y[own].numpy(), REC.n_times)
        lines = [",".join(map(repr, map(float, v))) + f",{name}" for v, name in zip(values, names, strict=True)]
        (study / f"{REC.subjects[person]}.csv").write_text("\n".join(["d,c,b,a,label", *lines]))
    how = ("--pattern", "{subject}.csv", "--sfreq", REC.sfreq, "--hop", REC.n_times / REC.sfreq)
    words = ["stream", folder / "run", "--replay", study, *how, "--out", folder / "out.json", *given]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exception is None, result.output
    return json.loads((folder / "out.json").read_text())["seen"], [
        line for line in result.stderr.splitlines() if "trained on windows" in line
    ]


def test_a_replay_of_training_subjects_warns(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "run" / "model")
    everybody = np.arange(len(REC.y))
    (told,) = lines(model, raw_of(everybody))
    seen, warnings = replayed(tmp_path, everybody)
    assert warnings == [told], "in the words of predict"
    assert seen == [told]
    assert replayed(tmp_path, np.flatnonzero(NEW)) == ([], [])
