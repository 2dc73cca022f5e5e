"""AutoTransferClassifier performs the whole procedure in fit, with or without a run folder."""

from __future__ import annotations

import json
import pickle
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

import autotransfer as at
from autotransfer import schema
from autotransfer.errors import UserError
from autotransfer.estimator import run_estimator as module
from autotransfer.model.encoders import ENCODERS
from autotransfer.models.loading import load_model
from autotransfer.runs.database import RunDatabase
from autotransfer.runs.run import Run
from autotransfer.search.procedure import perform_plan
from faults import few_linear_candidates
from tiny import auto_classifier, create_run, described, tiny, tiny_file

pytestmark = pytest.mark.usefixtures("brief_results")

RECORDINGS = tiny()
X = RECORDINGS.X.numpy()
Y = np.array(["left", "right"])[RECORDINGS.y.numpy()]
SUBJECTS = np.array(["Ada", "Bo", "Cem", "Dora"])[RECORDINGS.subject.numpy()]


def small(**changes: object) -> at.AutoTransferClassifier:
    parameters = {"max_epochs": 2, "batch_size": 8, "lr": 1e-2, "device": "cpu", "sfreq": 16, "seeds": 1} | changes
    return auto_classifier(**parameters)


@pytest.fixture(scope="module", autouse=True)
def few_settings() -> Iterator[None]:
    """The baseline and two censors: what a grid holds is no matter of this file."""
    with pytest.MonkeyPatch.context() as patch, few_linear_candidates():
        patch.setattr("autotransfer.runs.options.grid", lambda name: at.grid(name)[:3])
        yield


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> at.AutoTransferClassifier:
    return small(run_folder=tmp_path_factory.mktemp("auto") / "run").fit(X, Y, subjects=SUBJECTS)


def test_it_is_the_run_of_the_command_line(fitted: at.AutoTransferClassifier, tmp_path: Path) -> None:
    given = {"max_epochs": 2, "batch_size": 8, "lr": 1e-2, "device": "cpu", "adaptation": None, "time": "30m"}
    options = described(source=str(tiny_file(tmp_path)), **given)
    run = create_run(tmp_path / "run", options)
    choice = perform_plan(run, lambda _: None, progress=False)
    model = load_model(tmp_path / "run" / "model")
    assert fitted.choice_["chosen"] == schema.to_values(choice.chosen)
    assert [stage["name"] for stage in fitted.choice_["stages"]] == [stage.name for stage in choice.stages]
    assert list(fitted.choice_["test_scores"]["chosen"]) == ["Ada", "Bo", "Cem", "Dora"]
    assert list(fitted.choice_["nested_test_scores"].values()) == list(choice.nested_test_scores.values())
    assert fitted.best_setting_ == model.candidates[int(np.argmax(model.card.weights))].setting
    np.testing.assert_array_equal(fitted.predict_proba(X), model.predict_proba(RECORDINGS.X))
    assert fitted.classes_.tolist() == ["left", "right"]
    assert set(fitted.predict(X)) <= {"left", "right"}


def test_an_unknown_sampling_rate_warns_once_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise UserError("enough")

    monkeypatch.setattr(module, "start_run", stop)
    with pytest.warns(UserWarning, match=r"AutoTransferClassifier\(sfreq=200\)") as told, pytest.raises(UserError):
        small(sfreq=None).fit(X, Y, subjects=SUBJECTS)
    assert [warning.filename for warning in told] == [__file__], "once, and where fit was called"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserError, match="enough"):
            small().fit(X, Y, subjects=SUBJECTS)


def test_the_folder_holds_what_a_run_leaves(fitted: at.AutoTransferClassifier) -> None:
    folder = Path(fitted.run_folder)
    assert json.loads((folder / "choice.json").read_text()) == fitted.choice_
    stored = pd.read_csv(folder / "results.csv", keep_default_na=False)
    assert stored["key"].tolist() == fitted.results_["key"].tolist()
    np.testing.assert_allclose(stored["test_score"], fitted.results_["test_score"])
    assert set(fitted.results_["test_subject"]) == {"Ada", "Bo", "Cem", "Dora"}
    pd.testing.assert_frame_equal(pd.read_csv(folder / "scores.csv"), fitted.scores_)
    by_subject = fitted.scores_.query("role == 'delivered'").set_index("subject")["score"]
    assert by_subject.to_dict() == fitted.choice_["nested_test_scores"]
    assert at.plot.subjects(folder) == at.plot.subjects(fitted)
    assert (folder / "report.html").stat().st_size > 1e5
    assert Run.open(folder).recordings.n_windows == 48, "autotransfer resume must find the data"


