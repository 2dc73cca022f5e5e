"""A registered metric and a registered adaptation method are used by estimators and commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import autotransfer as at
from autotransfer.models.loading import load_model
from autotransfer.person.adaptation import ADAPTATION_METHODS, AdaptationMethod, State
from autotransfer.recordings import save_npz
from autotransfer.runs.choice import Choice, read_choice
from autotransfer.runs.run import Run
from autotransfer.search import replay
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

# An adaptation method


class Recentered(AdaptationMethod):
    """Moves the mean latents of the subject to those of the training subjects."""

    label = "by mean latents"

    def initial_state(self) -> State:
        return {"sum": torch.zeros_like(self.prior.means[:, 0]), "count": torch.zeros(())}

    def update(self, state: State, x: Tensor, p: Tensor) -> State:
        return {"sum": state["sum"] + x - self.prior.means.mean(-2), "count": state["count"] + 1}

    def correction(self, state: State) -> tuple[Tensor, Tensor]:
        shift = state["sum"] / (10 + state["count"][..., None, None])  # (..., P, R)
        weight = self.prior.logit_weights
        return torch.zeros_like(weight).expand(*shift.shape[:-2], *weight.shape), -(shift[..., None] * weight).sum(-2)


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


def test_a_registered_adaptation_method_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Held-out subjects try it; it is chosen here, to see it delivered."""
    monkeypatch.setitem(ADAPTATION_METHODS, "recentered", Recentered)
    monkeypatch.setattr(replay, "delivered_method", lambda *_: "recentered")
    monkeypatch.setattr(replay, "ROUNDING", float("-inf"))
    choice = run_of(
        tmp_path, "--grid", "uncensored", "--networks", "none", "--adaptation", "zero-shot", "--folds", "all"
    )
    played = choice.replay
    assert played is not None
    assert played.adaptation_method == "recentered"
    assert played.adapted == played.methods["recentered"]
    assert Recentered.label in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    model, windows = load_model(tmp_path / "run" / "model"), tiny().X[:12]
    adapting, still = at.Session(model, adapt=True), at.Session(model)
    assert isinstance(adapting._adaptation.method, Recentered)
    adapted, plain = (np.log(session.predict_proba(windows)) for session in (adapting, still))
    np.testing.assert_array_equal(adapted[0], plain[0])
    assert not np.allclose(adapted, plain, atol=0.01)
    told = printed("predict", tmp_path / "run", tmp_path / "tiny.npz", "--adapt", "all")
    assert told != printed("predict", tmp_path / "run", tmp_path / "tiny.npz")
