"""Metrics and losses equal those of scikit-learn and torch, and chance is the score of guessing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics
from typer.main import get_command

import autotransfer as at
from autotransfer.cli import app
from autotransfer.tasks import regression
from autotransfer.tasks.classification import CLASSIFICATION_TASK, METRICS, weighted_nll
from autotransfer.training.metrics import (
    balanced_accuracy,
    balanced_accuracy_of,
    class_weights,
    confusion_counts,
    mean_loss,
)


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


def test_balanced_accuracy_equals_scikit_learn_also_without_a_class() -> None:
    generator = np.random.default_rng(0)
    y = generator.integers(0, 4, (5, 60))
    y[2][y[2] == 1] = 0  # this member's rows lack class 1
    predicted = generator.integers(0, 4, (5, 60))
    counted = torch.ones(5, 60, dtype=torch.bool)
    confusion = confusion_counts(torch.tensor(predicted), torch.tensor(y), counted, 4)
    for i in range(5):
        assert (confusion[i].numpy() == metrics.confusion_matrix(y[i], predicted[i], labels=range(4))).all()
        with pytest.warns(UserWarning, match="y_pred contains classes") if i == 2 else pytest.MonkeyPatch.context():
            expected = metrics.balanced_accuracy_score(y[i], predicted[i])
        assert balanced_accuracy(confusion)[i].item() == pytest.approx(expected)


def test_weights_follow_the_papers_formula_and_absent_classes_get_none() -> None:
    counts = torch.tensor([10.0, 40.0, 0.0])
    weights = class_weights(counts)
    unnormalized = 50 / np.array([10.0, 40.0])
    np.testing.assert_allclose(weights[:2], unnormalized / unnormalized.sum(), rtol=1e-6)
    assert weights[2] == 0
    assert weights.sum() == pytest.approx(1.0)


def test_weighted_cross_entropy_equals_torch() -> None:
    torch.manual_seed(0)
    logits, y = torch.randn(3, 20, 4).double(), torch.randint(4, (3, 20))
    weight = class_weights(torch.randint(1, 9, (3, 4)).double())
    ours = mean_loss(weighted_nll, logits, y, weight)
    for i in range(3):
        expected = torch.nn.functional.cross_entropy(logits[i], y[i], weight=weight[i])
        assert ours[i].item() == pytest.approx(expected.item(), abs=1e-12)


def test_windows_are_scored_by_the_metric_of_the_card() -> None:
    metric_of_card = CLASSIFICATION_TASK.metric_of_card
    assert metric_of_card({"metric": "roc_auc"}) == "roc_auc"
    assert metric_of_card({}) == metric_of_card({"metric": "of a later version"}) == "balanced_accuracy"


def test_every_metric_is_in_the_documentation() -> None:
    """Where somebody who chooses a metric looks for its name."""
    command: Any = get_command(app)
    (help_,) = (option.help for option in command.commands["run"].params if option.name == "metric")
    docs = Path(__file__).parents[1] / "docs"
    pages = ("guide/abstain.md", "guide/regression.md", "reference/files.md")
    decisions, numbers, files = ((docs / page).read_text(encoding="utf-8") for page in pages)
    for name, metric in regression.METRICS.items():
        assert (metric.short or name) in help_
        assert f"`{metric.short or name}`" in numbers
    for name, metric in METRICS.items():
        typed = metric.short or name
        assert typed in help_
        assert f"`{typed}`" in decisions
        assert f"`{name}`" in files
        assert f'"{typed}"' in at.AutoTransferClassifier.__doc__
        assert f'"{name}"' in at.CensoredClassifier.__doc__
