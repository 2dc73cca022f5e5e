"""Cutting: how windows are cut out of continuous recordings, around events or one after the other."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import UserError, check_choice, check_positive, check_types, shown
from .blocks import Block
from .filters import CausalFilter, parse_filter
from .raw import LARGEST, Array, Label

HOW_TO_MAP = "give names of events and their classes, such as --events T1=left,T2=right (events={'T1': 'left', ...})"
LATE = 0.501  # samples by which a window may begin late: further away, the sample where it should begin is lost


class Event(NamedTuple):
    onset: float  # s from the first sample
    duration: float  # s; 0: a moment
    name: str


@dataclass(kw_only=True)
class Continuous:
    """One continuous recording as a format's own reader gives it. Samples are read when windows are cut."""

    read: Callable[[int, int], Array]  # (start, stop) -> (channels, stop - start)
    n_times: int
    channels: tuple[str, ...]
    sfreq: float | None  # Hz
    events: list[Event] = field(default_factory=list)
    bad: list[Event] = field(default_factory=list)  # stretches that no window may touch
    times: Array | None = None  # (n_times,) s, where samples can be missing between two others
    breaks: tuple[int, ...] = ()  # samples before which others are missing, in order
    notes: tuple[str, ...] = ()  # what its reader made of the file

    def __post_init__(self) -> None:
        for event in (*self.events, *self.bad):
            if not isinstance(event.name, str):
                raise TypeError(f"the name of an event is {shown(event.name)}, not text")


@dataclass(frozen=True, kw_only=True)
class Cutting:
    """Windows of `window` seconds. With `events`, {name: class}, one starts `offset` seconds after each such event;
    with `hop` too, windows follow every `hop` seconds while the event lasts, to the next one where it has no duration.
    An event whose class is empty text ends the one before it and gives no windows. Without events, windows follow every
    `hop` seconds (default: `window`) through the whole recording, from `offset` on. Without `window`, a recording is
    one window.

    `pattern` says what the names of files mean (see pattern.py), `sfreq` the rate of files that do not say it. `sep`,
    `decimal` and `time_column` say how CSV files are written (see csv_files.py). `filter`
    (see filters.py) is applied from the beginning of a recording, or from a hole in it, without looking ahead, as a
    stream is filtered.
    """

    window: float | None = None  # s
    hop: float | None = None  # s
    offset: float = 0.0  # s
    events: dict[str, str] | None = None
    pattern: str | None = None
    sfreq: float | None = None  # Hz
    sep: str | None = None  # between the columns of CSV files
    decimal: str | None = None  # the decimal mark of CSV files
    time_column: str | None = None  # of CSV files
    filter: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        check_types(self)
        check_positive(self, "window", "hop", "sfreq")
        parse_filter(self.filter)
        if self.sep is not None and len(self.sep) != 1:
            raise UserError(f"sep is {shown(self.sep)}; give one character, such as ; or a tab (tab)")
        if self.decimal is not None:
            check_choice("decimal mark", self.decimal, (".", ","))
        if not math.isfinite(self.offset):
            raise UserError(f"offset is {self.offset}; it must be a number of seconds")
        if self.window is None and (self.hop is not None or self.events is not None):
            raise UserError(
                f"{'hop' if self.events is None else 'events'} needs a window; give its length in seconds, --window 1.0"
            )
        if self.events is not None and not any(self.events.values()):
            raise UserError(f"events are {shown(self.events)}, which name no class; {HOW_TO_MAP}")

    @classmethod
    def from_options(
        cls, *, events: object = None, offset: float | None = None, filter: object = None, **values: Any
    ) -> Cutting:
        """Make a description from what a user gives: events as a dict, a list of names or text (see `parse_events`), a
        filter as a dict or text (see `parse_filter`)."""
        band = parse_filter(filter)
        if values.get("sep") in ("tab", "\\t"):
            values["sep"] = "\t"
        return cls(
            events=parse_events(events), offset=0.0 if offset is None else offset,
            filter=None if band is None else band.as_dict(), **values,
        )  # fmt: skip

    @property
    def given(self) -> list[str]:
        """Return names of the options that the user gave."""
        return [name for name, value in asdict(self).items() if value is not None and (name, value) != ("offset", 0.0)]


def parse_events(events: object) -> dict[str, str] | None:
    """Return {name: class} from a dict, from names that are classes, or from text: T1=left,T2=right or JSON."""
    if events is None or isinstance(events, Mapping):
        pairs = events
    elif isinstance(events, str):
        pairs = _parsed(events)
    elif isinstance(events, Sequence):
        pairs = {name: name for name in events}
    else:
        raise UserError(f"events are {shown(events)}; {HOW_TO_MAP}")
    if pairs is None:
        return None
    classes = {}
    for name, label in pairs.items():
        if not isinstance(name, (str, int)) or not isinstance(label, (str, int)) or not str(name).strip():
            raise UserError(f"events hold {shown(name)}: {shown(label)}; {HOW_TO_MAP}")
        classes[str(name).strip()] = str(label).strip()
    if not classes:
        raise UserError(f"events are empty; {HOW_TO_MAP}")
    return classes


