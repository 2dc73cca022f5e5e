"""Adaptive models give the same numbers in training, prediction, sessions and estimators."""

from __future__ import annotations

import numpy as np
import pytest

import autotransfer as at
from autotransfer.jobs import Outcome
from autotransfer.models.building import CandidateFits, build_model
from autotransfer.models.model import Model
from autotransfer.person.predictions import make_prediction_table
from autotransfer.recordings import Raw
from test_align import MIXED
from tiny import people

ADAPTED = [*MIXED, ("transductive", "transductive"), ("train", "transductive")]
REC = people()
X, Y, IDS = REC.X.numpy(), REC.y.numpy(), np.array([f"p{i}" for i in REC.subject])


def trained(kind: str, align: str, folds: slice = slice(0, 2)) -> tuple[list[Outcome], Model]:
    setting = at.Setting(standardize=kind, align=align, max_epochs=3, batch_size=16, lr=1e-2)
    own = at.leave_one_subject_out(REC)[folds]
    outcomes = at.train(REC, [at.Job(setting, fold) for fold in own], "cpu")
    return outcomes, build_model(REC, [CandidateFits(setting, [o.state for o in outcomes], own)], scores={})


@pytest.mark.parametrize(("kind", "align"), ADAPTED)
def test_a_saved_model_predicts_what_training_evaluated(kind: str, align: str) -> None:
    (outcome,), model = trained(kind, align, slice(1, 2))
    held = np.union1d(outcome.job.fold.validation, outcome.job.fold.test)
    got = model.predict_proba(REC.X[held], REC.subject[held])
    _, logits = at.encode(REC, [outcome], held)
    np.testing.assert_allclose(got, logits[0].double().softmax(-1).numpy(), atol=2e-5)
    for rows, confusion in ((outcome.job.fold.test, outcome.test_confusion),
                            (outcome.job.fold.validation, outcome.validation_confusion)):  # fmt: skip
        alone = model.predict_proba(REC.X[rows])  # without ids: one subject
        np.testing.assert_allclose(alone, got[np.isin(held, rows)], atol=1e-6)
        assert confusion.trace() == (alone.argmax(1) == Y[rows]).sum()


def test_each_subject_of_a_file_is_predicted_alone_and_in_order() -> None:
    _, model = trained("online", "online")
    table = make_prediction_table(model, Raw(X=X, subject=IDS))
    columns = [name for name in table if name.startswith("p_")]
    for name in np.unique(IDS):
        rows = name == IDS
        np.testing.assert_allclose(table.loc[rows, columns], model.predict_proba(REC.X[rows]), atol=1e-5)
    together = make_prediction_table(model, Raw(X=X))[columns]
    assert np.abs(together - table[columns]).max().max() > 0.01, "one person's windows are not everybody's"


def test_the_validation_score_predicts_each_subject_alone() -> None:
    clf = at.CensoredClassifier(
        method="none", align="online", max_epochs=3, batch_size=16, device="cpu", validation_subjects=["p1", "p3"]
    ).fit(X, Y, subjects=IDS)
    held = np.isin(IDS, ["p1", "p3"])
    predicted = clf.predict(X[held], subjects=IDS[held])
    recall = [np.mean(predicted[Y[held] == c] == c) for c in (0, 1)]
    assert clf.validation_score_ == pytest.approx(np.mean(recall))
