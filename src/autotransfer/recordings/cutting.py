"""Cutting of windows out of continuous recordings, around events or one after the other."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import UserError, check_choice, check_positive, check_types, shown
from .filters import CausalFilter, Filter, combine, parse_filter
from .raw import LARGEST, Array, Label, Raw, Stated, get_stated

HOW_TO_MAP = "give names of events and their classes, such as --events T1=left,T2=right (events={'T1': 'left', ...})"
GROUP = "group"  # column of windows that resemble each other; they are not both labeled and scored
MAX_DELAY = 0.501  # samples by which a window may begin later than its event; if it is more, a sample is missing


class Event(NamedTuple):
    """An event of a continuous recording."""

    onset: float  # s from the first sample
    duration: float  # s; 0: a moment
    name: str


@dataclass(eq=False, kw_only=True)
class Continuous(Stated):
    """One continuous recording, whose samples are read when windows are cut."""

    read: Callable[[int, int], Array]  # (start, stop) -> (channels, stop - start)
    n_times: int
    events: list[Event] = field(default_factory=list)
    bad: list[Event] = field(default_factory=list)  # stretches that windows must not overlap
    times: Array | None = None  # (n_times,) s, if samples can be missing between two others
    breaks: tuple[int, ...] = ()  # samples that follow missing samples, in order
    filter: Filter = field(default_factory=Filter)
    notes: tuple[str, ...] = ()  # decisions of the reader


@dataclass(frozen=True, kw_only=True)
class Cutting:
    """Description of the windows of continuous recordings, and of how their files are named and written.

    With `events`, {name: class}, a window of `window` seconds begins `offset` seconds after each such event. With `hop`
    too, windows follow every `hop` seconds until the event ends, or until the next one if it has no duration. An event
    whose class is empty text ends the one before it and gives no windows. Without events, windows follow every `hop`
    seconds (default: `window`) through the whole recording. Without `window`, a recording is one window.
    """

    window: float | None = None  # s
    hop: float | None = None  # s
    offset: float | None = None  # s; None: 0
    events: Any = None  # a dict, a list or text (see `parse_events`), kept as a dict
    pattern: str | None = None  # of file names (see pattern.py)
    sfreq: float | None = None  # Hz, of files that do not state it
    sep: str | None = None  # between the columns of CSV files
    decimal: str | None = None  # the decimal mark of CSV files
    time_column: str | None = None  # of CSV files
    filter: Any = None  # a causal filter, applied before cutting (see filters.py), kept as a Filter

    def __post_init__(self) -> None:
        check_types(self)
        check_positive(self, "window", "hop", "sfreq")
        object.__setattr__(self, "events", parse_events(self.events))
        object.__setattr__(self, "filter", parse_filter(self.filter))
        object.__setattr__(self, "sep", "\t" if self.sep in ("tab", "\\t") else self.sep)
        if self.sep is not None and len(self.sep) != 1:
            raise UserError(f"sep is {shown(self.sep)}; give one character, such as ; or a tab (tab)")
        if self.decimal is not None:
            check_choice("decimal mark", self.decimal, (".", ","))
        if not math.isfinite(self.offset or 0.0):
            raise UserError(f"offset is {self.offset}; it must be a number of seconds")
        if self.window is None and (self.hop is not None or self.events is not None):
            option = "hop" if self.events is None else "events"
            raise UserError(f"{option} needs a window; give its length in seconds, --window 1.0")
        if self.events is not None and not any(self.events.values()):
            raise UserError(f"events are {shown(self.events)}, which name no class; {HOW_TO_MAP}")


def parse_events(events: object) -> dict[str, str] | None:
    """Return {name: class} from a dict, from names that are classes, or from text: T1=left,T2=right or JSON."""
    pairs = _parse_text(events) if isinstance(events, str) else events
    if pairs is None:
        return None
    if isinstance(pairs, Sequence):
        pairs = {name: name for name in pairs}
    if not isinstance(pairs, Mapping) or not pairs:
        raise UserError(f"events are {shown(events)}; {HOW_TO_MAP}")
    classes = {}
    for name, label in pairs.items():
        if not isinstance(name, (str, int)) or not isinstance(label, (str, int)) or not str(name).strip():
            raise UserError(f"events hold {shown(name)}: {shown(label)}; {HOW_TO_MAP}")
        classes[str(name).strip()] = str(label).strip()
    return classes


def _parse_text(text: str) -> dict[str, str]:
    """Parse the text of the command line; JSON is for names with a comma or an equals sign."""
    if text.lstrip().startswith("{"):
        try:
            return dict(json.loads(text))
        except ValueError:
            raise UserError(f"events are {shown(text)}, which is no JSON; {HOW_TO_MAP}") from None
    classes: dict[str, str] = {}
    for part in text.split(","):
        name, equals, label = part.partition("=")
        if name.strip() in classes:
            raise UserError(f"events have {shown(name.strip())} twice; {HOW_TO_MAP}")
        classes[name.strip()] = label.strip() if equals else name.strip()
    return classes


def cut(recording: Continuous, cutting: Cutting, path: Path, label: str | None = None) -> Raw:
    """Return the windows of one recording, with the classes of events, or else `label`, as y."""
    requested = replace(cutting.filter, is_causal=True) if cutting.filter else None
    band, resulting = combine(recording.filter, requested)
    about = get_stated(recording) | {"filter": resulting, "has_gaps": bool(recording.breaks), "notes": recording.notes}
    about |= {"events": dict(Counter(event.name for event in recording.events)), "name": repr(path.name)}
    if cutting.window is None and label is None and recording.events:  # the user must give --events
        return Raw(X=np.empty((0, len(recording.channels), 0), np.float32), **about)
    length = _length(recording, cutting, path)
    if band is not None:
        recording = _filtered(recording, band, path)
    windows = [
        window for window in _find_windows(recording, cutting, label) if _is_usable(recording, window.start, length)
    ]
    if cutting.events is not None and cutting.hop is not None:  # windows of one event resemble each other
        about["columns"] = {GROUP: [f"{path.name}, event {window.event}" for window in windows]}
    return Raw(
        X=_read_windows(recording, [window.start for window in windows], length),
        y=[window.label for window in windows] if cutting.events is not None or label is not None else None,
        **about,
    )


def _filtered(recording: Continuous, band: Filter, path: Path) -> Continuous:
    """Filter a recording; as in a stream, the filter starts again after gaps and values that are not finite."""
    n, sfreq = recording.n_times, require_rate(recording.sfreq, path)
    causal = CausalFilter(parse_filter(band, sfreq), sfreq, len(recording.channels))
    with np.errstate(over="ignore", invalid="ignore"):  # overflow gives infinite values
        values = np.array(recording.read(0, n).T, dtype=np.float32, order="C")
    usable = np.all(np.abs(values) <= LARGEST, axis=1)  # False for NaN
    edges = np.unique([0, n, *recording.breaks, *(np.flatnonzero(np.diff(usable)) + 1)]).astype(int)
    for begin, end in pairwise(edges.tolist()):
        if usable[begin]:
            causal.reset()
            values[begin:end] = causal.feed(values[begin:end])
    return replace(recording, read=lambda start, stop: values[start:stop].T)


def _length(recording: Continuous, cutting: Cutting, path: Path) -> int:
    """Return the number of samples of a window."""
    if cutting.window is None:
        return recording.n_times
    sfreq = require_rate(recording.sfreq, path)
    for option, seconds in (("window", cutting.window), ("hop", cutting.hop)):
        if seconds is not None and round(seconds * sfreq) < 1:
            raise UserError(f"a {option} of {seconds:g} s has no sample at {sfreq:g} Hz; --{option} is in seconds")
    return round(cutting.window * sfreq)


def require_rate(sfreq: float | None, path: Path) -> float:
    """Return a sampling rate in Hz, or raise if it is unknown."""
    if sfreq is None:
        raise UserError(f"{str(path)!r} does not state its sampling rate; give it in Hz, --sfreq 200")
    return sfreq


class Window(NamedTuple):
    """A window of a continuous recording."""

    start: int  # first sample
    label: Label  # class
    event: int = 0  # number of the event, from 1; 0: the window does not belong to an event


def _find_windows(recording: Continuous, cutting: Cutting, label: str | None) -> Iterator[Window]:
    """Yield every window, including incomplete windows."""
    sfreq = recording.sfreq or 1.0
    end = recording.n_times / sfreq if recording.times is None else float(recording.times[-1] + 1 / sfreq)
    delay = cutting.offset or 0.0
    if cutting.window is None:
        yield Window(0, label)
    elif cutting.events is None:
        for begin in _window_starts(delay, end, cutting.window, cutting.hop or cutting.window):
            yield Window(_find_sample(recording, begin), label)
    else:
        events = sorted(event for event in recording.events if event.name in cutting.events)
        next_onsets = [*(event.onset for event in events[1:]), end]
        for number, (event, next_onset) in enumerate(zip(events, next_onsets, strict=False), 1):
            name, begin = cutting.events[event.name], event.onset + delay
            if not name:
                continue
            if cutting.hop is None:
                yield Window(_find_sample(recording, begin), name, number)
                continue
            until = event.onset + event.duration if event.duration > 0 else next_onset
            for start in _window_starts(begin, until, cutting.window, cutting.hop):
                yield Window(_find_sample(recording, start), name, number)


def _window_starts(begin: float, end: float, window: float, hop: float) -> Iterator[float]:
    """Yield the seconds at which windows begin that end before `end`, with a tolerance of a thousandth of a window."""
    count = math.floor((end - begin - 0.999 * window) / hop) + 1
    for n in range(count):
        yield begin + n * hop


def _find_sample(recording: Continuous, seconds: float) -> int:
    """Return the sample at a time; -1 if there is no such sample."""
    sfreq = recording.sfreq or 1.0
    if recording.times is None:
        return max(round(seconds * sfreq), -1)
    sample = int(np.searchsorted(recording.times, seconds - 0.5 / sfreq))
    is_near = sample < recording.n_times and (recording.times[sample] - seconds) * sfreq <= MAX_DELAY
    return sample if is_near else -1


def _is_usable(recording: Continuous, start: int, length: int) -> bool:
    """Return whether a window lies within the recording, has no gap, and overlaps no bad stretch."""
    stop, sfreq = start + length, recording.sfreq or 1.0
    if start < 0 or stop > recording.n_times:
        return False
    after = bisect_right(recording.breaks, start)
    if after < len(recording.breaks) and recording.breaks[after] < stop:
        return False
    begin = start / sfreq if recording.times is None else float(recording.times[start])
    return not any(
        event.onset < begin + length / sfreq and event.onset + event.duration > begin for event in recording.bad
    )


def _read_windows(recording: Continuous, starts: list[int], length: int) -> Array:
    """Return windows (n, channels, length) float32."""
    X = np.empty((len(starts), len(recording.channels), length), np.float32)
    if starts:
        first = min(starts)
        values = recording.read(first, max(starts) + length)
        with np.errstate(over="ignore", invalid="ignore"):  # overflow gives infinite values, which are reported
            for row, start in enumerate(starts):
                X[row] = values[:, start - first : start - first + length]
    return X
