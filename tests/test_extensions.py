"""A registered metric is used by estimators and commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotransfer as at
from autotransfer.recordings import save_npz
from autotransfer.runs.choice import read_choice
from autotransfer.runs.run import Run
from autotransfer.search.evaluation import delivered_predictions
from autotransfer.tasks import Metric
from autotransfer.tasks.classification import METRICS
from faults import printed
from tiny import make_evidence, tiny

pytestmark = pytest.mark.usefixtures("brief_results")


def expected_accuracy(y: Any, probability: Any, weight: Any) -> float:
    """How often windows would be right if classes were drawn with these probabilities."""
    return float(np.average(probability[np.arange(len(y)), y], weights=weight))


EXPECTED = Metric("expected accuracy", expected_accuracy, lambda shares: 1 / shares.shape[1], short="expected")


def test_a_registered_metric_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(METRICS, "expected_accuracy", EXPECTED)
    data = tiny()
    data.y[:3] = 1 - data.y[:3]
    save_npz(tmp_path / "tiny.npz", data)
    brief = ("--networks", "none", "--kinds", "features", "--adaptation", "zero-shot", "--device", "cpu")
    printed("run", tmp_path / "tiny.npz", *brief, "--metric", "expected", "--out", tmp_path / "run")
    choice = read_choice(tmp_path / "run")
    assert choice.metric == "expected_accuracy"
    assert "balanced_accuracy" in choice.other_metrics
    assert "expected_accuracy" not in choice.other_metrics
    run = Run.open(tmp_path / "run")
    evidence = make_evidence(run, choice)
    for subject, log_p in delivered_predictions(choice, evidence).items():
        expected = expected_accuracy(evidence.y[subject], np.exp(log_p), None)
        assert choice.nested_test_scores[str(subject)] == pytest.approx(expected)
    run.database.close()
    assert EXPECTED.label in choice.headline
    assert EXPECTED.label in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert EXPECTED.label in printed("predict", tmp_path / "run", tmp_path / "tiny.npz", "--metric", "expected")
    clf = at.CensoredClassifier(scoring="expected", max_epochs=2, batch_size=8, sfreq=16, device="cpu")
    X, y = data.X.numpy(), data.y.numpy()
    clf.fit(X, y, subjects=data.subject.numpy())
    assert clf.score(X, y) == expected_accuracy(y, clf.predict_proba(X), None)
