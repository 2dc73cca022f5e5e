"""Raw: the windows that a reader returns, before they are validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from ..errors import UserError

Array = np.ndarray[Any, Any]
Label = Any  # str, int or float
LARGEST = 1e15  # Training sums squares in float32, which ends at 3e38; biosignals are smaller in every unit.
SMALLEST_RANGE = 1e-18  # float32 loses squares of smaller values; magnetic fields in tesla are above 1e-15.


@dataclass(eq=False, kw_only=True)
class Stated:
    """Properties of signals that a reader states, before validation as a `Signal`; None means unknown."""

    channels: Any = None
    sfreq: Any = None  # Hz
    filter: Any = None  # how the signals were filtered (see filters.py)
    unit: Any = None  # of the values, such as V
    reference: Any = None  # such as average
    has_gaps: bool | None = None  # whether samples are missing in the recordings
    sources: dict[str, str] = field(default_factory=dict)  # source of sfreq and filter (see signal.py)


@dataclass(eq=False, kw_only=True)
class Raw(Stated):
    """Arrays and names as a file holds them. Training needs y and subject, prediction does not."""

    X: Any  # (N, channels, times): an array or tensor, perhaps in a file
    y: Any = None  # (N,)
    subject: Any = None  # (N,)
    session: Any = None  # (N,)
    columns: Any = None  # name -> (N,): further values of each window
    classes: Any = None  # names for integers in y
    subjects: Any = None  # names for integers in subject
    name: str = "recordings"
    hints: Mapping[str, str] = field(default_factory=dict)  # remedy if "y", "subject" or "window" is missing
    notes: tuple[str, ...] = ()  # decisions of the reader, such as which columns are no channels
    events: dict[str, int] = field(default_factory=dict)  # count of each event of a continuous recording

    def labeled(self) -> dict[str, Any]:
        """Return the arguments of Recordings; raise if y or subject is missing."""
        for name in ("y", "subject"):
            if getattr(self, name) is None:
                hint = self.hints.get(name, f"{name} must give one label per window")
                raise UserError(f"{self.name!r} holds no {name}; to train, {hint}")
        return {name: getattr(self, name) for name in STORED}


def get_stated(source: object) -> dict[str, Any]:
    """Return the fields of Stated that a Raw, a Continuous or a Signal has."""
    return {entry.name: getattr(source, entry.name) for entry in fields(Stated)}


# Fields of Recordings in addition to `signal`.
STORED = ("X", "y", "subject", "session", "columns", "classes", "subjects", "name")
