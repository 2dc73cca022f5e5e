"""Continuous targets: one number for each window, such as a force or an angle, instead of a class.

Recordings hold the numbers as `targets`. Their classes are bins of the numbers.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import UserError, shown
from .container import Recordings
from .labels import as_list, is_empty, label_names, select_windows, unlabeled_warning
from .raw import Raw
from .windows import as_window_array

Floats = NDArray[np.float64]

BINS = 5  # groups of similar values that serve as classes


def recordings_with_targets(raw: Raw, column: str | None = None) -> Recordings:
    """Validate windows with the target in y, a column or a channel; warn of windows without a number."""
    raw, values = split_target(raw, column)
    if values is None:
        hint = raw.hints.get("y", "y must give one number per window, or --target continuous:NAME must name a channel")
        raise UserError(f"{raw.name!r} holds no y; to train, {hint}")
    known = np.isfinite(values)
    if not known.any():
        raise UserError("no window has a target; y must give a number for the windows to train on")
    if (warning := unlabeled_warning(int((~known).sum()), len(known))) is not None:
        warnings.warn(warning, stacklevel=2)
        raw, values = select_windows(raw, np.flatnonzero(known)), values[known]
    if values.min() == values.max():
        raise UserError(f"every target is {values[0]:g}; there is nothing to predict")
    recordings = Recordings.from_raw(replace(raw, y=_bin(values), classes=None, hints={}))
    object.__setattr__(recordings, "targets", torch.from_numpy(values))
    return recordings


def split_target(raw: Raw, name: str | None = None) -> tuple[Raw, Floats | None]:
    """Return the windows without the column or channel of the target, and the target (N,), NaN if missing.

    Without a name, the target is y, and None if there is no y. The target of a channel is its mean over the window.
    """
    X = as_window_array(raw.X)
    n = int(X.shape[0])
    columns: dict[Any, Any] = dict(raw.columns) if isinstance(raw.columns, dict) else {}
    channels = [] if raw.channels is None else [str(channel) for channel in as_list(raw.channels, "channels")]
    if name is None:
        y = raw.y if raw.y is None or raw.classes is None else label_names(raw.y, n, "y", raw.classes)
        return raw, None if y is None else parse_targets(y, n)
    if name in columns:
        values = columns.pop(name)
        return replace(raw, columns=columns), parse_targets(values, n, f"the column {shown(name)}")
    if name in channels:
        channel = channels.index(name)
        rest = [c for c in range(len(channels)) if c != channel]
        if not rest:
            raise UserError(f"{shown(name)} is the only channel, and nothing is left to predict it from")
        means = np.asarray(X[:, channel], dtype=np.float64).mean(-1)
        return replace(raw, X=X[:, rest], channels=[channels[c] for c in rest]), means
    available = ", ".join(map(shown, [*columns, *channels]))
    raise UserError(f"there is no column and no channel {shown(name)} for the target; there are {available[:400]}")


def parse_targets(y: object, n_windows: int, what: str = "y") -> Floats:
    """Return floats (N,) from numbers or from text, NaN if missing."""
    dtype = getattr(y, "dtype", None)
    if getattr(dtype, "kind", None) in ("m", "M"):  # NumPy would convert them to counts of a unit
        raise UserError(f"{what} holds times ({dtype}); give numbers, such as the seconds since a start")
    values = as_list(y, what, n_windows)
    return np.array([_parse_number(value, n, what) for n, value in enumerate(values)], dtype=np.float64)


def _parse_number(value: Any, row: int, what: str) -> float:
    """Return a value as a float, NaN if it is missing."""
    if is_empty(value):
        return math.nan
    try:
        number = math.inf if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.inf
    if not abs(number) < 1e30:
        raise UserError(f"{what}[{row}] is {shown(value)}; a continuous target is a finite number for each window")
    return number


def _bin(values: Floats) -> NDArray[np.int64]:
    """Return the bin of each value (N,); bins are separated by quantiles, and at least two bins hold values."""
    edges = np.unique(np.quantile(values, np.arange(1, BINS) / BINS))
    edges = edges[edges > values.min()]
    return np.searchsorted(edges if len(edges) else values.max(keepdims=True), values, "right")
