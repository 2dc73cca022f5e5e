"""Filters of recordings, which a model also applies to streams.

Continuous recordings can be filtered by causal second-order sections (`load(..., filter="5-45")`), and a stream is
filtered with the same sections. A filter of another program is stated in meta as {"filter": {"highpass": 5,
"lowpass": 45, "notch": [50]}}. Then only its band is known, and it was probably not causal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
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
STABLE = 1 - 1e-9  # largest absolute value of a pole
KEYS = {"highpass", "lowpass", "notch", "causal"}


@dataclass(frozen=True)
class Filter:
    """Band and notches of a filter in Hz; without them, the signals are not filtered."""

    highpass: float | None = None
    lowpass: float | None = None
    notch: tuple[float, ...] = ()
    is_causal: bool = False  # whether `CausalFilter` was applied, so that it can also be applied to streams

    def __bool__(self) -> bool:
        return self.band != (None, None, ())

    @property
    def band(self) -> tuple[float | None, float | None, tuple[float, ...]]:
        """Return the frequencies of the filter."""
        return self.highpass, self.lowpass, self.notch

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Filter:
        """Return the filter from the result of `to_dict`."""
        parsed = parse_filter(values)
        assert parsed is not None, "values are not None"
        return parsed

    def to_dict(self) -> dict[str, Any]:
        """Return the filter as meta and model cards store it."""
        band = {"highpass": self.highpass, "lowpass": self.lowpass, "notch": list(self.notch)}
        return band | {"causal": True} if self.is_causal else band

    def describe(self) -> str:
        """Return the filter as the end of a sentence."""
        return f"filtered {self}" if self else "not filtered"

    def __str__(self) -> str:
        edges = [f"{edge:g}" if edge is not None else "" for edge in (self.highpass, self.lowpass)]
        band = f"{edges[0]}–{edges[1]} Hz" if any(edges) else ""
        return ", ".join([band] * bool(band) + [f"notch {hz:g} Hz" for hz in self.notch])

    def design(self, sfreq: float) -> NDArray[np.float64]:
        """Return stable sections (n, 6) for a rate in Hz: a Butterworth filter, and a notch for each frequency."""
        from scipy.signal import butter, iirnotch, sos2zpk, tf2sos  # takes long to import

        edges = [edge for edge in (self.highpass, self.lowpass) if edge is not None]
        kind: Literal["bandpass", "lowpass", "highpass"]
        kind = "bandpass" if len(edges) == 2 else "lowpass" if self.highpass is None else "highpass"
        stages = [butter(ORDER, edges if len(edges) == 2 else edges[0], kind, fs=sfreq, output="sos")] if edges else []
        stages += [tf2sos(*iirnotch(hz, QUALITY, fs=sfreq)) for hz in self.notch]
        sections = np.concatenate(stages)
        if np.abs(sos2zpk(sections)[1]).max() > STABLE:
            raise UserError(
                f"filter is {self}, which is unstable for signals of {sfreq:g} Hz: a frequency is too close to 0 or to "
                f"{sfreq / 2:g} Hz; {REMEDY}"
            )
        return sections


def parse_filter(value: object, sfreq: float | None = None) -> Filter | None:
    """Return a filter from a dict, text, a Filter or None. `sfreq` limits frequencies."""
    if value is None:
        return None
    given = value.to_dict() if isinstance(value, Filter) else _parse_text(value) if isinstance(value, str) else value
    if not isinstance(given, Mapping) or set(given) - KEYS:
        raise UserError(f"filter is {shown(value)}; {REMEDY}")
    notch = given.get("notch") or ()
    notches = list(notch) if isinstance(notch, (list, tuple)) else [notch]
    edges = [given.get("highpass"), given.get("lowpass")]
    for hz in (*(edge for edge in edges if edge is not None), *notches):
        if not isinstance(hz, (int, float)) or isinstance(hz, bool) or not 0 < hz < 1e9:
            raise UserError(f"filter is {shown(value)}; {REMEDY}")
        if sfreq is not None and hz >= sfreq / 2:
            raise UserError(
                f"filter has {hz:g} Hz, which is not below half of the sampling rate ({sfreq / 2:g} Hz); "
                "leave that part out, or give a lower frequency"
            )
    low, high = (None if edge is None else float(edge) for edge in edges)
    if low is not None and high is not None and low >= high:
        raise UserError(f"filter removes all below {low:g} Hz and all above {high:g} Hz; {REMEDY}")
    is_filtered = edges != [None, None] or bool(notches)
    return Filter(low, high, tuple(float(hz) for hz in notches), is_filtered and bool(given.get("causal")))


def combine(stated: Filter | None, asked: Filter | None) -> tuple[Filter | None, Filter | None]:
    """Return the filter to apply to signals with a stated filter, None if not needed, and the filter of the result.

    If the stated filter has a wider band, as in many devices, the result has the band of the filter that is applied.
    """
    if not asked or (stated is not None and stated.band == asked.band):
        return None, stated
    if not stated:
        return asked, asked
    low = max(filter(None, (stated.highpass, asked.highpass)), default=None)
    high = min(filter(None, (stated.lowpass, asked.lowpass)), default=None)
    both = Filter(low, high, tuple(dict.fromkeys((*asked.notch, *stated.notch))))
    return asked, asked if both.band == asked.band else both


def _parse_text(text: str) -> dict[str, Any]:
    """Parse 5-45, 20- or -40 in Hz and notch:50, in any order with commas between them, or none."""
    parsed: dict[str, Any] = {"notch": []}
    for part in text.split(",") if text.strip() != "none" else []:
        if match := re.fullmatch(NOTCH, part):
            parsed["notch"].append(float(match[1]))
        elif (match := re.fullmatch(BAND, part)) and any(match.groups()) and "highpass" not in parsed:
            parsed["highpass"], parsed["lowpass"] = (float(edge) if edge else None for edge in match.groups())
        else:
            raise UserError(f"filter is {shown(text)}; {REMEDY}")
    return parsed


class CausalFilter:
    """A causal filter that keeps its state between calls; without frequencies, it returns samples unchanged."""

    def __init__(self, spec: Filter | None, sfreq: float, n_channels: int) -> None:
        self.sections = spec.design(sfreq) if spec else None
        self.n_channels = n_channels
        self.reset()

    def reset(self) -> None:
        """Begin a new recording, as if the signal had always had the value of the next sample."""
        self.state: NDArray[np.float64] | None = None

    def feed(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Filter the next samples (n, channels), n ≥ 1."""
        if self.sections is None:
            return values
        from scipy.signal import sosfilt, sosfilt_zi  # takes long to import

        if self.state is None:
            start = sosfilt_zi(self.sections)  # (sections, 2)
            self.state = start[:, :, None] * values[0].astype(np.float64)
        filtered, self.state = sosfilt(self.sections, values.astype(np.float64), axis=0, zi=self.state)
        return np.asarray(filtered, dtype=np.float32)
