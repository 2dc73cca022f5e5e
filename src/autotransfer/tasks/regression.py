"""Regression: one number for each window, such as a force, an angle or a workload score."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..recordings import Recordings, load_with_targets
from .base import Floats, Metric, Task, Weights

REGRESSION = "continuous"  # as --target names it
R2 = "r2"


def _mean(values: Floats, weight: Weights) -> float:
    return float(np.average(values, weights=weight))


def r2(y: Floats, predicted: Floats, weight: Weights = None) -> float:
    """1 − Σ(y − ŷ)² / Σ(y − ȳ)²: 1 is perfect, 0 as good as a person's own mean, which nobody knows beforehand."""
    return 1 - _mean(np.square(y - predicted), weight) / _mean(np.square(y - _mean(y, weight)), weight)


def correlation(y: Floats, predicted: Floats, weight: Weights = None) -> float:
    """Pearson's; 0 where predictions never change."""
    a, b = y - _mean(y, weight), predicted - _mean(predicted, weight)
    size = math.sqrt(_mean(a * a, weight) * _mean(b * b, weight))
    return max(-1.0, min(1.0, _mean(a * b, weight) / size)) if size > 0 else 0.0  # rounding may pass 1


def negative_rmse(y: Floats, predicted: Floats, weight: Weights = None) -> float:
    """Root mean squared error, negative so that more is better."""
    return -math.sqrt(_mean(np.square(y - predicted), weight))


METRICS = {
    R2: Metric("R²", r2, lowest=-math.inf),
    "correlation": Metric("correlation", correlation, lowest=-1.0),
    "neg_root_mean_squared_error": Metric(
        "negative RMSE", negative_rmse, lowest=-math.inf, highest=0.0, one_value=True, short="rmse"
    ),
}


class Regression(Task):
    """Numbers (N,), predicted by linear models alone."""

    metrics = METRICS
    guess = "a constant"  # the mean of the training people's targets
    chance_name = "a constant"
    one_value = "the target is the same"
    notes = (
        "R² is computed for each person against their own mean: an offset lowers it even if ups and downs are "
        "predicted well. Correlation does not depend on offsets.",
        "Intervals are calibrated by person: errors on other held-out people give their half-width.",
    )
    is_numeric = True
    rule = "least squares"
    has_columns = True

    def load(self, source: str, column: str | None, **how: Any) -> Recordings:
        return load_with_targets(source, column, **how)

    options = ("target", "metric", "hold_out", "adaptation", "device", "kinds", "folds", "at_least", "time")


REGRESSION_TASK = Regression()
