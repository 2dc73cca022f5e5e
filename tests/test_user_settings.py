"""A user's settings work in estimators, in a run, and from an outcome to a saved model."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.jobs import Outcome
from autotransfer.runs.options import RunOptions
from tiny import auto_classifier, described, tiny

RECORDINGS = tiny()
X = RECORDINGS.X.numpy()
Y = np.array(["left", "right"])[RECORDINGS.y.numpy()]
SUBJECTS = np.array(["Ada", "Bo", "Cem", "Dora"])[RECORDINGS.subject.numpy()]
SMALL: dict[str, Any] = {"max_epochs": 2, "batch_size": 8, "lr": 1e-2}
SETTING = at.Setting(method="mmd", mode="conditional", strength=0.3, mixup=0.2, temporal_kernel=9, **SMALL)


def test_a_classifier_of_one_setting() -> None:
    clf = clone(at.CensoredClassifier(setting=SETTING, device="cpu"))
    assert clf.get_params()["setting"] == SETTING
    clf = pickle.loads(pickle.dumps(clf.fit(X, Y, subjects=SUBJECTS)))
    assert clf.setting_ == SETTING == at.Setting.from_dict(clf.model_.card.candidates[0].setting)
    other = clone(clf).set_params(setting=SETTING.replace(strength=3.0)).fit(X, Y, subjects=SUBJECTS)
    assert np.abs(clf.predict_proba(X) - other.predict_proba(X)).max() > 1e-4


def test_a_setting_equals_the_parameters_that_it_replaces() -> None:
    parameters = {"method": "mmd", "mode": "marginal", "strength": 0.3, **SMALL}
    one = at.CensoredClassifier(**parameters, device="cpu").fit(X, Y, subjects=SUBJECTS)
    two = at.CensoredClassifier(setting=one.setting_, device="cpu").fit(X, Y, subjects=SUBJECTS)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))


@pytest.mark.parametrize("given", [{"setting": SETTING, "lr": 0.1}, {"setting": "mmd"}])
def test_parameters_hidden_by_a_setting_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        at.CensoredClassifier(**given).fit(X, Y, subjects=SUBJECTS)


def test_a_run_of_listed_settings() -> None:
    listed = [SETTING, at.Setting(encoder="templates", standardize="train")]
    auto = auto_classifier(settings=listed, seeds=1, time="none", device="cpu")
    assert clone(auto).get_params()["settings"] == listed
    options = auto._resolve_options()
    assert options.settings() == [listed[1], SETTING], "the first without a penalty is the baseline"
    assert auto.set_params(settings=None, grid=listed)._resolve_options() == options
    found = clone(auto).fit(X, Y, subjects=SUBJECTS)
    results = found.results_
    assert set(results["encoder"]) == {"eegnet", "templates"}
    assert set(results[results["encoder"] == "eegnet"]["max_epochs"]) == {2}, "each has its own number of epochs"
    assert found.choice_["paper_network"]["encoder"] == "templates"
    assert {json.dumps(part.setting.to_dict()) for part in found.model_.candidates} <= {
        json.dumps(one.to_dict()) for one in listed
    }
    pickle.loads(pickle.dumps(found))


def test_settings_with_penalties_alone_have_a_baseline() -> None:
    options = described(source="x", grid=[SETTING])  # type: ignore[arg-type]
    assert options.settings() == [SETTING.uncensored("shuffled"), SETTING]
    assert options.reference == options.settings()[0]
    assert RunOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options
    asked = described(source="x", grid=[SETTING], max_epochs=7, lr=0.5, encoder="shallow")  # type: ignore[arg-type]
    assert {(one.max_epochs, one.training.lr, one.encoder) for one in asked.settings()} == {(7, 0.5, "shallow")}


@pytest.mark.parametrize(
    ("grid", "rest"),
    [
        ("huge", {}),
        ([], {}),
        (["mmd"], {}),
        (3, {}),
        ("nowhere.json", {}),
        ('[{"dropuot": 1}]', {}),
        ([SETTING], {"adaptation": "online"}),
        ([SETTING], {"search": "tpe"}),
    ],
)
def test_invalid_grids_are_refused(grid: Any, rest: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        described(source="x", grid=grid, **rest)
    with pytest.raises(UserError, match="both given"):
        auto_classifier("quick", settings=[SETTING]).fit(X, Y, subjects=SUBJECTS)


def test_an_outcome_is_a_model_that_predicts_as_the_training_did(tmp_path: Path) -> None:
    fold = at.leave_one_subject_out(RECORDINGS)[0]
    setting = at.Setting(standardize="train", **SMALL)
    outcomes = at.train(RECORDINGS, [at.Job(setting, one) for one in (fold, fold.swapped())], "cpu", progress=False)
    for outcome in outcomes:
        assert isinstance(outcome, Outcome)
        rows = outcome.job.fold.test
        known = outcome.held_out_log_probs[
            len(outcome.job.fold.validation) :
        ]  # by the checkpoint that was selected on the validation subject
        model = outcome.model()
        told = torch.from_numpy(model.predict_proba(RECORDINGS.X[rows])).log()
        torch.testing.assert_close(told.float(), known.float(), atol=1e-4, rtol=1e-4)
    at.save_model(model, tmp_path / "one")
    again = at.load_model(tmp_path / "one")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_save_model_takes_estimators_and_refuses_what_is_none(tmp_path: Path) -> None:
    clf = at.CensoredClassifier(setting=SETTING, device="cpu").fit(X, Y, subjects=SUBJECTS)
    at.save_model(clf, tmp_path / "model")
    np.testing.assert_array_equal(at.load_model(tmp_path / "model").predict_proba(X), clf.predict_proba(X))
    with pytest.raises(UserError, match="needs a model or a fitted estimator"):
        at.save_model(at.CensoredClassifier(), tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        at.save_model(clf, tmp_path / "file")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.sqlite").write_text("")
    with pytest.raises(UserError, match="folder of a run"):
        at.save_model(clf, tmp_path / "run")
    for use in (lambda: at.save_model(clf, None), lambda: at.load_model(None), lambda: at.from_pretrained(None)):  # type: ignore[arg-type]
        with pytest.raises(UserError, match="the path is None; give "):
            use()
