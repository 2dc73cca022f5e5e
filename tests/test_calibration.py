"""A model is calibrated for a subject by labeled and unlabeled windows, saved, exported and used in sessions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.export import export_model
from autotransfer.folds import leave_one_subject_out
from autotransfer.models.adaptation import CLASS_MEANS, Adaptation
from autotransfer.models.building import CandidateFits, build_model
from autotransfer.models.calibration import LABELS
from autotransfer.models.loading import load_model
from autotransfer.models.model import Model
from autotransfer.person.calibration import adapt_model
from ensembles import with_known
from faults import call, few_settings, whole_run
from tiny import tiny, tiny_file

REC = at.synthetic(
    n_subjects=7, n_classes=3, windows_per_class=20, n_channels=4, n_times=64, sfreq=64, subject_shift=1.0
)
CLASSES = np.array(["fist", "open", "rest"])
X, Y, S = REC.X.numpy(), CLASSES[REC.y.numpy()], REC.subject.numpy()
NEW = 1  # whom no model below was trained on
SEEN, OWN = np.flatnonzero(S != NEW), np.flatnonzero(S == NEW)
FEW = np.sort(np.concatenate([OWN[Y[OWN] == name][:2] for name in CLASSES]))  # two windows of each class
REST = np.setdiff1d(OWN, FEW)


@cache
def single() -> at.CensoredClassifier:
    given = {"method": "none", "max_epochs": 15, "batch_size": 64, "lr": 0.005, "standardize": "train"}
    clf = at.CensoredClassifier(**given, sfreq=64, device="cpu", preset="paper")
    return clf.fit(X[SEEN], Y[SEEN], subjects=S[SEEN])


@cache
def mixed() -> at.CensoredClassifier:
    """The same estimator around networks and a closed form, two members each, in log-probability."""
    rec = at.Recordings(X[SEEN], Y[SEEN], S[SEEN], sfreq=64)
    folds = leave_one_subject_out(rec)[:2]
    brief = {"max_epochs": 8, "batch_size": 64, "lr": 0.005}
    settings = [
        at.Setting(standardize="trial", **brief),
        at.Setting(standardize="train", **brief),
        at.Setting(encoder="shallow", **brief),
        at.Setting(encoder="linear", represent="tangent", standardize="none"),
    ]
    jobs = [at.Job(setting, fold, seed=0) for setting in settings for fold in folds]
    states = [outcome.state for outcome in at.train(rec, jobs, device="cpu", progress=False)]
    parts = [CandidateFits(one, states[2 * k : 2 * k + 2], folds, 0.3 + 0.1 * k) for k, one in enumerate(settings)]
    found = copy.copy(single())
    found.model_ = build_model(rec, parts, scores={})
    return found


KINDS: dict[str, Callable[[], at.CensoredClassifier]] = {"single": single, "mixture": mixed}
both = pytest.mark.parametrize("kind", KINDS)


@cache
def calibrated_clf(kind: str) -> at.CensoredClassifier:
    return KINDS[kind]().calibrate(X[FEW], Y[FEW])


def with_card(model: Model, **changes: Any) -> Model:
    found = copy.copy(model)
    found.card = replace(model.card, **changes)
    return found


def with_model(clf: at.CensoredClassifier, model: Model) -> at.CensoredClassifier:
    found = copy.copy(clf)
    found.model_ = model
    return found


# the estimator


@both
def test_a_subject_gains_by_two_labels_per_class(kind: str) -> None:
    clf = KINDS[kind]()
    before, parts = clf.predict_proba(X[REST]), [part.correction for part in clf.model_.candidates]
    own = clf.calibrate(X[FEW], Y[FEW])
    gain = own.score(X[REST], Y[REST]) - clf.score(X[REST], Y[REST])
    assert gain > (0.1 if kind == "single" else 0.0)
    assert log_loss(own) < log_loss(clf)
    assert own is not clf
    assert parts == [None] * len(parts)
    np.testing.assert_array_equal(clf.predict_proba(X[REST]), before)
    assert log_loss(own.calibrate(X[REST[:20]], Y[REST[:20]])) < log_loss(own), "what is known already stays known"


def log_loss(clf: at.CensoredClassifier) -> float:
    place = np.searchsorted(clf.classes_, Y[REST])
    return float(-np.log(clf.predict_proba(X[REST])[np.arange(len(REST)), place]).mean())


@both
def test_labels_count_and_not_the_order_of_windows(kind: str) -> None:
    turned = FEW[::-1]
    again = KINDS[kind]().calibrate(X[turned], Y[turned])
    np.testing.assert_allclose(again.predict_proba(X[REST]), calibrated_clf(kind).predict_proba(X[REST]), atol=1e-4)
    wrong = KINDS[kind]().calibrate(X[FEW], np.roll(Y[FEW], 1))
    assert log_loss(wrong) > log_loss(calibrated_clf(kind))


@both
def test_unlabeled_windows_change_the_model(kind: str) -> None:
    clf = KINDS[kind]()
    before = clf.predict_proba(X[REST])
    own = clf.adapt(X[OWN])
    assert np.abs(own.predict_proba(X[REST]) - before).max() > 1e-3
    assert own.score(X[REST], Y[REST]) >= clf.score(X[REST], Y[REST])
    np.testing.assert_array_equal(clf.predict_proba(X[REST]), before)
    after_labels = calibrated_clf(kind).adapt(X[REST])
    assert np.abs(after_labels.predict_proba(X[REST]) - own.predict_proba(X[REST])).max() > 1e-4


@both
def test_a_model_without_effects_is_refused(kind: str) -> None:
    clf = with_model(KINDS[kind](), without_effects(KINDS[kind]().model_))
    told = r"no subject effects.* at least two subjects"
    for refused in (
        lambda: clf.calibrate(X[FEW], Y[FEW]),
        lambda: clf.adapt(X[FEW]),
        lambda: at.Session(clf, adapt=True),
    ):
        with pytest.raises(UserError, match=told):
            refused()
    at.Session(clf).predict_proba(X[FEW])


def without_effects(model: Model) -> Model:
    return with_known(model, effects=None)


# what held-out subjects gained decides


@both
def test_a_method_that_did_not_help_held_out_subjects_is_not_used(kind: str) -> None:
    clf = with_model(
        KINDS[kind](),
        with_card(KINDS[kind]().model_, calibrates_with=[5, 10], session_method="none", transductive_method="none"),
    )
    with pytest.warns(UserWarning, match=r"2 labeled windows per class did not raise"):
        same = clf.calibrate(X[FEW], Y[FEW])
    assert same.model_ is clf.model_
    np.testing.assert_array_equal(same.predict_proba(X[REST]), clf.predict_proba(X[REST]))
    five = np.concatenate([OWN[Y[OWN] == name][:5] for name in CLASSES])
    assert clf.calibrate(X[five], Y[five]).model_ is not clf.model_
    with pytest.warns(UserWarning, match=r"class means did not raise held-out scores"):
        assert clf.adapt(X[OWN]).model_ is clf.model_
    with pytest.warns(UserWarning, match=r"adaptation did not raise held-out scores; the session"):
        session = at.Session(clf, adapt=True)
    assert not session.adapts
    np.testing.assert_allclose(session.predict_proba(X[REST]), clf.predict_proba(X[REST]), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("labels", "counts_as"), [(1, 1), (2, 2), (4, 2), (7, 5), (10, 10), (20, 10)])
def test_the_class_with_the_fewest_labels_counts(labels: int, counts_as: int) -> None:
    """20 of two classes and so many of the third: as held-out subjects had with so many of each."""
    rows = np.concatenate([OWN[Y[OWN] == name][: labels if name == "open" else 20] for name in CLASSES])
    clf = single()
    done = with_model(clf, with_card(clf.model_, calibrates_with=[counts_as])).calibrate(X[rows], Y[rows])
    assert done.model_.candidates[0].correction is not None
    others = with_model(clf, with_card(clf.model_, calibrates_with=[k for k in LABELS if k != counts_as]))
    with pytest.warns(UserWarning, match=f"{counts_as} labeled windows? per class did not raise"):
        assert others.calibrate(X[rows], Y[rows]).model_ is others.model_


# on disk, exported, in a session


@both
def test_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    own = calibrated_clf(kind).model_
    own.save(tmp_path)
    again = load_model(tmp_path)
    want = own.predict_proba(REC.X[REST])
    np.testing.assert_array_equal(again.predict_proba(REC.X[REST]), want)
    np.testing.assert_array_equal(  # and what is known of the subject beyond the correction
        adapt_model(again, REC.X[REST]).predict_proba(REC.X[REST]),
        adapt_model(own, REC.X[REST]).predict_proba(REC.X[REST]),
    )
    export_model(own, "safetensors", tmp_path / "own.safetensors")
    np.testing.assert_array_equal(at.load_model(tmp_path / "own.safetensors").predict_proba(REC.X[REST]), want)


# A calibrated model as ONNX and for torch is in the quick suite already, in test_export_parts.


@both
def test_a_session_equals_batch_prediction(kind: str) -> None:
    own = calibrated_clf(kind)
    want, session = own.predict_proba(X[REST]), at.Session(own)
    one_by_one = np.stack([session.predict_proba(window) for window in X[REST]])
    np.testing.assert_allclose(one_by_one, want, rtol=0, atol=1e-5)
    np.testing.assert_allclose(at.Session(own).predict_proba(X[REST]), want, rtol=0, atol=1e-5)
    assert session.predict(X[REST[0]]) == own.predict(X[REST[:1]])[0]


@pytest.mark.parametrize(("kind", "of"), [("single", "everybody"), ("mixture", "the person")])
def test_an_adapting_session(kind: str, of: str, tmp_path: Path) -> None:
    clf = KINDS[kind]() if of == "everybody" else calibrated_clf(kind)
    clf = with_model(clf, with_card(clf.model_, session_method=CLASS_MEANS))
    session = at.Session(clf, adapt=True)
    assert session.adapts
    one_by_one = [session.predict_proba(window) for window in X[REST[:20]]]
    session.save(tmp_path / "ann.session")
    one_by_one += [session.predict_proba(window) for window in X[REST[20:]]]
    together = at.Session(clf, adapt=True).predict_proba(X[REST])
    np.testing.assert_allclose(np.stack(one_by_one), together, rtol=0, atol=1e-5)
    plain = clf.predict_proba(X[REST])
    np.testing.assert_allclose(one_by_one[0], plain[0], rtol=0, atol=1e-5)  # nothing is known before
    assert np.abs(np.log(together) - np.log(plain)).max() > 0.02

    again = at.Session.load(tmp_path / "ann.session", clf)
    assert (again.adapts, again.n_windows) == (True, 20)
    np.testing.assert_array_equal(
        np.stack([again.predict_proba(window) for window in X[REST[20:]]]), np.stack(one_by_one[20:])
    )
    again.reset()
    np.testing.assert_array_equal(again.predict_proba(X[REST[0]]), one_by_one[0])
    other = calibrated_clf(kind) if of == "everybody" else KINDS[kind]()
    with pytest.raises(UserError, match="belongs to another model"):
        at.Session.load(tmp_path / "ann.session", other)


def test_a_model_that_is_adapted_predicts_as_the_em_algorithm() -> None:
    clf = with_model(mixed(), with_card(mixed().model_, session_method=CLASS_MEANS))
    ensemble = clf.model_.ensemble
    latents, log_p = ensemble.predict_with_latents(REC.X[REST], ensemble.start_subject())
    adapted = Adaptation(*ensemble.effects_and_weights).adapt_to_all(ensemble.project(latents), log_p)
    np.testing.assert_allclose(clf.adapt(X[REST]).predict_proba(X[REST]), adapted.softmax(-1), rtol=0, atol=1e-4)
    assert np.abs((adapted.softmax(-1) - log_p.softmax(-1)).numpy()).max() > 0.01


# in fit, as MOABB's cross-subject modes have it


@cache
def fitted_with(**rows: tuple[int, ...]) -> at.CensoredClassifier:
    given = {name: (Y if name.startswith("y") else X)[list(own)] for name, own in rows.items()}
    return clone(single()).fit(X[SEEN], Y[SEEN], subjects=S[SEEN], **given)


def test_fit_takes_windows_of_the_target_subject() -> None:
    few, rest = tuple(FEW.tolist()), tuple(REST.tolist())
    labeled = fitted_with(X_target_labeled=few, y_target_labeled=few)
    unlabeled = fitted_with(X_target_unlabeled=rest)
    everything = fitted_with(X_target_labeled=few, y_target_labeled=few, X_target_unlabeled=rest)
    for found, want in {
        labeled: calibrated_clf("single"),
        unlabeled: single().adapt(X[REST]),
        everything: calibrated_clf("single").adapt(X[REST]),
    }.items():
        np.testing.assert_array_equal(found.predict_proba(X[REST]), want.predict_proba(X[REST]))
    assert len({found.predict_proba(X[REST]).tobytes() for found in (labeled, unlabeled, everything)}) == 3


# the command


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrate")
    with few_settings():
        return whole_run(folder / "run", tiny_file(folder, n_subjects=5))


def person(path: Path, **changes: Any) -> Path:
    """Six labeled windows of a new subject, without and with what a file may say beside."""
    rec = tiny(n_subjects=6, seed=3)
    rows = np.flatnonzero(rec.subject.numpy() == 5)[:6]
    arrays = {"X": rec.X.numpy()[rows], "y": np.array(rec.classes)[rec.y.numpy()[rows]]} | changes
    np.savez(path, **{name: values for name, values in arrays.items() if values is not None})
    return path


def test_the_command(run: Path, tmp_path: Path) -> None:
    data, out = person(tmp_path / "ann.npz", subject=np.full(6, "ann")), tmp_path / "ann"
    model = load_model(run / "model")
    with_card(model, calibrates_with=[1, 2]).save(run / "model")  # whether or not labels raised its held-out scores
    result = call("calibrate", run, data, "--out", out)
    assert (result.code, result.err) == (0, "")
    assert f"calibrated model: {out / 'model'}" in result.out
    assert "labeled windows: left 3, right 3" in result.out
    with np.load(data) as stored:
        windows, y = torch.from_numpy(stored["X"]), stored["y"]
    before, own = load_model(run / "model"), load_model(out / "model")
    assert all(part.correction is None for part in before.candidates)
    want = own.predict_proba(windows)
    assert np.abs(want - before.predict_proba(windows)).max() > 1e-3
    counts = [np.flatnonzero(y == name) for name in own.card.classes]
    assert [len(rows) for rows in counts] == [3, 3]

    assert call("predict", out, data, "--out", tmp_path / "p.csv").code == 0
    found = np.genfromtxt(tmp_path / "p.csv", delimiter=",", names=True)
    np.testing.assert_allclose(np.c_[found["p_left"], found["p_right"]], want, atol=1e-6)
    exported = call("export", out, "--format", "safetensors")
    assert (exported.code, exported.err) == (0, "")
    assert (out / "model.safetensors").exists()
    assert at.Session(out).predict_proba(windows[0]).shape == (2,)
    other = person(tmp_path / "bea.npz", X=1.1 * windows.numpy())
    there = call("calibrate", run, other, "--out", out)
    assert f"{out / 'model'}, which replaced an earlier model" in there.out
    assert call("calibrate", run, data, "--out", out).code == 0
    again = call("calibrate", out, data, "--out", tmp_path / "more")
    assert again.code == 0
    more = load_model(tmp_path / "more" / "model").predict_proba(windows)
    assert np.abs(np.log(more) - np.log(want)).max() > 0.1, "what is known already stays known, and more is learned"
