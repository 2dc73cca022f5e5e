"""Our estimators as MOABB's pipelines, unchanged: MOABB routes the subjects of the training trials to fit by itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import autotransfer as at

pytest.importorskip("moabb", reason="MOABB is an optional package")
pytestmark = [
    pytest.mark.filterwarnings("ignore:Montage name:FutureWarning"),  # of MOABB's, about MNE
    pytest.mark.filterwarnings("ignore:Creating a dataset without"),  # of MOABB's, about h5py
]

COLUMNS = {"score", "time", "samples", "subject", "session", "channels", "dataset", "pipeline"}
SEEN: list[tuple[int, dict[int, int]]] = []


class Watched(at.CensoredClassifier):
    """Notes how many trials of each subject fit was given."""

    def fit(self, X: object, y: object, *, subjects: object = None) -> Watched:
        people, counts = np.unique(np.asarray(subjects), return_counts=True)
        SEEN.append((len(X), dict(zip(people.tolist(), counts.tolist(), strict=True))))
        return super().fit(X, y, subjects=subjects)


def evaluation(folder: Path, **options: object) -> object:
    from moabb.datasets.fake import FakeDataset
    from moabb.evaluations import CrossSubjectEvaluation
    from moabb.paradigms import LeftRightImagery

    fake = FakeDataset(
        ["left_hand", "right_hand"], n_subjects=4, n_sessions=1, n_runs=1, n_events=12, duration=40, seed=1
    )
    return CrossSubjectEvaluation(
        paradigm=LeftRightImagery(resample=32), datasets=[fake], overwrite=True, hdf5_path=str(folder), **options
    )


def test_cross_subject_evaluation(tmp_path: Path) -> None:
    SEEN.clear()
    brief = {"max_epochs": 2, "sfreq": 32, "device": "cpu"}
    with sklearn.config_context(enable_metadata_routing=True):  # only to be allowed to call set_fit_request
        asked = at.CensoredClassifier(**brief).set_fit_request(subjects=True)
    results = evaluation(tmp_path).process(
        {
            "watched": Watched(**brief),
            "asked": asked,
            "in a pipeline": make_pipeline(FunctionTransformer(), at.CensoredClassifier(**brief)),
            "auto": at.AutoTransferClassifier(epochs=1, sfreq=32, device="cpu"),
        }
    )
    assert set(results.columns) >= COLUMNS
    assert set(results["subject"].astype(str)) == {"1", "2", "3", "4"}
    assert results.groupby("pipeline").size().to_dict() == dict.fromkeys(
        ["watched", "asked", "in a pipeline", "auto"], 4
    )
    assert results["score"].between(0, 1).all()
    assert (36, {1: 12, 2: 12, 3: 12}) in SEEN
    assert len(SEEN) == 4
    assert all(n == 36 and len(people) == 3 for n, people in SEEN)
    by_pipeline = results.pivot(index="subject", columns="pipeline", values="score")
    np.testing.assert_array_equal(by_pipeline["watched"], by_pipeline["asked"])
    np.testing.assert_array_equal(by_pipeline["watched"], by_pipeline["in a pipeline"])

    epochs = evaluation(tmp_path, return_epochs=True, suffix="epochs")  # which bring their rate along
    same = epochs.process({"epochs": at.CensoredClassifier(max_epochs=2, device="cpu")})
    np.testing.assert_array_equal(same.sort_values("subject")["score"], by_pipeline["watched"])


def test_a_grid_inside_the_evaluation(tmp_path: Path) -> None:
    """MOABB's inner grid search splits trials, and the ids with them."""
    SEEN.clear()
    evaluation(tmp_path).process(
        {"watched": Watched(max_epochs=1, sfreq=32, device="cpu")}, param_grid={"watched": {"strength": [0.1, 1.0]}}
    )
    assert len(SEEN) == 4 * (2 * 3 + 1)
    assert all(n in (24, 36) and sum(people.values()) == n for n, people in SEEN)
