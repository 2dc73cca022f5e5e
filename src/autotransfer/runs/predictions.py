"""Predictions as a table: one row per window, a column per class."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from ..errors import UserError
from ..recordings import Raw, check_windows
from ..recordings.container import check_sfreq
from .saved_model import SavedModel


def predictions(model: SavedModel, raw: Raw) -> pd.DataFrame:
    """Of windows as a reader found them: with channel names, rate and, perhaps, whose they are, or without."""
    X, channels = check_windows(raw.X, raw.channels)
    model.check(X, None if raw.channels is None else channels, check_sfreq(raw.sfreq))
    subject = None
    if raw.subject is not None:
        labels = np.asarray(raw.subject)
        if len(labels) != len(X):
            raise UserError(f"there are {len(X)} windows but {len(labels)} subject labels")
        subject = torch.from_numpy(np.unique(labels, return_inverse=True)[1])
    probability = model.predict_proba(X, subject)
    classes = [str(name) for name in model.card.classes]
    table = pd.DataFrame(probability, columns=[f"p_{name}" for name in classes])
    table.insert(0, "prediction", [classes[k] for k in probability.argmax(1)])
    if raw.subject is not None:
        table.insert(0, "subject", np.asarray(raw.subject).tolist())
    table.insert(0, "window", range(len(table)))
    return table
