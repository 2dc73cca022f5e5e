"""Predictions of a continuous target as a table, with scores of every person where the target is known."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ..errors import UserError
from ..models.regression import RegressionModel
from ..models.seen import seen_words
from ..recordings import Raw
from ..recordings.labels import named
from ..recordings.targets import CONTINUOUS, with_target
from ..recordings.windows import people_of_windows
from ..training.continuous import METRICS, radius_at
from ..words import count, printable, score
from .verdict import measured_words

MOST_PEOPLE = 20  # that are listed
LABELS = {"r2": "R²", "correlation": "correlation", "rmse": "RMSE"}


def number_predictions(
    model: RegressionModel, raw: Raw, coverage: float | None = None
) -> tuple[pd.DataFrame, pd.DataFrame | None, list[str]]:
    """A row for each window; a row of scores for each person, None where no target is known; and what to tell.

    coverage: adds the columns low and high, the ends of intervals that hold the target this often
    """
    radius = None if coverage is None else radius_at(model.card.radii, coverage)
    try:
        raw, y = with_target(raw, model.card.target)
    except UserError:  # the column or the channel is not there, and predictions need none
        raw, y = with_target(raw, CONTINUOUS)
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
    notes += seen_words(model.card.seen, raw.name, X, whose)[0]
    groups: dict[object, list[int]] = {}
    for row in np.flatnonzero(np.isfinite(y)).tolist():
        groups.setdefault("all" if whose is None else whose[row], []).append(row)
    lines = [
        {"subject": who, "windows": len(rows)} | {name: of(y[rows], predicted[rows]) for name, of in METRICS.items()}
        for who, rows in groups.items()
    ]
    people = pd.DataFrame(lines)
    means = ", ".join(f"{LABELS[name]} {score(float(people[name].mean()))}" for name in METRICS)
    notes.append(f"mean over {count(len(people), 'person', 'people')}: {means}")
    listed = zip(*(people[name][:MOST_PEOPLE] for name in ("subject", "r2", "correlation")), strict=True)
    notes += [
        f"  {printable(str(who))[:40]}  R² {score(float(r2))}  correlation {score(float(correlation))}"
        for who, r2, correlation in listed
    ]
    return table, people, notes
