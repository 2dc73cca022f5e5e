"""Windows without a label, which are left out of training with a warning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .columns import Column, is_empty
from .labels import as_list, check_length
from .raw import Raw


def unlabelled(y: object, n_trials: int, classes: object = None) -> NDArray[np.bool_]:
    """(N,) whether a label is None, NaN or empty text; -1 too, where y counts into the names of classes."""
    labels = as_list(y, "y")
    check_length(len(labels), n_trials, "y")
    counted = classes is not None and -1 not in as_list(classes, "the names for y")
    return np.array(
        [is_empty(label) or (counted and isinstance(label, (int, float)) and label == -1) for label in labels]
    )


def without_unlabelled(raw: Raw) -> tuple[Raw, int]:
    """The windows that have a label, and how many have none; where y is unknown all are kept."""
    if raw.y is None:
        return raw, 0
    missing = unlabelled(raw.y, int(raw.X.shape[0]), raw.classes)
    if not missing.any():
        return raw, 0
    if missing.all():
        raise UserError("no window has a label; y must give the class of those that train")
    return rows_of(raw, np.flatnonzero(~missing)), int(missing.sum())


def rows_of(raw: Raw, rows: NDArray[np.int64]) -> Raw:
    """Some of the windows (n,)."""
    labels = {name: getattr(raw, name) for name in ("y", "subject", "session")}
    parts: dict[str, Any] = {
        name: None if values is None else _some(values, rows, name) for name, values in labels.items()
    }
    items = getattr(raw.columns, "items", dict[str, object]().items)
    parts["columns"] = {name: _some(values, rows, f"the column {name!r}") for name, values in items()}
    return replace(raw, X=raw.X[rows], **parts)


def unlabelled_warning(missing: int, n_trials: int) -> str | None:
    return f"{missing} of {n_trials} windows have no label: they are left out of training" if missing else None


def _some(values: object, rows: NDArray[np.int64], what: str) -> object:
    if isinstance(values, Column):
        return replace(values, values=values.values[rows])
    listed = as_list(values, what)
    return [listed[n] for n in rows.tolist()]
