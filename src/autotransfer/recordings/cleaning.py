"""Cleaning leaves out what is clearly broken before anything is trained (`run --clean`), and reports it.

Left out are windows with lost values or in which no channel changes, channels that are dead in many people, people with
a dead channel, and the second of two people who are one recording. Hum, clipping and wrong units stay, and are reported
by concerns.py: a filter or a factor mends them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import UserError, shown
from .chunks import window_chunks
from .concerns import FLAT, SAME, encode_optional
from .copies import shared_samples, stretches
from .labels import select_windows
from .raw import Raw
from .signals import signals_of
from .windows import as_window_array, channel_names

MANY = 0.25  # share of people with the same dead channel, from which the channel goes and not the people


def clean(raw: Raw) -> tuple[Raw, list[str]]:
    """Return the windows that are kept, and a line for everything that is left out."""
    X = as_window_array(raw.X)
    raw, notes = replace(raw, X=X, channels=channel_names(raw.channels, X.shape[1])), []
    for step in (_whole_windows, _live_channels, _without_copies):
        raw, told = step(raw)
        notes += told
    return raw, [f"left out: {note}" for note in notes]


def _whole_windows(raw: Raw) -> tuple[Raw, list[str]]:
    whole, alive = np.empty(len(raw.X), bool), np.empty(len(raw.X), bool)
    for rows in window_chunks(raw.X):
        values = np.asarray(raw.X[rows])
        whole[rows] = np.isfinite(values).all((1, 2))
        alive[rows] = (values.max(-1) != values.min(-1)).any(1)
    kept = np.flatnonzero(whole & alive)
    if not len(kept):
        raise UserError("no window is left to train on: all have lost values or do not change")
    broken = {"with NaN or infinite values": ~whole, "in which no channel changes": whole & ~alive}
    notes = [f"{rows.sum()} of {len(rows)} windows {why}" for why, rows in broken.items() if rows.any()]
    return (select_windows(raw, kept), notes) if notes else (raw, [])


def _live_channels(raw: Raw) -> tuple[Raw, list[str]]:
    person, people = encode_optional(raw.subject, len(raw.X), "subject", raw.subjects)
    dead = signals_of(raw.X, person, len(people)).flat > FLAT  # (S, C)
    names = channel_names(raw.channels, dead.shape[1])
    notes = []
    gone = dead.mean(0) >= MANY if len(people) > 1 else dead.all(0)
    if gone.all():
        raise UserError("no channel is left to train on: in many people none of them changes")
    if gone.any():
        listed = ", ".join(names[c] for c in np.flatnonzero(gone).tolist())
        notes.append(f"channels {listed}, dead in {int(dead[:, gone].any(1).sum())} of {len(people)} people")
        left = np.flatnonzero(~gone).tolist()
        raw = replace(raw, X=raw.X[:, left], channels=tuple(names[c] for c in left))
    broken = np.flatnonzero(dead[:, ~gone].any(1)) if len(people) > 1 else np.empty(0, np.int64)
    if len(broken):
        listed = ", ".join(str(people[s]) for s in broken.tolist())
        notes.append(f"{len(broken)} of {len(people)} people with a dead channel ({shown(listed, 200)})")
        raw = select_windows(raw, np.flatnonzero(~np.isin(person, broken)))
    return raw, notes


def _without_copies(raw: Raw) -> tuple[Raw, list[str]]:
    person, people = encode_optional(raw.subject, len(raw.X), "subject", raw.subjects)
    same = [pair for pair in shared_samples(stretches(raw.X), person) if pair.share >= SAME]
    if not same:
        return raw, []
    notes = [f"{shown(people[p.second])}, whose recording is that of {shown(people[p.first])}" for p in same]
    return select_windows(raw, np.flatnonzero(~np.isin(person, [pair.second for pair in same]))), notes
