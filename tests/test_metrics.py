"""Metrics against scikit-learn and torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, confusion_matrix

from autotransfer.tasks.classification import CLASSIFICATION_TASK, weighted_nll
from autotransfer.training.metrics import balanced_accuracy, class_weights, confusion_counts, mean_loss


def test_balanced_accuracy_equals_scikit_learn_also_without_a_class() -> None:
    generator = np.random.default_rng(0)
    y = generator.integers(0, 4, (5, 60))
    y[2][y[2] == 1] = 0  # this member's rows lack class 1
    predicted = generator.integers(0, 4, (5, 60))
    counted = torch.ones(5, 60, dtype=torch.bool)
    confusion = confusion_counts(torch.tensor(predicted), torch.tensor(y), counted, 4)
    for i in range(5):
        assert (confusion[i].numpy() == confusion_matrix(y[i], predicted[i], labels=range(4))).all()
        with pytest.warns(UserWarning, match="y_pred contains classes") if i == 2 else pytest.MonkeyPatch.context():
            expected = balanced_accuracy_score(y[i], predicted[i])
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
