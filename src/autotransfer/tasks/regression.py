"""Regression: one number per window, such as a force, an angle or a workload score."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..recordings import Recordings, load_with_targets
from ..words import score
from .base import Floats, Metric, Task, Weights

REGRESSION = "continuous"  # value of --target
R2 = "r2"


def _mean(values: Floats, weight: Weights) -> float:
    return float(np.average(values, weights=weight))


def r2(y: Floats, predicted: Floats, weight: Weights = None) -> float:
    """Return R² = 1 − Σ(y − ŷ)² / Σ(y − ȳ)², which is 0 if ŷ is the mean of the true y."""
    return 1 - _mean(np.square(y - predicted), weight) / _mean(np.square(y - _mean(y, weight)), weight)


def correlation(y: Floats, predicted: Floats, weight: Weights = None) -> float:
    """Return Pearson's correlation; 0 for constant predictions."""
    a, b = y - _mean(y, weight), predicted - _mean(predicted, weight)
    norm = math.sqrt(_mean(a * a, weight) * _mean(b * b, weight))
    return max(-1.0, min(1.0, _mean(a * b, weight) / norm)) if norm > 0 else 0.0  # rounding errors may exceed 1


def negative_rmse(y: Floats, predicted: Floats, weight: Weights = None) -> float:
    """Return minus the root mean squared error, so that higher is better."""
    return -math.sqrt(_mean(np.square(y - predicted), weight))


METRICS = {
    R2: Metric("R²", r2, lowest=-math.inf),
    "correlation": Metric("correlation", correlation, lowest=-1.0),
    "neg_root_mean_squared_error": Metric(
        "negative RMSE", negative_rmse, lowest=-math.inf, highest=0.0, allows_one_value=True, short="rmse"
    ),
}


class Regression(Task):
    """Task of predicting numbers (N,) by linear models."""

    metrics = METRICS
    guess = "a constant"  # the mean target of the training subjects
    chance_name = "that of a constant"
    one_value_reason = "the target is the same"
    notes = (
        "R² of a subject is relative to the subject's own mean, so an offset lowers it even if changes are predicted "
        "well. Correlation does not depend on offsets.",
        "The half-width of intervals comes from errors on other held-out subjects.",
    )
    is_numeric = True
    has_columns = True

    def chance_words(self, chance: float) -> str:
        return f"a constant scores {score(chance)}"

    def load(self, source: str, column: str | None, **options: Any) -> Recordings:
        return load_with_targets(source, column, **options)

    options = ("target", "metric", "hold_out", "adaptation", "device", "kinds", "folds", "at_least", "time")


REGRESSION_TASK = Regression()
