"""The interface of a task, and the metrics that predictions are scored with."""

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

Floats = NDArray[np.float64]
Weights = NDArray[Any] | None
# Logits (P, B, C), classes y (P, B) and their weights (P, C) -> weighted loss and weight of every row, two (P, B)
RowLoss = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Metric:
    """Measure of how well predictions (N, ...) agree with the truth (N,); more is better."""

    label: str  # inside a sentence
    measure: Callable[[NDArray[Any], Floats, Weights], float]
    # people's shares of the classes (P, C) -> the mean score of guessing; NaN: guessing has a score for each person
    guessing: Callable[[Floats], float] = lambda _: math.nan
    lowest: float = 0.0  # the lowest possible score
    highest: float = 1.0
    one_value: bool = False  # whether windows of one class, or with one number, can be scored
    short: str | None = None  # another name, which is easier to type

    def score(self, y: NDArray[Any], predicted: Floats, weight: Weights = None) -> float:
        """y (N,); predicted (N, C) probabilities of indices of classes, or (N,) numbers. NaN where a single value
        occurs: always predicting it would be right."""
        if not self.one_value and len(np.unique(y)) < 2:
            return math.nan
        return self.measure(y, predicted, weight)

    def chance(self, people: Sequence[NDArray[np.int64]], n_classes: int) -> float:
        """Return the mean score of guessing over these people's classes (N,), where each class is predicted as
        often."""
        return self.guessing(np.stack([np.bincount(y, minlength=n_classes) / max(len(y), 1) for y in people]))


class Task:
    """What is predicted for each window, how predictions are scored, and how sentences call it."""

    metrics: Mapping[str, Metric]  # by scikit-learn's names; the default first
    guess: str  # what a model does, or is, that has learned nothing, in a sentence
    chance_name: str  # what its score is called
    one_value = "there is one class"  # what is wrong with windows that give no score, in a sentence
    notes: tuple[str, ...] = ()  # what a careful reader wants to know about its scores
    row_loss: RowLoss | None = None  # what networks are trained with; None: there are linear models and trees alone
    is_numeric = False  # whether a number is predicted; otherwise probabilities of classes
    has_columns = False  # whether a target may be a column or a channel, such as continuous:force
    rule: str | None = None  # how a run selects; None: as its options say
    options: tuple[str, ...] | None = None  # fields of RunOptions that have an effect; None: all

    def load(self, source: str, column: str | None, **how: Any) -> Recordings:
        """Load recordings with their truth. column: of the target, if it is named; how: keywords of `at.load`."""
        return load(source, **how)

    def n_outputs(self, n_classes: int) -> int:
        """Return the number of outputs of a model."""
        return 1 if self.is_numeric else n_classes

    @property
    def default_metric(self) -> str:
        return next(iter(self.metrics))

    def metric(self, name: object, what: str = "metric") -> Metric:
        """Return a metric by its name; refuse anything else. what: the option, for the message."""
        return self.metrics[self.metric_name(name, what)]

    def metric_name(self, name: object, what: str = "metric") -> str:
        """Return scikit-learn's name of a metric that was given by it or by a short one."""
        if isinstance(name, str):
            known = next((long for long, metric in self.metrics.items() if metric.short == name), name)
            if known in self.metrics:
                return known
        listed = ", ".join(repr(metric.short or known) for known, metric in self.metrics.items())
        raise UserError(f"unknown {what} {shown(name)}; choose from {listed}")

    def metric_of_card(self, scores: Mapping[str, object]) -> str:
        """Return the metric of the scores in a model's card; the default one if this version does not know it."""
        name = scores.get("metric")
        return name if isinstance(name, str) and name in self.metrics else self.default_metric

    def chance_words(self, chance: float) -> str:
        """Return the score of guessing as sentences have it in brackets, such as 'chance .50'."""
        return f"{self.chance_name} " + f"{chance:.2f}".replace("-", "−").removeprefix("0")
