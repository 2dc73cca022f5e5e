"""Predictions as a table: one row per window, with a column per class or with a number."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError
from ..models.model import Model
from ..models.seen import seen_words, window_digests
from ..recordings import Raw
from ..recordings.labels import named
from ..recordings.targets import with_target
from ..recordings.windows import people_of_windows
from ..runs.verdict import measured_words
from ..training.conformal import decisions, interval_radius, least_confidence, least_probability, sets_at
from ..words import count, score


def probabilities(model: Model, raw: Raw, adapt: str | None = None, *, X: Tensor | None = None) -> NDArray[np.float64]:
    """Probabilities (N, classes) of windows from a reader; channel names, rate and subjects may be missing. adapt: as
    of `predict_proba`. X: what `model.read` gave of them, where that is known already."""
    X = model.read(raw) if X is None else X
    return model.predict_checked(X, people_of_windows(raw.subject, len(X)), adapt)


def predictions(
    model: Model,
    raw: Raw,
    probability: NDArray[np.float64] | None = None,
    *,
    coverage: float | None = None,
    abstain: float | None = None,
) -> pd.DataFrame:
    """The table of the same. probability: where it is known already.

    coverage: adds a column for each class, whether it is in the prediction set
    abstain: adds the column "answered"; a window that is not has `unanswered_` for a prediction
    """
    if probability is None:
        probability = probabilities(model, raw)
    classes = [str(name) for name in model.card.classes]
    table = pd.DataFrame(probability, columns=[f"p_{name}" for name in classes])
    predicted = decisions(probability, np.array(classes), None)
    if abstain is not None:
        least = least_confidence(model.card.thresholds, abstain)
        answered = probability.max(1) >= least
        predicted = np.where(answered, predicted, str(model.unanswered_))
        table.insert(0, "answered", answered)
    table.insert(0, "prediction", predicted)
    if coverage is not None:
        sets = sets_at(probability, least_probability(model.card.thresholds, coverage))
        table = table.assign(**{f"set_{name}": in_set for name, in_set in zip(classes, sets.T, strict=True)})
    if raw.subject is not None:
        table.insert(0, "subject", named(raw.subject, len(table), "subject", raw.subjects))
    table.insert(0, "window", range(len(table)))
    return table


def number_predictions(
    model: Model, raw: Raw, coverage: float | None = None
) -> tuple[pd.DataFrame, pd.DataFrame | None, list[str]]:
    """Return a row for each window, a row of scores for each person (None if no target is known), and notes.

    coverage: adds the columns low and high, the ends of intervals that hold the target this often
    """
    radius = None if coverage is None else interval_radius(model.card.intervals, coverage)
    try:
        raw, y = with_target(raw, model.card.target.partition(":")[2] or None)
    except UserError:  # the column or the channel is not there, and predictions need none
        raw, y = with_target(raw)
    X = model.read(raw)
    predicted = model.predict_checked(X, people_of_windows(raw.subject, len(X)))
    table = pd.DataFrame({"window": range(len(X))})
    whose = None if raw.subject is None else named(raw.subject, len(X), "subject", raw.subjects)
    if whose is not None:
        table["subject"] = whose
    table["prediction"] = predicted
    if radius is not None:
        table["low"], table["high"] = predicted - radius, predicted + radius
    sentence = str(model.card.scores.get("verdict") or "")
    notes = [measured_words(sentence)] if sentence else []
    if y is None or not np.isfinite(y).any():
        return table, None, notes
    notes += seen_words(model.card.seen, window_digests(X), whose)
    groups: dict[object, list[int]] = {}
    for row in np.flatnonzero(np.isfinite(y)).tolist():
        groups.setdefault("all" if whose is None else whose[row], []).append(row)
    lines = [
        {"subject": who, "windows": len(rows)}
        | {name: metric.score(y[rows], predicted[rows]) for name, metric in model.card.task.metrics.items()}
        for who, rows in groups.items()
    ]
    people = pd.DataFrame(lines)
    metrics = model.card.task.metrics.items()
    means = ", ".join(f"{metric.label} {score(float(people[name].mean()))}" for name, metric in metrics)
    notes.append(f"mean over {count(len(people), 'person', 'people')}: {means}")
    return table, people, notes
