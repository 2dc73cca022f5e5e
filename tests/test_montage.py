"""A channel that is missing is estimated as training people tell, with what that explains; or refused."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app
from autotransfer.errors import UserError
from autotransfer.models.montage import LEAST_EXPLAINED, SHRINKAGE, Montage, arrangement, fit_montage
from autotransfer.models.saved_model import SavedModel
from autotransfer.recordings.windows import renamed_channels

NAMES = ("F3", "Fz", "F4", "Oz")
PEOPLE, PER, TIMES = 5, 24, 40


def study(seed: int = 0) -> at.Recordings:
    """F4 is F3 + Fz and some noise, Oz has nothing to do with anybody; classes differ in the power of F3."""
    draw = np.random.default_rng(seed)
    n = PEOPLE * PER
    y = np.tile([0, 1], n // 2)
    X = draw.standard_normal((n, 4, TIMES))
    X[:, 0] *= np.where(y, 3.0, 1.0)[:, None]
    X[:, 2] = X[:, 0] + X[:, 1] + 0.5 * X[:, 2]
    X += np.array([10.0, -5.0, 3.0, 0.0])[:, None]
    people = np.repeat(np.arange(PEOPLE), PER)
    X *= (1 + people)[:, None, None]  # gains differ, and count alike
    return at.Recordings(X.astype(np.float32), y, people, sfreq=40.0, channels=NAMES, name="study")


REC = study()


@pytest.fixture(scope="module")
def model() -> Any:
    setting = at.Setting(encoder="linear", represent="tangent", standardise="none")
    folds = at.leave_one_subject_out(REC)[:1]
    return at.train(REC, [at.Job(setting, folds[0], 0)])[0].model()


def without(rows: np.ndarray, *names: str) -> tuple[np.ndarray, list[str]]:
    kept = [place for place, name in enumerate(NAMES) if name not in names]
    return REC.X.numpy()[rows][:, kept], [NAMES[place] for place in kept]


ROWS = np.flatnonzero(REC.subject.numpy() == 4)


def test_what_others_explain_is_measured_on_people_left_out() -> None:
    few, whose = REC.X[::6, :, :8].contiguous(), REC.subject[::6]  # few enough that it matters who counts
    montage = fit_montage(few, whose)
    assert montage is not None
    X, people = few.double().numpy(), whose.numpy()
    X = X - X.mean(2, keepdims=True)
    power = np.array([np.mean((X[people == k] ** 2).sum(1)) for k in range(PEOPLE)])
    X = X * np.sqrt(power.mean() / power)[people][:, None, None]
    for m in range(4):  # a double loop: ridge on everybody else's samples, applied to the person's
        left = variance = 0.0
        others = [c for c in range(4) if c != m]
        for k in range(PEOPLE):
            train, test = (np.concatenate(list(X[own]), 1) for own in (people != k, people == k))
            scale = train.std(1)
            A, b = train[others] / scale[others, None], train[m] / scale[m]
            w = np.linalg.solve(A @ A.T / A.shape[1] + SHRINKAGE * np.eye(3), A @ b / A.shape[1])
            guess = scale[m] * w @ (test[others] / scale[others, None])
            left, variance = left + np.mean((test[m] - guess) ** 2), variance + np.mean(test[m] ** 2)
        assert montage.explained[m].item() == pytest.approx(max(0.0, 1 - left / variance), abs=1e-4)
    montage = fit_montage(REC.X, REC.subject)
    assert montage is not None
    # F4 = F3 + Fz + 0.5 noise, F3 of variance 5 in the mean over classes: 6 of 6.25 is explained.
    assert montage.explained[2].item() == pytest.approx(6 / 6.25, abs=0.02)
    assert montage.explained[3].item() < 0.05


def test_nobody_counts_for_themselves() -> None:
    """Somebody whose channels go together in their own way is not explained by the others."""
    X = REC.X.clone()
    X[ROWS, 2] = -X[ROWS, 2]
    told = fit_montage(X, REC.subject)
    assert told is not None
    assert told.explained[2] < 0.5, "a fifth of the people is explained worse than by nothing"


def test_the_estimate_is_that_of_least_squares() -> None:
    montage = fit_montage(REC.X, REC.subject)
    X, names = without(ROWS, "F4")
    own = arrangement(montage, NAMES, names)
    assert own is not None
    assert own.missing == [2]
    np.testing.assert_allclose(own.weight[0], [1, 1, 0], atol=0.05)
    found = own.apply(X)
    np.testing.assert_array_equal(found[:, [0, 1, 3]], X)
    truth = REC.X.numpy()[ROWS, 2]
    inside = found[:, 2] - found[:, 2].mean(1, keepdims=True), truth - truth.mean(1, keepdims=True)
    assert 1 - np.mean((inside[0] - inside[1]) ** 2) / np.mean(inside[1] ** 2) > 0.9
    turned = arrangement(montage, NAMES, [*reversed(names), "EOG"])
    assert turned is not None
    more = np.concatenate([X[:, ::-1], np.full_like(X[:, :1], np.nan)], 1)
    np.testing.assert_allclose(turned.apply(more), found, rtol=1e-5)


def test_a_model_says_what_it_lost_or_refuses(model: Any, tmp_path: Path) -> None:
    X, names = without(ROWS, "F4")
    with pytest.warns(UserWarning, match=r"channel 'F4' is missing: estimated .* explain 0\.9\d of it"):
        found = model.predict_proba(X, channels=names)
    whole = model.predict_proba(REC.X.numpy()[ROWS])
    assert np.mean(found.argmax(1) == whole.argmax(1)) > 0.9
    X, names = without(ROWS, "Oz")
    with pytest.raises(UserError, match=r"'Oz' is missing, and the others explain only 0\.0\d .* record it") as caught:
        model.predict_proba(X, channels=names)
    assert "\n" not in str(caught.value)
    X, names = without(ROWS, "F4", "F3")  # F4 alone is known by F3
    with pytest.raises(UserError, match="'F3' is missing"):
        model.predict(X, channels=names)
    X, names = without(ROWS, "F4")
    with pytest.raises(UserError, match="takes 4 channels"):
        model.predict_proba(X)
    # Saved, loaded, damaged.
    model.save(tmp_path / "model")
    again = at.load_model(tmp_path / "model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(again.predict_proba(X, channels=names), found)
        again.parts[0].montage = None  # as of a model that an earlier version saved
    with pytest.raises(UserError, match="takes 4 channels"):
        again.predict_proba(X, channels=names)
    with pytest.raises(ValueError, match=r"montage\.mean"):
        SavedModel(model.card, model.tensors() | {"montage.mean": torch.ones(3)})
    with pytest.raises(ValueError, match="share"):
        SavedModel(model.card, model.tensors() | {"montage.explained": 2 * torch.ones(4)})


def test_any_name_of_a_channel_can_be_missing() -> None:
    names = ["F3", "{oops}", "Oz"]
    known = Montage(torch.zeros(3), 0.99 * torch.ones(3, 3) + 0.01 * torch.eye(3), torch.full((3,), 0.9))
    filled = arrangement(known, names, ["F3", "Oz", "{0} {x"])
    assert filled is not None
    assert filled.notes[0].endswith("say so: --rename {0} {x={oops}")


def test_a_session_takes_other_channels(model: Any, tmp_path: Path) -> None:
    X, names = without(ROWS, "F4")
    with pytest.warns(UserWarning, match="'F4' is missing"):
        session = at.Session(model, channels=names)
    with pytest.warns(UserWarning, match="'F4' is missing"):
        together = model.predict_proba(X, channels=names)
    np.testing.assert_allclose([session.predict_proba(window) for window in X[:5]], together[:5], atol=1e-6)
    np.testing.assert_allclose(session.predict_proba(X[5:9]), together[5:9], atol=1e-6)
    with pytest.raises(UserError, match="opened with 3 names"):
        session.predict_proba(REC.X.numpy()[0])
    with pytest.raises(UserError):
        session.predict_proba(np.full((3, TIMES), np.nan, np.float32))
    session.save(tmp_path / "ann.session")
    with pytest.warns(UserWarning, match="'F4' is missing"):
        again = at.Session.load(tmp_path / "ann.session", model, channels=names)
    assert again.n_windows == 9
    turned = at.Session(model, channels=NAMES[::-1])
    np.testing.assert_allclose(
        turned.predict_proba(REC.X.numpy()[0][::-1]), at.Session(model).predict_proba(REC.X.numpy()[0]), atol=1e-6
    )
    with pytest.raises(UserError, match="no channel 'F3'"):
        at.Session(model, channels=["a", "b", "c", "d"])


def test_commands_estimate_and_rename(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "run" / "model")
    X, names = without(ROWS, "F4")
    np.savez(tmp_path / "less.npz", X=X, meta=json.dumps({"sfreq": 40.0, "channels": names}))
    called = {"sfreq": 40.0, "channels": ["F3", "Fz", "left", "Oz"]}
    np.savez(tmp_path / "called.npz", X=REC.X.numpy()[ROWS], meta=json.dumps(called))

    def table(*given: object) -> np.ndarray:
        result = CliRunner().invoke(app, list(map(str, given)), catch_exceptions=False)
        lines = [line.split(",") for line in result.stdout.splitlines()]
        return np.array([row[-2:] for row in lines[1:]], dtype=float)

    def stream(name: str, *given: object) -> np.ndarray:
        return table("stream", tmp_path / "run", "--source", tmp_path / name, "--hop", 1, *given)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        predicted = table("predict", tmp_path / "run", tmp_path / "less.npz")
    assert any("'F4' is missing" in str(one.message) for one in caught)
    np.testing.assert_allclose(stream("less.npz"), predicted, atol=2e-5)
    whole = model.predict_proba(REC.X.numpy()[ROWS])
    np.testing.assert_allclose(stream("called.npz", "--rename", "left=F4"), whole, atol=2e-5)
    renamed = table("predict", tmp_path / "run", tmp_path / "called.npz", "--rename", "left=F4")
    np.testing.assert_allclose(renamed, whole, atol=2e-5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table("predict", tmp_path / "run", tmp_path / "called.npz")
    assert any("--rename left=F4" in str(one.message) for one in caught), "it may have another name"


def test_predict_and_calibrate_arrange_channels_and_say_what_is_missing_once(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "run" / "model")
    X, names = without(ROWS, "F4")
    labelled = {"y": REC.y.numpy()[ROWS], "subject": np.full(len(ROWS), "ann")}
    np.savez(tmp_path / "less.npz", X=X, **labelled, meta=json.dumps({"sfreq": 40.0, "channels": names}))
    for command in (["predict"], ["calibrate", "--out", str(tmp_path / "ann")]):
        given = [command[0], str(tmp_path / "run"), str(tmp_path / "less.npz"), *command[1:]]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = CliRunner().invoke(app, given)
        assert result.exit_code == 0, result.output
        assert sum("'F4' is missing" in str(one.message) for one in caught) == 1, command


def test_renaming_that_cannot_be() -> None:
    assert renamed_channels(["a", "b"], ["a=F3"]) == ["F3", "b"]
    assert renamed_channels(["a", "b"], ["a=b", "b=a"]) == ["b", "a"]
    for wrong in (["c=d"], ["a"], ["a="], ["a=b"]):
        with pytest.raises(UserError):
            renamed_channels(["a", "b"], wrong)
    with pytest.raises(UserError, match="channel 'a' twice"):
        renamed_channels(["a", "b"], ["a=c", "a=d", "b=a"])
    with pytest.raises(UserError, match="no names"):
        renamed_channels(None, ["a=b"])


def test_few_people_or_one_channel_tell_nothing() -> None:
    assert fit_montage(REC.X[:48], REC.subject[:48]) is None
    assert fit_montage(REC.X[:, :1], REC.subject) is None
    assert fit_montage(0 * REC.X, REC.subject) is None
    assert 0 < LEAST_EXPLAINED < 1
    dead = REC.X.clone()
    dead[:, 1] = 3.0
    told = fit_montage(dead, REC.subject)
    assert told is not None
    assert told.explained[1] == 0
