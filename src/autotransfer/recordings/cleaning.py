"""Cleaning leaves out clearly broken data before training (`run --clean`), and reports what was left out.

It leaves out windows with lost values or without any change, channels that are dead in many subjects, and subjects with
a dead channel. concerns.py reports what only the user can settle: wrong units, and one recording under two names.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import UserError, shown
from .chunks import window_chunks
from .concerns import FLAT, encode_optional
from .labels import select_windows
from .raw import Raw
from .signal import channel_names
from .statistics import signal_statistics
from .windows import as_window_array

MAX_SUBJECTS = 0.25  # if at least this share of subjects has a dead channel, the channel is left out, else the subjects


def clean(raw: Raw) -> tuple[Raw, list[str]]:
    """Return the windows that are kept, and a line for everything that is left out."""
    X = as_window_array(raw.X)
    raw, notes = replace(raw, X=X, channels=channel_names(raw.channels, X.shape[1])), []
    for step in (_drop_windows, _drop_dead_channels):
        raw, left_out = step(raw)
        notes += [f"left out: {note}" for note in left_out]
    return raw, notes


def _drop_windows(raw: Raw) -> tuple[Raw, list[str]]:
    is_kept = np.empty(len(raw.X), bool)
    for rows in window_chunks(raw.X):
        values = np.asarray(raw.X[rows])
        is_kept[rows] = np.isfinite(values).all((1, 2)) & (values.max(-1) != values.min(-1)).any(1)
    if is_kept.all():
        return raw, []
    if not is_kept.any():
        raise UserError("no window is left to train on: all have lost values or are constant")
    note = f"{(~is_kept).sum()} of {len(is_kept)} windows with lost values, or in which every channel is constant"
    return select_windows(raw, np.flatnonzero(is_kept)), [note]


def _drop_dead_channels(raw: Raw) -> tuple[Raw, list[str]]:
    subject, subjects = encode_optional(raw.subject, len(raw.X), "subject", raw.subjects)
    dead = signal_statistics(raw.X, subject, len(subjects)).flat > FLAT  # (S, C)
    names, notes = raw.channels, []
    is_dropped = dead.mean(0) >= MAX_SUBJECTS if len(subjects) > 1 else dead.all(0)
    if is_dropped.all():
        raise UserError("no channel is left to train on: all are constant in many subjects")
    if is_dropped.any():
        listed = ", ".join(names[c] for c in np.flatnonzero(is_dropped).tolist())
        notes.append(f"channels {listed}, dead in {int(dead[:, is_dropped].any(1).sum())} of {len(subjects)} subjects")
        kept = np.flatnonzero(~is_dropped).tolist()
        raw = replace(raw, X=raw.X[:, kept], channels=tuple(names[c] for c in kept))
    broken = np.flatnonzero(dead[:, ~is_dropped].any(1)) if len(subjects) > 1 else np.empty(0, np.int64)
    if len(broken):
        listed = ", ".join(str(subjects[s]) for s in broken.tolist())
        notes.append(f"{len(broken)} of {len(subjects)} subjects with a dead channel ({shown(listed, 200)})")
        raw = select_windows(raw, np.flatnonzero(~np.isin(subject, broken)))
    return raw, notes
