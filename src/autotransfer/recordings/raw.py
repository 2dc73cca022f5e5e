"""Raw: what a reader returns, not yet validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import UserError

Array = np.ndarray[Any, Any]
Label = Any  # str, int or float
# Training squares and sums values in float32, which ends at 3e38; no unit of a biosignal comes near this.
LARGEST = 1e15
# Squares of smaller values are lost in float32. Magnetic fields in tesla, the smallest numbers in use, are above 1e-15.
SMALLEST_RANGE = 1e-18


@dataclass(frozen=True, eq=False, kw_only=True)
class Raw:
    """Arrays and names as a file holds them. Training needs y and subject, predicting does not."""

    X: Any  # (N, channels, times): an array or tensor, in a file of any layout
    y: object = None  # (N,)
    subject: object = None  # (N,)
    session: object = None  # (N,)
    columns: object = None  # name -> (N,): what else is known of each trial
    sfreq: object = None
    channels: object = None
    classes: object = None  # names that y counts into
    subjects: object = None  # names that subject counts into
    name: str = "recordings"
    filter: object = None  # how the signals were filtered (see filters.py)
    hints: Mapping[str, str] = field(default_factory=dict)  # by "y" or "subject": what to do if it is missing
    notes: tuple[str, ...] = ()  # what a reader decided, such as which columns are no channels

    def labeled(self) -> dict[str, Any]:
        """Return the arguments of Recordings; y and subject are required."""
        for name in ("y", "subject"):
            if getattr(self, name) is None:
                hint = self.hints.get(name, f"{name} must give one label per trial")
                raise UserError(f"{self.name!r} holds no {name}; to train, {hint}")
        return {name: getattr(self, name) for name in STORED}


# The fields that Recordings have too.
STORED = tuple(name for name in Raw.__dataclass_fields__ if name not in ("hints", "notes"))
