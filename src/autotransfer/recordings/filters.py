"""Filter: how recordings were filtered before they were cut into windows, where that is known.

A model sees filtered signals, so whoever streams to it has to filter in the same way. It is stated, never guessed: in
meta of a file as {"filter": {"highpass": 5, "lowpass": 45, "notch": [50]}}, each of them optional.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import UserError
from .messages import show

REMEDY = "give {'highpass': Hz, 'lowpass': Hz, 'notch': [Hz, ...]}, each of them optional, or None"


@dataclass(frozen=True)
class Filter:
    highpass: float | None = None  # Hz: what is slower was removed
    lowpass: float | None = None  # Hz: what is faster was removed
    notch: tuple[float, ...] = ()  # Hz, of the mains

    def as_dict(self) -> dict[str, Any]:
        """As meta and cards of models hold it."""
        return {"highpass": self.highpass, "lowpass": self.lowpass, "notch": list(self.notch)}

    def __str__(self) -> str:
        edges = [f"{edge:g}" if edge is not None else "" for edge in (self.highpass, self.lowpass)]
        band = f"{edges[0]}–{edges[1]} Hz" if any(edges) else ""
        return ", ".join([band] * bool(band) + [f"notch {hz:g} Hz" for hz in self.notch])


def filter_of(value: object, sfreq: float | None = None) -> Filter | None:
    """From a dict, a Filter or None; one that leaves everything is None. sfreq: bounds the frequencies."""
    if value is None or (isinstance(value, Filter) and value == Filter()):
        return None
    given = value.as_dict() if isinstance(value, Filter) else value
    if not isinstance(given, Mapping) or set(given) - {"highpass", "lowpass", "notch"}:
        raise UserError(f"filter is {show(value)}; {REMEDY}")
    notch = given.get("notch") or ()
    notches = list(notch) if isinstance(notch, (list, tuple)) else [notch]
    edges = [given.get("highpass"), given.get("lowpass")]
    for hz in (*(edge for edge in edges if edge is not None), *notches):
        number = isinstance(hz, (int, float)) and not isinstance(hz, bool)
        if not number or not (math.isfinite(hz) and hz > 0):
            raise UserError(f"filter is {show(value)}; {REMEDY}")
        if sfreq is not None and hz >= sfreq / 2:
            raise UserError(f"filter has {hz:g} Hz, and signals of {sfreq:g} Hz end below {sfreq / 2:g} Hz; {REMEDY}")
    low, high = (None if edge is None else float(edge) for edge in edges)
    if low is not None and high is not None and low >= high:
        raise UserError(f"filter removes what is below {low:g} Hz and above {high:g} Hz; {REMEDY}")
    found = Filter(low, high, tuple(float(hz) for hz in notches))
    return None if found == Filter() else found
