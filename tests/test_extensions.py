"""A registered metric is used by estimators and commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotransfer as at
from autotransfer.recordings import save_npz
from autotransfer.runs.choice import Choice, read_choice
from autotransfer.runs.run import Run
from autotransfer.search.evaluation import delivered_predictions
from autotransfer.tasks import Metric
from autotransfer.tasks.classification import METRICS
from contributed import registered as registered
from faults import printed
from tiny import make_evidence, tiny

pytestmark = pytest.mark.usefixtures("brief_results")


# A metric


def expected_accuracy(y: Any, probability: Any, weight: Any) -> float:
    """How often windows would be right if classes were drawn with these probabilities."""
    return float(np.average(probability[np.arange(len(y)), y], weights=weight))


EXPECTED = Metric("expected accuracy", expected_accuracy, lambda shares: 1 / shares.shape[1], short="expected")

BRIEF: dict[str, Any] = {"max_epochs": 2, "batch_size": 8, "seeds": 1, "device": "cpu"}


def run_of(folder: Path, *words: object, wrong_labels: int = 0) -> Choice:
    data, brief = tiny(), [word for name, value in BRIEF.items() for word in ("--set", f"{name}={value}")]
    data.y[:wrong_labels] = 1 - data.y[:wrong_labels]
    save_npz(folder / "tiny.npz", data)
    printed("run", folder / "tiny.npz", *brief, "--quiet", "--out", folder / "run", *words)
    return read_choice(folder / "run")


def fitted(estimator: Any) -> Any:
    data = tiny()
    return estimator.fit(data.X.numpy(), data.y.numpy(), subjects=data.subject.numpy())


def test_a_registered_metric_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(METRICS, "expected_accuracy", EXPECTED)
    brief = ("--networks", "none", "--kinds", "features", "--adaptation", "zero-shot", "--metric", "expected")
    choice = run_of(tmp_path, *brief, wrong_labels=3)
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
    clf = fitted(at.CensoredClassifier(scoring="expected", max_epochs=2, batch_size=8, sfreq=16, device="cpu"))
    X, y = tiny().X.numpy(), tiny().y.numpy()
    assert clf.score(X, y) == expected_accuracy(y, clf.predict_proba(X), None)
