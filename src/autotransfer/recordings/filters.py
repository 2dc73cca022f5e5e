"""Filter: how recordings were filtered before they were cut into windows, where that is known.

A model is trained on filtered signals, so a stream must be filtered in the same way. Recordings that are cut here can
be filtered here (`load(..., filter="5-45")`), by second-order sections that do not look ahead; the model keeps these,
and a stream uses the same ones. Otherwise the filter is stated, never guessed: in meta of a file as {"filter":
{"highpass": 5, "lowpass": 45, "notch": [50]}}, each of them optional. Then only the band is known, and the filter has
probably looked ahead, as those of other programs usually do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, shown

REMEDY = (
    "give a band and the mains in Hz, such as 5-45,notch:50, 20- or -40, or {'highpass': 5, 'notch': [50]}, or none"
)
NUMBER = r"\d+\.?\d*|\.\d+"
BAND, NOTCH = rf"\s*({NUMBER})?-({NUMBER})?\s*", rf"\s*notch:({NUMBER})\s*"
ORDER = 4  # of the Butterworth filter
QUALITY = 30.0  # of a notch: its frequency over its width


@dataclass(frozen=True)
class Filter:
    highpass: float | None = None  # Hz: what is slower was removed
    lowpass: float | None = None  # Hz: what is faster was removed
    notch: tuple[float, ...] = ()  # Hz, of the mains
    # (n, 6), of a filter that does not look ahead, for the rate of the recordings; none: only the band is known
    sections: tuple[tuple[float, ...], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the filter as meta and cards of models hold it."""
        known = {"highpass": self.highpass, "lowpass": self.lowpass, "notch": list(self.notch)}
        return known | ({"sections": [list(section) for section in self.sections]} if self.sections else {})

    def __str__(self) -> str:
        edges = [f"{edge:g}" if edge is not None else "" for edge in (self.highpass, self.lowpass)]
        band = f"{edges[0]}–{edges[1]} Hz" if any(edges) else ""
        return ", ".join([band] * bool(band) + [f"notch {hz:g} Hz" for hz in self.notch])

    def designed(self, sfreq: float) -> Filter:
        """Return the filter with sections for a rate in Hz: a Butterworth filter, and a notch for each mains
        frequency. Known sections are kept."""
        if self.sections:
            return self
        from scipy.signal import butter, iirnotch, sosfilt_zi, tf2sos  # takes long to import, and few filter

        edges = [edge for edge in (self.highpass, self.lowpass) if edge is not None]
        kind: Literal["bandpass", "lowpass", "highpass"]
        kind = "bandpass" if len(edges) == 2 else "lowpass" if self.highpass is None else "highpass"
        stages = [butter(ORDER, edges if len(edges) == 2 else edges[0], kind, fs=sfreq, output="sos")] if edges else []
        stages += [tf2sos(*iirnotch(hz, QUALITY, fs=sfreq)) for hz in self.notch]
        sections = tuple(tuple(map(float, row)) for part in stages for row in part)
        try:
            _sections(sections)
            sosfilt_zi(np.array(sections))
        except (UserError, np.linalg.LinAlgError):
            raise UserError(
                f"filter is {self}, which cannot be computed for signals of {sfreq:g} Hz: a frequency is too close to "
                f"0 or to {sfreq / 2:g} Hz; {REMEDY}"
            ) from None
        return replace(self, sections=sections)


def parse_filter(value: object, sfreq: float | None = None) -> Filter | None:
    """Return a filter from a dict, text (see `_parsed`), a Filter or None; a filter that passes everything is None.
    Frequencies must lie below half of `sfreq`."""
    if value is None:
        return None
    given = value.as_dict() if isinstance(value, Filter) else _parsed(value) if isinstance(value, str) else value
    if not isinstance(given, Mapping) or set(given) - {"highpass", "lowpass", "notch", "sections"}:
        raise UserError(f"filter is {shown(value)}; {REMEDY}")
    notch = given.get("notch") or ()
    notches = list(notch) if isinstance(notch, (list, tuple)) else [notch]
    edges = [given.get("highpass"), given.get("lowpass")]
    for hz in (*(edge for edge in edges if edge is not None), *notches):
        if not _finite(hz) or not hz > 0:
            raise UserError(f"filter is {shown(value)}; {REMEDY}")
        if sfreq is not None and hz >= sfreq / 2:
            raise UserError(
                f"filter has {hz:g} Hz, and signals of {sfreq:g} Hz end below {sfreq / 2:g} Hz; leave that part out, "
                "or give a lower frequency"
            )
    low, high = (None if edge is None else float(edge) for edge in edges)
    if low is not None and high is not None and low >= high:
        raise UserError(f"filter removes what is below {low:g} Hz and above {high:g} Hz; {REMEDY}")
    known = Filter(low, high, tuple(float(hz) for hz in notches), _sections(given.get("sections")))
    return None if known == Filter() else known


def _parsed(text: str) -> dict[str, Any]:
    """Read a filter such as 5-45, 20- or -40 in Hz, and notch:50, in any order with commas between; none is none."""
    known: dict[str, Any] = {"notch": []}
    for part in text.split(",") if text.strip() != "none" else []:
        if match := re.fullmatch(NOTCH, part):
            known["notch"].append(float(match[1]))
        elif (match := re.fullmatch(BAND, part)) and any(match.groups()) and "highpass" not in known:
            known["highpass"], known["lowpass"] = (float(edge) if edge else None for edge in match.groups())
        else:
            raise UserError(f"filter is {shown(text)}; {REMEDY}")
    return known


def _finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _sections(value: object) -> tuple[tuple[float, ...], ...]:
    """Check sections from a card or meta, which may be damaged: six finite numbers each, and stable."""
    rows = value or ()
    if not isinstance(rows, (list, tuple)):
        raise UserError(f"the sections of the filter are {shown(value)}; they must be lists of six numbers")
    for row in rows:
        whole = isinstance(row, (list, tuple)) and len(row) == 6 and all(map(_finite, row))
        # Roots of z² + a z + b lie within the unit circle where |b| < 1 and |a| < 1 + b.
        if not whole or row[3] != 1 or not (abs(row[5]) < 1 and abs(row[4]) < 1 + row[5]):
            raise UserError(f"a section of the filter is {shown(row)}; it must be six numbers of a stable filter")
    return tuple(tuple(map(float, row)) for row in rows)


class CausalFilter:
    """A causal filter that keeps its state between calls. Where only the band of the recordings' filter is known, it
    has the same band, but delays the signal."""

    def __init__(self, spec: Filter | None, sfreq: float, n_channels: int) -> None:
        self.sections = None if spec is None else np.array(spec.designed(sfreq).sections)
        self.n_channels = n_channels
        self.reset()

    def reset(self) -> None:
        """Begin a new recording: the state becomes that of a signal that always had the value of the next sample."""
        self.state: NDArray[np.float64] | None = None

    def feed(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Filter the next samples (n, channels), n ≥ 1."""
        if self.sections is None:
            return values
        from scipy.signal import sosfilt, sosfilt_zi  # takes long to import, and few filter

        if self.state is None:
            start = sosfilt_zi(self.sections)  # (sections, 2)
            self.state = start[:, :, None] * values[0].astype(np.float64)
        filtered, self.state = sosfilt(self.sections, values.astype(np.float64), axis=0, zi=self.state)
        return np.asarray(filtered, dtype=np.float32)