def _parsed(text: str) -> dict[str, str]:
    """Read the text of the command line; JSON for names that have a comma or an equals sign."""
    if text.lstrip().startswith("{"):
        try:
            values = json.loads(text)
        except ValueError:
            raise UserError(f"events are {shown(text)}, which is no JSON; {HOW_TO_MAP}") from None
        return dict(values)
    classes: dict[str, str] = {}
    for part in text.split(","):
        name, equals, label = part.partition("=")
        if name.strip() in classes:
            raise UserError(f"events have {shown(name.strip())} twice; {HOW_TO_MAP}")
        classes[name.strip()] = label.strip() if equals else name.strip()
    return classes


def cut(recording: Continuous, cutting: Cutting, path: Path, label: str | None = None) -> Block:
    """Return the windows of one recording; y from the events, or `label` for all of it, or unknown."""
    events = dict(Counter(event.name for event in recording.events))
    about: dict[str, Any] = {"channels": recording.channels, "sfreq": recording.sfreq, "name": repr(path.name)}
    about |= {"events": events, "notes": recording.notes}
    if cutting.window is None and label is None and events:  # which of them, and how long, is for the user to say
        return Block(X=np.empty((0, len(recording.channels), 0), np.float32), **about)
    length = _length(recording, cutting, path)
    if cutting.filter is not None:
        recording = _filtered(recording, cutting.filter, path)
    placed = [(start, name) for start, name in _placed(recording, cutting, label) if _whole(recording, start, length)]
    return Block(
        X=_windows(recording, [start for start, _ in placed], length),
        y=[name for _, name in placed] if cutting.events is not None or label is not None else None,
        start=cutting.offset if cutting.events is not None else None,
        **about,
    )


def _filtered(recording: Continuous, spec: dict[str, Any], path: Path) -> Continuous:
    """Return the recording after a causal filter. As in a stream, the filter starts again after every gap and after
    values that are not finite, which stay as they are."""
    n, sfreq = recording.n_times, known_rate(recording.sfreq, path)
    causal = CausalFilter(parse_filter(spec, sfreq), sfreq, len(recording.channels))
    with np.errstate(over="ignore", invalid="ignore"):  # overflow gives infinite values
        values = np.array(recording.read(0, n).T, dtype=np.float32, order="C")
    usable = np.all(np.abs(values) <= LARGEST, axis=1)  # False for NaN, too
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
    sfreq = known_rate(recording.sfreq, path)
    length = round(cutting.window * sfreq)
    if length < 1:
        raise UserError(f"a window of {cutting.window:g} s has no sample at {sfreq:g} Hz; --window is in seconds")
    if cutting.hop is not None and cutting.hop * sfreq < 0.5:
        raise UserError(f"a hop of {cutting.hop:g} s is no sample at {sfreq:g} Hz; --hop is in seconds")
    return length


def known_rate(sfreq: float | None, path: Path) -> float:
    """Return the sampling rate in Hz, where it is needed."""
    if sfreq is None:
        raise UserError(f"{str(path)!r} does not say how fast it was sampled; give the rate in Hz, --sfreq 200")
    return sfreq


def _placed(recording: Continuous, cutting: Cutting, label: str | None) -> Iterator[tuple[int, Label]]:
    """Yield the first sample and class of every window, including windows that are not complete."""
    sfreq = recording.sfreq or 1.0
    end = recording.n_times / sfreq if recording.times is None else float(recording.times[-1] + 1 / sfreq)
    if cutting.window is None:
        yield 0, label
    elif cutting.events is None:
        for begin in _every(cutting.offset, end, cutting.window, cutting.hop or cutting.window):
            yield _sample(recording, begin), label
    else:
        wanted = sorted(event for event in recording.events if event.name in cutting.events)
        for event, after in zip(wanted, [*(other.onset for other in wanted[1:]), end], strict=False):
            name, begin = cutting.events[event.name], event.onset + cutting.offset
            if not name:
                continue
            if cutting.hop is None:
                yield _sample(recording, begin), name
                continue
            until = event.onset + event.duration if event.duration > 0 else after
            for start in _every(begin, until, cutting.window, cutting.hop):
                yield _sample(recording, start), name


def _every(begin: float, end: float, window: float, hop: float) -> Iterator[float]:
    """Yield the seconds at which windows start that end by `end`, a thousandth of a window more or less."""
    count = math.floor((end - begin - 0.999 * window) / hop) + 1
    for n in range(count):
        yield begin + n * hop


def _sample(recording: Continuous, seconds: float) -> int:
    """Return the sample at that time; -1: there is none."""
    sfreq = recording.sfreq or 1.0
    if recording.times is None:
        return max(round(seconds * sfreq), -1)
    sample = int(np.searchsorted(recording.times, seconds - 0.5 / sfreq))
    there = sample < recording.n_times and (recording.times[sample] - seconds) * sfreq <= LATE
    return sample if there else -1


def _whole(recording: Continuous, start: int, length: int) -> bool:
    """Tell whether a window lies within the recording, has no hole, and touches no bad stretch."""
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


def _windows(recording: Continuous, starts: list[int], length: int) -> Array:
    """Return windows (n, channels, length) float32."""
    X = np.empty((len(starts), len(recording.channels), length), np.float32)
    if starts:
        first = min(starts)
        values = recording.read(first, max(starts) + length)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is infinite, which Recordings report
            for row, start in enumerate(starts):
                X[row] = values[:, start - first : start - first + length]
    return X
