"""Interfaces of tasks, and of metrics that score predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError, shown
from ..recordings import Recordings, load
from ..words import score

Floats = NDArray[np.float64]
Weights = NDArray[Any] | None
# Logits (P, B, C), classes y (P, B) and class weights (P, C) -> weighted loss (P, B) and weight (P, B) of each window
RowLoss = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Metric:
    """Score of predictions (N, ...) given the truth (N,); higher is better."""

    label: str  # name in a sentence
    measure: Callable[[NDArray[Any], Floats, Weights], float]
    # shares of classes by subject (S, C) -> mean score of guessing; NaN for regression
    guessing_score: Callable[[Floats], float] = lambda _: math.nan
    lowest: float = 0.0  # the lowest possible score
    highest: float = 1.0
    allows_one_value: bool = False  # whether y may have one class or one value only
    short: str | None = None  # short name for the command line

    @property
    def limits(self) -> tuple[float, float]:
        return self.lowest, self.highest

    def score(self, y: NDArray[Any], predicted: Floats, weight: Weights = None) -> float:
        """Return the score of probabilities (N, C) or numbers (N,) for y (N,); NaN if y has only one value."""
        if not self.allows_one_value and len(np.unique(y)) < 2:
            return math.nan
        return self.measure(y, predicted, weight)

    def chance(self, classes: Sequence[NDArray[np.int64]], n_classes: int) -> float:
        """Return the mean score of guessing classes with equal probability. classes: true classes (N,) by subject."""
        return self.guessing_score(np.stack([np.bincount(y, minlength=n_classes) / max(len(y), 1) for y in classes]))


class Task:
    """Interface of a prediction task: metrics, loss, options and words for reports."""

    metrics: Mapping[str, Metric]  # by scikit-learn's names; the first is the default
    guess: str  # name of the trivial prediction in a sentence, such as "guessing"
    chance_name: str  # name of the score of the trivial prediction in a sentence, such as "chance"
    one_value_reason = "there is one class"  # end of a sentence that says why a subject has no score
    notes: tuple[str, ...] = ()  # sentences about scores in the report
    row_loss: RowLoss | None = None  # loss of networks; None if there are only linear models and trees
    is_numeric = False  # whether numbers are predicted; otherwise probabilities of classes
    has_columns = False  # whether a target may name a column or a channel, such as continuous:force
    options: tuple[str, ...] | None = None  # fields of RunOptions that have an effect; None for all

    def load(self, source: str, column: str | None, **options: Any) -> Recordings:
        """Load recordings with classes or targets. column: name of the target; options: keywords of `at.load`."""
        return load(source, **options)

    def n_outputs(self, n_classes: int) -> int:
        """Return the number of outputs of a model for n_classes."""
        return 1 if self.is_numeric else n_classes

    @property
    def default_metric(self) -> str:
        return next(iter(self.metrics))

    def metric(self, name: object, option: str = "metric") -> Metric:
        """Return a metric by its name. option: name of the option in the error for an unknown metric."""
        return self.metrics[self.metric_name(name, option)]

    def metric_name(self, name: object, option: str = "metric") -> str:
        """Return scikit-learn's name of a metric from this name or from the short name."""
        if isinstance(name, str):
            full_name = next((full for full, metric in self.metrics.items() if metric.short == name), name)
            if full_name in self.metrics:
                return full_name
        names = ", ".join(repr(metric.short or full_name) for full_name, metric in self.metrics.items())
        raise UserError(f"unknown {option} {shown(name)}; choose from {names}")

    def metric_of_card(self, scores: Mapping[str, object]) -> str:
        """Return the metric in the scores of a model card, or the default metric if the metric is unknown."""
        name = scores.get("metric")
        return name if isinstance(name, str) and name in self.metrics else self.default_metric

    def chance_words(self, chance: float) -> str:
        """Return the score of guessing in words, such as 'chance .500'."""
        return f"{self.chance_name} {score(chance)}"
