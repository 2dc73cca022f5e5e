"""Metrics by scikit-learn's names, with their chance levels, for runs, estimators and `predict`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, shown

Floats = NDArray[np.float64]
Classes = NDArray[np.int64]
Weights = NDArray[Any] | None

BALANCED_ACCURACY = "balanced_accuracy"  # what decides in a run where nothing else is asked for


@dataclass(frozen=True)
class Metric:
    """Measure of how well probabilities (N, C) tell classes (N,)."""

    label: str  # inside a sentence
    measure: Callable[[Classes, Floats, Weights], float]
    guessing: Callable[[Floats], float]  # people's shares of the classes (P, C) -> the mean score of guessing
    lowest: float = 0.0  # the lowest possible score; 1 is the highest
    one_class: bool = False  # whether windows of one class alone can be scored
    short: str | None = None  # another name, which is easier to type

    def score(self, y: Classes, probability: Floats, weight: Weights = None) -> float:
        """y (N,): indices of classes; probability (N, C). NaN where a single class occurs: always predicting it would
        be right."""
        if not self.one_class and len(np.unique(y)) < 2:
            return math.nan
        return self.measure(y, probability, weight)

    def chance(self, people: Sequence[Classes], n_classes: int) -> float:
        """The mean score of guessing over these people's classes (N,), where each class is predicted as often."""
        return self.guessing(np.stack([np.bincount(y, minlength=n_classes) / max(len(y), 1) for y in people]))


def _macro(name: str) -> Callable[[Classes, Floats, Weights], float]:
    """A score of scikit-learn's, the mean over the classes that occur."""

    def measure(y: Classes, probability: Floats, weight: Weights) -> float:
        from sklearn import metrics

        options = {"labels": np.unique(y), "average": "macro", "sample_weight": weight, "zero_division": 0}
        return float(getattr(metrics, name)(y, probability.argmax(1), **options))

    return measure


def _roc_auc(y: Classes, probability: Floats, weight: Weights) -> float:
    """Each class that occurs against the rest, the mean over classes."""
    from sklearn.metrics import roc_auc_score

    return float(np.mean([roc_auc_score(y == k, probability[:, k], sample_weight=weight) for k in np.unique(y)]))


def _cohen_kappa(y: Classes, probability: Floats, weight: Weights) -> float:
    from sklearn.metrics import cohen_kappa_score

    return float(cohen_kappa_score(y, probability.argmax(1), sample_weight=weight))


def _accuracy(y: Classes, probability: Floats, weight: Weights) -> float:
    return float(np.average(probability.argmax(1) == y, weights=weight))


def _evenly(shares: Floats) -> float:
    return float(1 / shares.shape[1])


def _guessed_f1(shares: Floats) -> float:
    """Precision is the share of a class, recall 1/C."""
    f1 = 2 * shares / (1 + shares.shape[1] * shares)
    return float(np.mean(f1.sum(1) / (shares > 0).sum(1)))


METRICS = {
    BALANCED_ACCURACY: Metric("balanced accuracy", _macro("recall_score"), _evenly),
    "roc_auc": Metric("AUC", _roc_auc, lambda _: 0.5, short="auc"),
    "cohen_kappa": Metric("Cohen's kappa", _cohen_kappa, lambda _: 0.0, lowest=-1.0, short="kappa"),
    "f1_macro": Metric("macro F1", _macro("f1_score"), _guessed_f1, short="f1"),
    "accuracy": Metric("accuracy", _accuracy, _evenly, one_class=True),
}


def metric_of(name: object, what: str = "metric") -> Metric:
    """Return a metric by its name; refuse anything else. what: the option, for the message."""
    return METRICS[metric_name(name, what)]


def metric_name(name: object, what: str = "metric") -> str:
    """Return scikit-learn's name of a metric that was given by it or by a short one."""
    if isinstance(name, str):
        known = next((long for long, metric in METRICS.items() if metric.short == name), name)
        if known in METRICS:
            return known
    listed = ", ".join(repr(metric.short or known) for known, metric in METRICS.items())
    raise UserError(f"unknown {what} {shown(name)}; choose from {listed}")


def metric_of_card(scores: Mapping[str, object]) -> str:
    """Return the metric of the scores in a model's card; balanced accuracy if this version does not know it."""
    name = scores.get("metric")
    return name if isinstance(name, str) and name in METRICS else BALANCED_ACCURACY


def label_of(name: str) -> str:
    """Return the name inside a sentence; the name itself if only a later version knows it."""
    return METRICS[name].label if name in METRICS else name


def chance_words(chance: float) -> str:
    """'chance .50'."""
    return "chance " + f"{chance:.2f}".removeprefix("0")
