"""Decoding of a stream of samples into decisions. Problems are reported once and counted."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError
from ...recordings.concerns import compare_with_training
from ...recordings.filters import CausalFilter, Filter, combine, parse_filter
from ...recordings.timestamps import has_time
from ...words import count
from ..events import EventDetector
from ..session import N_CHECKED, Session
from .cutter import Cutter, Event, Gap, Window
from .sink import Sink
from .source import Source, match_signal

Tell = Callable[[str], None]
SILENCE_SECONDS = 2.0  # time without samples after which a pause is reported
MAX_HOP = 1e6  # s
MAX_REPORTED_GAPS = 5  # later gaps are only counted


@dataclass
class StreamSummary:
    """Counts of events in a stream."""

    windows: int = 0  # number of decoded windows
    missed: int = 0  # number of windows that were not decoded, because samples in them were lost
    activations: int = 0  # activations of classes, if events are detected
    gaps: int = 0
    lost: int = 0  # number of lost samples
    restarts: int = 0  # times that time stamps went back
    silences: int = 0  # pauses of the stream, including a final one
    samples: int = 0
    untimed: int = 0  # samples with an invalid time stamp, which count as lost
    jitter: float = 0.0  # jitter of time stamps in seconds
    delays: list[float] = field(default_factory=list)  # seconds from the end of recent windows to their decisions

    def __str__(self) -> str:
        parts = [f"{self.windows:,} windows decoded, {self.missed:,} missed"]
        lost = f"{count(self.lost, 'sample')} lost in {count(self.gaps, 'gap')}"
        counted = {
            count(self.activations, "activation"): self.activations,
            lost: self.gaps,
            f"{count(self.untimed, 'sample')} without a valid time stamp": self.untimed,
            f"time stamps went back {count(self.restarts, 'time')}": self.restarts,
            count(self.silences, "pause"): self.silences,
            f"time stamps jitter by up to {1e3 * self.jitter:.1f} ms": self.jitter,
        }
        parts += [text for text, number in counted.items() if number > 0]
        if self.delays:
            median, tail = 1e3 * np.percentile(self.delays, (50, 99))
            parts.append(f"decisions are {median:.0f} ms after the end of the window (median; 99 %: {tail:.0f} ms)")
        return "; ".join(parts)


N_DELAYS = 10_000  # largest number of stored delays


def check_hop(hop: float | None) -> None:
    """Raise a UserError unless the seconds between windows are a positive number, or None."""
    if hop is not None and not 0 < hop < MAX_HOP:
        raise UserError(f"hop is {hop:g} s; give a positive number below {MAX_HOP:g}")


class Stream:
    """Decoding of a source by an online session. Invalid options are refused before the first sample is read."""

    def __init__(
        self,
        session: Session,
        source: Source,
        *,
        hop: float | None = None,  # seconds between windows; None: half a window, or one window per window of a file
        filtered: Filter | None = None,  # filter of the samples before they are cut
        by_position: bool = False,  # match channels by order instead of name
        detector: EventDetector | None = None,  # detector of events in the probabilities
        tell: Tell = lambda line: None,  # called with messages for the user
        on_window: Callable[[NDArray[np.float32]], None] = lambda window: None,  # called with every decoded window
    ) -> None:
        card = session.model.card
        self.session, self.source, self.tell, self.on_window = session, source, tell, on_window
        requested = parse_filter(filtered, source.signal.sfreq or card.signal.sfreq)
        self.filter, combined = combine(source.signal.filter, requested)
        self.channels, self.notes = match_signal(source, session.model, combined, by_position=by_position)
        session.signal = card.signal  # signal of windows that are cut from the matched samples
        assert source.signal.sfreq is not None, "match_signal sets it"
        self.sfreq = source.signal.sfreq
        self.window = card.n_times / self.sfreq
        check_hop(hop)
        step = card.n_times // 2 if hop is None else round(hop * self.sfreq)
        if step < 1:
            raise UserError(f"hop is {hop:g} s; give at least one sample, {1 / self.sfreq:g} s")
        if source.stored_times is not None:
            if source.stored_times < card.n_times:
                seconds = source.stored_times / self.sfreq
                raise UserError(
                    f"{source.name} has windows of {seconds:g} s, but the model needs {self.window:g} s; "
                    "give longer windows"
                )
            if source.stored_times < card.n_times + step:  # one per window of the file
                step = source.stored_times
        self.hop = step / self.sfreq  # s
        causal = CausalFilter(self.filter, self.sfreq, len(card.signal.channels))
        self.cutter = Cutter(card.n_times, step, self.sfreq, causal)
        self.detector, self.number = detector, -1  # of the last decoded window
        self.summary = StreamSummary()
        self.first_windows: list[NDArray[np.float32]] = []

    def describe(self) -> list[str]:
        """Return lines that describe the decoding."""
        lines = list(self.notes)
        samples = f"filtered {self.filter}" if self.filter else "not filtered here"
        every = f"every {self.hop:g} s"
        if self.source.stored_times is not None:
            seconds = self.source.stored_times / self.sfreq
            relation = "one per" if self.hop == seconds else "within each"
            every = f"{every}, {relation} window of the file ({seconds:g} s)"
            lines.append(
                "the windows of the file follow each other without pauses: filters start again in each, "
                "votes for events continue within a session"
            )
        lines.append(f"{self.source.name}: windows of {self.window:g} s {every}, at {self.sfreq:g} Hz, {samples}")
        return lines

    def run(self, sink: Sink, seconds: float | None = None) -> StreamSummary:
        """Decode until the source ends, `seconds` have passed, or Ctrl-C.

        For a file, `seconds` is counted from the time stamp of the first sample, and windows must end before.
        """
        begun = last_sample = time.monotonic()
        first: float | None = None
        is_silent, has_ended = False, False
        self.sink = sink
        with _catch_interrupt() as interrupted:
            for chunk in self.source.chunks():
                now = time.monotonic()
                if chunk is None:
                    if now - last_sample > SILENCE_SECONDS and not is_silent:
                        is_silent = True
                        self.summary.silences += 1
                        self.tell(f"no samples for {SILENCE_SECONDS:g} s; waiting for {self.source.name}")
                else:
                    if is_silent:
                        self.tell(f"{self.source.name} is back after {now - last_sample:.1f} s")
                    is_silent, last_sample = False, now
                    usable = has_time(chunk.times)
                    first = float(chunk.times[usable][0]) if first is None and usable.any() else first
                    if seconds is not None and first is not None and not self.source.is_live:
                        after = np.flatnonzero(usable & (chunk.times >= first + seconds - 0.5 / self.sfreq))
                        has_ended = len(after) > 0
                        kept = slice(after[0] if has_ended else None)
                        chunk = chunk._replace(times=chunk.times[kept], values=chunk.values[kept])
                        usable = usable[kept]
                    self.summary.samples += len(usable)
                    self.summary.untimed += int((~usable).sum())
                    if len(usable):
                        for event in self.cutter.feed(chunk._replace(values=chunk.values[:, self.channels])):
                            self._handle(event)
                if self.source.is_live:
                    has_ended = seconds is not None and now - begun >= seconds
                if interrupted.is_set() or has_ended:
                    break
            for event in self.cutter.finish():
                self._handle(event)
        if 0 < len(self.first_windows) < N_CHECKED:  # too few for the check of the session
            card = self.session.model.card
            for line in compare_with_training(np.stack(self.first_windows), card.signal.channels, card.scale):
                self.tell(line)
        self.summary.jitter = self.cutter.gaps.jitter
        return self.summary

    def _handle(self, event: Event) -> None:
        if isinstance(event, Window):
            self._decode(event)
        elif isinstance(event, Gap):
            self.summary.gaps += 1
            self.summary.lost += event.samples
            self.summary.missed += event.windows
            if self.summary.gaps <= MAX_REPORTED_GAPS:
                also = "; later gaps are only counted" if self.summary.gaps == MAX_REPORTED_GAPS else ""
                lost, missed = count(event.samples, "sample"), count(event.windows, "window")
                self.tell(f"{lost} lost before {event.time:.3f} s, so {missed} missed{also}")
        else:
            self.summary.restarts += 1
            self.tell(f"time stamps went back to {event.time:.3f} s; a new recording starts there")

    def _decode(self, window: Window) -> None:
        probability = self.session.predict_proba(window.values)
        self.on_window(window.values)
        if len(self.first_windows) < N_CHECKED:
            self.first_windows.append(window.values)
        activation = None
        if self.detector is not None:
            if window.is_first:
                self.detector.reset()
            activation = self.detector.feed(probability, window.time, gap=window.number != self.number + 1)
            self.summary.activations += activation is not None
        self.number = window.number
        self.sink.send(window.time, window.number, probability, activation)
        self.summary.windows += 1
        clock: Any = getattr(self.source, "now", None)
        if clock is not None:
            self.summary.delays.append(clock() - window.time)
            del self.summary.delays[:-N_DELAYS]


def choose_filter(text: str, notch: Sequence[float], trained: Filter | None, source: Source | None) -> Filter | None:
    """Return the filter to apply to a stream, with notches in Hz; None: no filter is applied.

    text: the filter, or `auto` for the filter of the training recordings, which is not applied to stored samples whose
    filter is unknown. source: None for continuous recordings, which have not been filtered.
    """
    is_known = source is None or source.is_live or source.signal.filter is not None
    band = replace(trained, is_causal=bool(trained)) if is_known and trained is not None else None
    band = band if text == "auto" else parse_filter(text) or None
    if not notch:
        return band
    low, high = (None, None) if band is None else (band.highpass, band.lowpass)
    return parse_filter({"highpass": low, "lowpass": high, "notch": list(notch)})


@contextmanager
def _catch_interrupt() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C sets, so that the current window is decoded; a second Ctrl-C interrupts at once."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # other threads receive no signals
        yield interrupted
        return

    def handle(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, before)
        interrupted.set()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
