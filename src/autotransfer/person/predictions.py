"""Predictions as a table: one row per window, with a column per class or with a number."""

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
)

Floats = NDArray[np.float64]


def with_known_target(raw: Raw, column: str | None) -> Raw:
    """Return the windows of a reader with the numbers y of the target; None if none is known, which predictions do not
    need. column: the column or channel that is the target, if the model's has a name."""
    try:
        raw, y = split_target(raw, column)
    except UserError:  # the column or the channel is not there
        raw, y = split_target(raw)
    return replace(raw, y=None if y is None or not np.isfinite(y).any() else y, classes=None)


def probabilities(model: Model, raw: Raw, adapt: str | None = None, *, X: Tensor | None = None) -> Floats:
    """Return probabilities (N, classes), or numbers (N,), of windows from a reader.

    adapt: as of `predict_proba`. X: what `model.read` gave, if that is known already.
    """
    X = model.read(raw) if X is None else X
    return model.predict_checked(X, encode_subjects(raw.subject, len(X)), adapt)


def predictions(
    model: Model,
    raw: Raw,
    predicted: Floats | None = None,
    *,
    coverage: float | None = None,
    abstain: float | None = None,
) -> pd.DataFrame:
    """Return a row for each window from a reader: its prediction, with the probability of each class.

    predicted: what `probabilities` gave, if that is known already
    coverage: adds a column for each class, whether it is in the prediction set; to numbers the columns low and high,
        the ends of an interval
    abstain: adds the column "answered"; a window that is not has `unanswered_` for a prediction
    """
    predicted = probabilities(model, raw) if predicted is None else predicted
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
    """Return a row for each window with probabilities (N, classes)."""
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
