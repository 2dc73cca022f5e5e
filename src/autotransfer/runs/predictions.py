"""Predictions as a table: one row per window, a column per class."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..models.mixture import Model
from ..recordings import Raw
from ..recordings.concerns import scale_concern, typical_scale
from ..recordings.container import check_sfreq
from ..recordings.labels import named
from ..recordings.windows import people_of_windows


def probabilities(model: Model, raw: Raw, adapt: str | None = None) -> NDArray[np.float64]:
    """(N, classes) of windows as a reader found them: with channel names, rate and, perhaps, whose they are, or
    without. adapt: as of `predict_proba`."""
    X = model.check(raw.X, raw.channels, check_sfreq(raw.sfreq))
    if (told := scale_concern(typical_scale(X), model.parts[0].card.scale)) is not None:
        warnings.warn(told, stacklevel=2)
    return model.predict_checked(X, people_of_windows(raw.subject, len(X)), adapt)


def predictions(model: Model, raw: Raw, probability: NDArray[np.float64] | None = None) -> pd.DataFrame:
    """The table of the same. probability: where it is known already."""
    if probability is None:
        probability = probabilities(model, raw)
    classes = [str(name) for name in model.card.classes]
    table = pd.DataFrame(probability, columns=[f"p_{name}" for name in classes])
    table.insert(0, "prediction", [classes[k] for k in probability.argmax(1)])
    if raw.subject is not None:
        table.insert(0, "subject", named(raw.subject, len(table), "subject", raw.subjects))
    table.insert(0, "window", range(len(table)))
    return table
