"""Predictions as a table: one row per window, a column per class."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from ..models.mixture import Model
from ..recordings import Raw
from ..recordings.labels import named
from ..recordings.windows import people_of_windows
from ..training.conformal import decisions, least_confidence, least_probability, sets_at
from ..training.sequence import LEAST, sequences, smooth, usable_stay


def probabilities(model: Model, raw: Raw, adapt: str | None = None, *, X: Tensor | None = None) -> NDArray[np.float64]:
    """Probabilities (N, classes) of windows from a reader; channel names, rate and subjects may be missing. adapt: as
    of `predict_proba`. X: what `model.read` gave of them, where that is known already."""
    X = model.read(raw) if X is None else X
    return model.predict_checked(X, people_of_windows(raw.subject, len(X)), adapt)


def in_sequence(model: Model, raw: Raw, probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities (N, classes) of windows in the order of recording, given all windows of the same person and
    session. probability: of each window by itself."""
    stay = usable_stay(model.card.stay, len(model.card.classes))
    whose = sequences(raw.subject, raw.session, len(probability))
    return np.exp(smooth(np.log(np.maximum(probability, LEAST)), stay, sequence=whose))


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
