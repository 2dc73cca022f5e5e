"""Estimators are used as MOABB pipelines, which route subjects and target windows to fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GroupShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import autotransfer as at

pytest.importorskip("moabb", reason="MOABB is an optional package")
pytestmark = [
    pytest.mark.filterwarnings("ignore:Montage name:FutureWarning"),  # of MOABB's, about MNE
    pytest.mark.filterwarnings("ignore:Creating a dataset without"),  # of MOABB's, about h5py
]

COLUMNS = {"score", "time", "samples", "subject", "session", "channels", "dataset", "pipeline"}
BRIEF = {"max_epochs": 2, "sfreq": 32, "device": "cpu"}
MET: list[tuple[at.CensoredClassifier, dict[str, Any], list[int]]] = []


class Met(at.CensoredClassifier):
    """Notes what fit was given of the person, and how many windows each call predicts."""

    def fit(self, X: object, y: object, **given: Any) -> Met:
        self.calls_: list[int] = []
        people, counts = np.unique(given["subjects"], return_counts=True)
        assert (len(X), len(people), set(counts)) == (36, 3, {12})  # type: ignore[arg-type]
        MET.append((self, {k: v for k, v in given.items() if k != "subjects"}, self.calls_))
        super().fit(X, y, **given)
        return self

    def predict_proba(self, X: Any, subjects: object = None) -> Any:
        self.calls_.append(len(X))
        return super().predict_proba(X, subjects)


def evaluation(folder: Path, n_subjects: int = 4, **options: object) -> Any:
    from moabb.datasets.fake import FakeDataset
    from moabb.evaluations import CrossSubjectEvaluation
    from moabb.paradigms import LeftRightImagery

    fake = FakeDataset(
        ["left_hand", "right_hand"], n_subjects=n_subjects, n_sessions=1, n_runs=1, n_events=12, duration=40, seed=1
    )
    return CrossSubjectEvaluation(
        paradigm=LeftRightImagery(resample=32), datasets=[fake], overwrite=True, hdf5_path=str(folder), **options
    )


@pytest.mark.slow
def test_cross_subject_evaluation(tmp_path: Path) -> None:
    MET.clear()
    with sklearn.config_context(enable_metadata_routing=True):  # only to be allowed to call set_fit_request
        asked = at.CensoredClassifier(**BRIEF).set_fit_request(subjects=True)
    pipeline = make_pipeline(FunctionTransformer(), at.CensoredClassifier(**BRIEF))
    auto = at.AutoTransferClassifier(max_epochs=1, sfreq=32, device="cpu")
    results = evaluation(tmp_path).process(
        {"met": Met(**BRIEF), "asked": asked, "in a pipeline": pipeline, "auto": auto}
    )
    assert set(results.columns) >= COLUMNS
    assert set(results["subject"].astype(str)) == {"1", "2", "3", "4"}
    assert results.groupby("pipeline").size().to_dict() == dict.fromkeys(["met", "asked", "in a pipeline", "auto"], 4)
    assert results["score"].between(0, 1).all()
    assert [given for _, given, _ in MET] == [{}] * 4
    by_pipeline = results.pivot(index="subject", columns="pipeline", values="score")
    np.testing.assert_array_equal(by_pipeline["met"], by_pipeline["asked"])
    np.testing.assert_array_equal(by_pipeline["met"], by_pipeline["in a pipeline"])

    epochs = evaluation(tmp_path, return_epochs=True, suffix="epochs")  # which bring their rate along
    same = epochs.process({"epochs": at.CensoredClassifier(max_epochs=2, device="cpu")})
    np.testing.assert_array_equal(same.sort_values("subject")["score"], by_pipeline["met"])


# the modes

MODES = {  # what fit is given of the 12 trials of the person who is tested, and how many are left to test
    "train": ({}, 12),
    "train_trialwise": ({}, 12),
    "train_and_target_unlabeled_20p": ({"X_target_unlabeled": 2}, 10),
    "train_and_target_unlabeled_50p": ({"X_target_unlabeled": 6}, 6),
    "train_and_target_unlabeled_full": ({"X_target_unlabeled": 12}, 12),
    "train_and_target_labeled_20p": ({"X_target_labeled": 2, "y_target_labeled": 2}, 10),
    "train_and_target_labeled_50p": ({"X_target_labeled": 6, "y_target_labeled": 6}, 6),
}


def modes() -> set[str]:
    protocols = pytest.importorskip("moabb.evaluations.protocols", reason="MOABB before 1.6 has no cross-subject modes")
    return {mode.value for mode in protocols.CrossSubjectMode}


def test_every_mode_is_tested() -> None:
    assert modes() == set(MODES)


# The others differ in the number of windows, or in how many a call has.
QUICK = {"train_and_target_labeled_50p"}


@pytest.mark.parametrize("mode", [pytest.param(one, marks=[pytest.mark.slow] * (one not in QUICK)) for one in MODES])
def test_a_mode(mode: str, tmp_path: Path) -> None:
    if mode not in modes():
        pytest.skip(f"this MOABB has no mode {mode}")
    MET.clear()
    results = evaluation(tmp_path, cs_mode=mode).process({"met": Met(**BRIEF)})
    assert results["score"].between(0, 1).all()
    assert len(results) == 4
    of_person, tested = MODES[mode]
    assert len(MET) == 4
    for clf, given, calls in MET:
        assert {name: len(values) for name, values in given.items()} == of_person
        assert calls == ([1] * tested if mode == "train_trialwise" else [tested])
        assert (clf.model_.is_calibrated) == bool(of_person)


ONE_FOLD = {"cv_class": GroupShuffleSplit, "cv_kwargs": {"n_splits": 1, "test_size": 1}, "random_state": 0}


def test_earlier_steps_transform_target_windows(tmp_path: Path) -> None:
    """MOABB hands them out as they are; scikit-learn's `transform_input` takes them through the steps."""
    modes()
    MET.clear()
    pipeline = make_pipeline(FunctionTransformer(halved), Met(**BRIEF), transform_input=["X_target_unlabeled"])
    evaluation(tmp_path, cs_mode="train_and_target_unlabeled_20p", **ONE_FOLD).process({"in a pipeline": pipeline})
    ((_, given, _),) = MET
    assert given["X_target_unlabeled"].shape[1:] == (3, 48)


def halved(X: np.ndarray) -> np.ndarray:
    return X[..., ::2]
