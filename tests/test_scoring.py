"""Metrics equal scikit-learn's, and chance is the score of guessing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics
from typer.main import get_command

import autotransfer as at
from autotransfer.cli import app
from autotransfer.tasks import regression
from autotransfer.tasks.classification import METRICS
from autotransfer.training.metrics import balanced_accuracy_of


def some(n: int = 200, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    y = draw.choice(classes, n, p=np.arange(1, classes + 1) / sum(range(1, classes + 1)))
    logits = draw.standard_normal((n, classes)) + 1.5 * np.eye(classes)[y]
    p = np.exp(logits)
    return y, p / p.sum(1, keepdims=True)


@pytest.mark.parametrize("classes", [2, 3])
def test_metrics_are_those_of_scikit_learn(classes: int) -> None:
    y, p = some(classes=classes)
    predicted = p.argmax(1)
    expected = {
        "balanced_accuracy": metrics.balanced_accuracy_score(y, predicted),
        "roc_auc": metrics.roc_auc_score(y, p[:, 1] if classes == 2 else p, multi_class="ovr"),
        "cohen_kappa": metrics.cohen_kappa_score(y, predicted),
        "f1_macro": metrics.f1_score(y, predicted, average="macro"),
        "accuracy": metrics.accuracy_score(y, predicted),
    }
    assert set(expected) == set(METRICS), "give each metric an independent answer"
    for name, value in expected.items():
        assert METRICS[name].score(y, p) == pytest.approx(value), name
    assert METRICS["balanced_accuracy"].score(y, p) == pytest.approx(balanced_accuracy_of(predicted, y, classes))
    weight = np.arange(len(y)) + 1.0
    weighted = metrics.balanced_accuracy_score(y, predicted, sample_weight=weight)
    assert METRICS["balanced_accuracy"].score(y, p, weight) == pytest.approx(weighted)


def test_a_class_that_a_subject_lacks_is_left_out() -> None:
    y, p = some()
    kept = y != 2
    y, p = y[kept], p[kept]
    assert METRICS["balanced_accuracy"].score(y, p) == pytest.approx(balanced_accuracy_of(p.argmax(1), y, 3))
    expected = np.mean([metrics.roc_auc_score(y == k, p[:, k]) for k in (0, 1)])
    assert METRICS["roc_auc"].score(y, p) == pytest.approx(expected)
    assert METRICS["f1_macro"].score(y, p) > 0.5


def test_one_class_alone_has_no_score_but_accuracy() -> None:
    y, p = np.zeros(9, dtype=np.int64), some(9)[1]
    for name, metric in METRICS.items():
        assert math.isnan(metric.score(y, p)) != metric.allows_one_value, name


@pytest.mark.parametrize("name", list(METRICS))
def test_chance_is_what_guessing_scores(name: str) -> None:
    y, _ = some(20_000)
    p = np.random.default_rng(1).random((len(y), 3))
    assert METRICS[name].score(y, p) == pytest.approx(METRICS[name].chance([y], 3), abs=0.015)


def test_every_metric_is_in_the_documentation() -> None:
    """Where somebody who chooses a metric looks for its name."""
    command: Any = get_command(app)
    told = {
        "--metric in cli/run_commands.py": next(p.help for p in command.commands["run"].params if p.name == "metric")
    }
    pages = ("docs/guide/abstain.md", "docs/guide/regression.md", "docs/reference/files.md")
    told |= {page: (Path(__file__).parents[1] / page).read_text(encoding="utf-8") for page in pages}
    classifiers = at.AutoTransferClassifier, at.CensoredClassifier
    told |= {f"the docstring of {kind.__name__}": kind.__doc__ or "" for kind in classifiers}
    help_, decisions, numbers, files, auto, censored = told
    for known, page in ((METRICS, decisions), (regression.METRICS, numbers)):
        for name, metric in known.items():
            typed = metric.short or name
            places = {help_: typed, page: f"`{typed}`"}
            if known is METRICS:
                places |= {files: f"`{name}`", auto: f'"{typed}"', censored: f'"{name}"'}
            missing = [place for place, text in places.items() if text not in told[place]]
            assert not missing, f"name {typed} in {' and '.join(missing)}"
