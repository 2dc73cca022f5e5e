"""The interface of a task and of the metrics that score its predictions."""

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
    # shares of classes by subject (S, C) -> mean score of guessing; NaN if it is computed by subject
    guessing: Callable[[Floats], float] = lambda _: math.nan
    lowest: float = 0.0  # the lowest possible score
    highest: float = 1.0
    one_value: bool = False  # whether windows of only one class, or one number, can be scored
    short: str | None = None  # short name for the command line

    def score(self, y: NDArray[Any], predicted: Floats, weight: Weights = None) -> float:
        """Return the score of probabilities (N, C) or numbers (N,) for y (N,); NaN if y has only one value."""
        if not self.one_value and len(np.unique(y)) < 2:
            return math.nan
        return self.measure(y, predicted, weight)

    def chance(self, classes: Sequence[NDArray[np.int64]], n_classes: int) -> float:
        """Return the mean score of guessing classes with equal probability. classes: (N,) of each subject."""
        return self.guessing(np.stack([np.bincount(y, minlength=n_classes) / max(len(y), 1) for y in classes]))


class Task:
    """Interface of a prediction task: metrics, loss, options and words for reports."""

    metrics: Mapping[str, Metric]  # by scikit-learn's names; the first is the default
    guess: str  # name of the trivial prediction in a sentence, such as "guessing"
    chance_name: str  # name of its score
    one_value = "there is one class"  # reason why windows cannot be scored, in a sentence
    notes: tuple[str, ...] = ()  # sentences in the report about its scores
    row_loss: RowLoss | None = None  # loss of networks; None if there are only linear models and trees
    is_numeric = False  # whether numbers are predicted; otherwise probabilities of classes
    has_columns = False  # whether a target may name a column or a channel, such as continuous:force
    options: tuple[str, ...] | None = None  # fields of RunOptions that have an effect; None for all

    def load(self, source: str, column: str | None, **how: Any) -> Recordings:
        """Load recordings with classes or targets. column: name of the target; how: keywords of `at.load`."""
        return load(source, **how)

    def n_outputs(self, n_classes: int) -> int:
        """Return the number of outputs of a model for n_classes."""
        return 1 if self.is_numeric else n_classes

    @property
    def default_metric(self) -> str:
        return next(iter(self.metrics))

    def metric(self, name: object, what: str = "metric") -> Metric:
        """Return a metric by its name; raise for an unknown one. what: name of the option in the message."""
        return self.metrics[self.metric_name(name, what)]

    def metric_name(self, name: object, what: str = "metric") -> str:
        """Return scikit-learn's name of a metric from that name or the short one."""
        if isinstance(name, str):
            known = next((long for long, metric in self.metrics.items() if metric.short == name), name)
            if known in self.metrics:
                return known
        listed = ", ".join(repr(metric.short or known) for known, metric in self.metrics.items())
        raise UserError(f"unknown {what} {shown(name)}; choose from {listed}")

    def metric_of_card(self, scores: Mapping[str, object]) -> str:
        """Return the metric of a model card; the default if this version does not know it."""
        name = scores.get("metric")
        return name if isinstance(name, str) and name in self.metrics else self.default_metric

    def chance_words(self, chance: float) -> str:
        """Return the score of guessing in words, such as 'chance .500'."""
        return f"{self.chance_name} {score(chance)}"
