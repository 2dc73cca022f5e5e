"""Classification: probabilities of the classes of each window."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from .base import Floats, Metric, Task, Weights

Classes = NDArray[np.int64]

CLASSIFICATION = "classes"  # value of --target
BALANCED_ACCURACY = "balanced_accuracy"  # default metric


def _macro(name: str) -> Callable[[Classes, Floats, Weights], float]:
    """Return a function that computes the mean of a scikit-learn score over the classes in y."""

    def measure(y: Classes, probability: Floats, weight: Weights) -> float:
        from sklearn import metrics

        options = {"labels": np.unique(y), "average": "macro", "sample_weight": weight, "zero_division": 0}
        return float(getattr(metrics, name)(y, probability.argmax(1), **options))

    return measure


def _roc_auc(y: Classes, probability: Floats, weight: Weights) -> float:
    """Return the mean over the classes in y of the AUC of one class versus all other classes."""
    from sklearn.metrics import roc_auc_score

    return float(np.mean([roc_auc_score(y == k, probability[:, k], sample_weight=weight) for k in np.unique(y)]))


def _cohen_kappa(y: Classes, probability: Floats, weight: Weights) -> float:
    from sklearn.metrics import cohen_kappa_score

    return float(cohen_kappa_score(y, probability.argmax(1), sample_weight=weight))


def _accuracy(y: Classes, probability: Floats, weight: Weights) -> float:
    return float(np.average(probability.argmax(1) == y, weights=weight))


def _uniform_chance(shares: Floats) -> float:
    """Return 1 / C, the accuracy of guessing classes with equal probability."""
    return float(1 / shares.shape[1])


def _guessed_f1(shares: Floats) -> float:
    """Return the macro F1 of guessing, with the share of a class as precision and 1 / C as recall."""
    f1 = 2 * shares / (1 + shares.shape[1] * shares)
    return float(np.mean(f1.sum(1) / (shares > 0).sum(1)))


METRICS = {
    BALANCED_ACCURACY: Metric("balanced accuracy", _macro("recall_score"), _uniform_chance),
    "roc_auc": Metric("AUC", _roc_auc, lambda _: 0.5, short="auc"),
    "cohen_kappa": Metric("Cohen's kappa", _cohen_kappa, lambda _: 0.0, lowest=-1.0, short="kappa"),
    "f1_macro": Metric("macro F1", _macro("f1_score"), _guessed_f1, short="f1"),
    "accuracy": Metric("accuracy", _accuracy, _uniform_chance, allows_one_value=True),
}


def weighted_nll(logits: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return weighted negative log-likelihood and weight (P, B) for logits (P, B, C), y (P, B), weight (P, C)."""
    nll = -F.log_softmax(logits, -1).gather(-1, y[..., None])[..., 0]
    w = weight.gather(-1, y)
    return w * nll, w


class Classification(Task):
    """Task of predicting probabilities (N, C) of classes."""

    metrics = METRICS
    row_loss = staticmethod(weighted_nll)
    guess = "guessing"
    chance_name = "chance"


CLASSIFICATION_TASK = Classification()
