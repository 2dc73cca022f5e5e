"""WFDB records, PhysioNet's format: a header .hea, the signal files that it names, and annotations as events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .cutting import Continuous, Cutting, Event
from .optional import need
from .signal import common_unit

SYMBOLS = ("+", '"', "~", "s", "T")  # symbols whose meaning is in the text of the annotation: rhythm, comment, ...
UNDEFINED = "undefined"  # the name of an annotation whose code has no symbol: NaN in wfdb


def open_wfdb(path: Path, cutting: Cutting, options: dict[str, str]) -> Continuous:
    """Open a record with the annotations in its .atr file."""
    wfdb = need("wfdb", "reading WFDB records", "wfdb")
    stem = str(path.absolute().with_suffix(""))
    record = wfdb.rdrecord(stem, physical=True)
    values = np.asarray(record.p_signal, dtype=np.float32)  # (samples, channels)
    names, units = ([str(text) for text in texts or []] for texts in (record.sig_name, record.units))
    is_distinct = len(set(names)) == len(names) == values.shape[1]
    return Continuous(
        read=lambda start, stop: values[start:stop].T,
        n_times=len(values),
        channels=tuple(names) if is_distinct else tuple(f"ch{c}" for c in range(values.shape[1])),
        sfreq=float(record.fs),
        unit=common_unit(units),
        events=_annotations(wfdb, path, float(record.fs)),
    )


def _annotations(wfdb: Any, path: Path, sfreq: float) -> list[Event]:
    """Return annotations named by their symbol, such as N for a normal beat, or by their text, such as (AFIB."""
    if not path.with_suffix(".atr").is_file():
        return []
    notes = wfdb.rdann(str(path.absolute().with_suffix("")), "atr")
    rate, events = float(notes.fs or sfreq), []
    for sample, symbol, note in zip(notes.sample, notes.symbol, notes.aux_note, strict=True):
        text = note.strip("\0 ") if symbol in SYMBOLS else ""
        events.append(Event(int(sample) / rate, 0.0, text or (symbol if isinstance(symbol, str) else UNDEFINED)))
    return events