def test_fit_continues_and_trains_nothing_twice(
    fitted: at.AutoTransferClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted before anything was weighed, then continued; then once more, when there is nothing left to do."""
    partial = clone(fitted).set_params(run_folder=tmp_path / "run")
    from autotransfer.search import procedure

    with monkeypatch.context() as patch:
        patch.setattr(procedure, "select", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            partial.fit(X, Y, subjects=SUBJECTS)
    with pytest.raises(NotFittedError):
        partial.predict(X)
    before = RunDatabase(tmp_path / "run" / "run.sqlite").counts()
    assert set(before) == {"done"}
    partial.fit(X, Y, subjects=SUBJECTS)
    assert timeless(partial.choice_) == timeless(fitted.choice_)
    np.testing.assert_array_equal(partial.predict_proba(X), fitted.predict_proba(X))
    monkeypatch.setattr(module, "perform_plan", _interrupt)  # a finished run needs none of it
    again = clone(partial).fit(X, Y, subjects=SUBJECTS)
    assert {entry.starts for entry in RunDatabase(tmp_path / "run" / "run.sqlite").entries()} == {1}
    assert timeless(again.choice_) == timeless(fitted.choice_)


def timeless(choice: dict[str, Any]) -> dict[str, Any]:
    """Without what the clock says."""
    return choice | {"stages": [stage | {"seconds": 0.0} for stage in choice["stages"]]}


def _interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_folder_with_another_run_is_refused(fitted: at.AutoTransferClassifier) -> None:
    for other in (
        {"X": X + 1, "y": Y, "subjects": SUBJECTS},
        {"X": X, "y": np.roll(Y, 1), "subjects": SUBJECTS},
        {"X": X, "y": Y, "subjects": np.char.upper(SUBJECTS)},
    ):
        with pytest.raises(UserError, match=r"the input differs .*; restore it, or start a new run in another folder"):
            clone(fitted).fit(**other)
    with pytest.raises(UserError, match="holds a run with max_epochs=2, not 3; choose another run_folder"):
        clone(fitted).set_params(max_epochs=3).fit(X, Y, subjects=SUBJECTS)
    with pytest.raises(UserError, match="holds a run with seed=0, not 1"):
        clone(fitted).set_params(random_state=1).fit(X, Y, subjects=SUBJECTS)


def test_latents_of_members_are_concatenated(fitted: at.AutoTransferClassifier) -> None:
    z = fitted.transform(X)
    latents = [member for stack in fitted.model_.ensemble.latents(RECORDINGS.X) for member in stack.numpy()]
    assert len(latents) == fitted.model_.card.members > 4
    np.testing.assert_array_equal(z, np.concatenate(latents, 1))
    assert len(fitted.get_feature_names_out()) == z.shape[1]


def test_three_subjects_are_enough_and_nothing_is_left_behind_without_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each model trains on one subject, so there is nobody to tell apart and the report says nothing of leakage."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    three = SUBJECTS != "Dora"
    auto = small(max_epochs=1).fit(X[three], Y[three], groups=SUBJECTS[three])
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")
    assert not any(auto.summary_.leakage.values())
    again = pickle.loads(pickle.dumps(auto))
    np.testing.assert_array_equal(again.predict_proba(X), auto.predict_proba(X))
    page = again.report(tmp_path / "report.html").read_text()
    assert "AutoTransferClassifier(" in page, "the command that makes this run again"
    assert str(tmp_path) not in page


def linear(n_channels: int, n_times: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(n_channels * n_times, 3))


@pytest.mark.slow
def test_a_custom_encoder(tmp_path: Path) -> None:
    auto = small(max_epochs=1, encoder=linear, run_folder=tmp_path / "run").fit(X, Y, subjects=SUBJECTS)
    own = [part for part in auto.model_.candidates if part.setting.encoder not in ENCODERS]
    assert {part.setting.encoder for part in own} == {f"{__name__}:linear"}, (
        "what autotransfer resume --encoder is told"
    )
    assert {part.members.latent_dim for part in own} == {3}
    assert pickle.loads(pickle.dumps(auto)).predict(X).tolist() == auto.predict(X).tolist()
    with pytest.raises(UserError, match=r"the encoder .*linear' is not known here"):
        clone(auto).set_params(encoder="eegnet").fit(X, Y, subjects=SUBJECTS)


def test_none_is_the_default_of_a_parameter() -> None:
    assert auto_classifier(time=None)._resolve_options() == at.AutoTransferClassifier()._resolve_options()
    assert auto_classifier()._resolve_options().seconds == 600
    assert auto_classifier(time="none")._resolve_options().seconds is None
    assert auto_classifier(rule="published")._resolve_options().seconds is None
    with pytest.raises(UserError, match="which is a parameter"):
        at.AutoTransferClassifier(seeds=1, options={"seeds": 2})._resolve_options()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"options": 3}, "options is 3; give a dict"),
        ({"options": [("kinds", "linear")]}, "options is .*; give a dict"),
        ({"options": {"window": 2}}, "options has .window., which applies to files only"),
        ({"options": {"clean": True}}, r"options has .clean., .* at\.load"),
        ({"metric": "r2"}, "unknown metric 'r2'"),
        ({"run_folder": ""}, "run_folder is ''; give the path of a folder, or None"),
        ({"run_folder": 3}, "run_folder is 3; give the path of a folder, or None"),
    ],
)
def test_parameters_of_wrong_types_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        at.AutoTransferClassifier(sfreq=16, **parameters).fit(X, Y, subjects=SUBJECTS)
