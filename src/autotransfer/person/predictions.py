"""Predictions as a table with one row per window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError
from ..models.model import Model
from ..recordings import Raw
from ..recordings.labels import label_names
from ..recordings.targets import split_target
from ..recordings.windows import encode_subjects
from ..training.conformal import (
    decide_classes,
    interval_radius,
    least_confidence,
    least_probability,
    make_intervals,
    make_sets,
)  # fmt: skip

Floats = NDArray[np.float64]


def read_known_target(raw: Raw, column: str | None) -> Raw:
    """Return windows with the target as y, or None if it is unknown. column: name of the target, if it has one."""
    try:
        raw, y = split_target(raw, column)
    except UserError:  # there is no such column or channel
        raw, y = split_target(raw)
    return replace(raw, y=None if y is None or not np.isfinite(y).any() else y, classes=None)


def predict_windows(model: Model, raw: Raw, adapt: str | None = None, *, X: Tensor | None = None) -> Floats:
    """Return probabilities (N, classes) or continuous predictions (N,). X: result of `model.read(raw)`, if known."""
    X = model.read(raw) if X is None else X
    return model.predict_checked(X, encode_subjects(raw.subject, len(X)), adapt)


def make_prediction_table(
    model: Model,
    raw: Raw,
    predicted: Floats | None = None,  # result of `predict_windows`, if known
    *,
    coverage: float | None = None,  # adds whether each class is in the prediction set, or the ends of intervals
    abstain: float | None = None,  # adds whether a window is answered
) -> pd.DataFrame:
    """Return a table with the prediction of each window, and the probability of each class."""
    predicted = predict_windows(model, raw) if predicted is None else predicted
    if model.card.task.is_numeric:
        table = pd.DataFrame({"prediction": predicted})
        if coverage is not None:
            table[["low", "high"]] = make_intervals(predicted, interval_radius(model.card.intervals, coverage))
    else:
        table = _class_predictions(model, predicted, coverage, abstain)
    if raw.subject is not None:
        table.insert(0, "subject", label_names(raw.subject, len(table), "subject", raw.subjects))
    table.insert(0, "window", range(len(table)))
    return table


def _class_predictions(
    model: Model, probability: Floats, coverage: float | None, abstain: float | None
) -> pd.DataFrame:
    """Return the table of a classification model from probabilities (N, classes)."""
    classes = [str(name) for name in model.card.classes]
    table = pd.DataFrame(probability, columns=[f"p_{name}" for name in classes])
    prediction = decide_classes(probability, np.array(classes), None)
    if abstain is not None:
        answered = probability.max(1) >= least_confidence(model.card.thresholds, abstain)
        prediction = np.where(answered, prediction, str(model.unanswered_))
        table.insert(0, "answered", answered)
    table.insert(0, "prediction", prediction)
    if coverage is not None:
        sets = make_sets(probability, least_probability(model.card.thresholds, coverage))
        table = table.assign(**{f"set_{name}": in_set for name, in_set in zip(classes, sets.T, strict=True)})
    return table
