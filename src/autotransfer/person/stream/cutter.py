"""Cutting of a stream into windows.

Windows begin at every hop-th sample of a recording, including lost samples. A window with a sample that was lost, is
not a number or has no time is missed and reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...recordings.filters import CausalFilter
from ...recordings.timestamps import BACK, UNTIMED, GapDetector
from ...recordings.windows import LARGEST


class Chunk(NamedTuple):
    """A part of a stream, with samples in the order in which they were recorded."""

    times: NDArray[np.float64]  # (n,) seconds on the clock of the source
    values: NDArray[np.float32]  # (n, channels)
    starts_recording: bool = False  # whether a recording starts here, which no window and no filter crosses
    continues_session: bool = False  # whether such a recording belongs to the session of the previous one


class Window(NamedTuple):
    """A window that was cut from a stream."""

    time: float  # time of the last sample
    number: int  # index from 0, which also counts missed windows
    values: NDArray[np.float32]  # (channels, times)
    is_first: bool  # whether it is the first window of a recording session or after a restart


class Gap(NamedTuple):
    """A gap in a stream: samples that were lost, are not numbers or have no time."""

    time: float  # time of the first sample after the gap
    samples: int  # number of unusable samples
    windows: int  # number of missed windows


class Restart(NamedTuple):
    """The start of a new recording, because time stamps went back."""

    time: float


Event = Window | Gap | Restart


class Cutter:
    """Cutter of samples into windows. n_times: samples per window; hop: samples from one window to the next."""

    def __init__(self, n_times: int, hop: int, sfreq: float, causal: CausalFilter) -> None:
        self.n_times, self.hop, self.causal, self.gaps = n_times, hop, causal, GapDetector(sfreq)
        self.number = 0  # number of the next window
        self.first_chunks: list[Chunk] = []  # first samples, from which jitter is learned
        self.has_learned_jitter = False
        self._begin()

    def _begin(self) -> None:
        """Start a new recording."""
        self.values = np.empty((self.causal.n_channels, 0), np.float32)
        self.times = np.empty(0)
        self.end = 0  # number of samples, including lost samples
        self.start = 0  # start of the next window
        self.lost = 0  # number of unusable samples after the last usable sample
        self.is_first = True
        self.causal.reset()

    def feed(self, chunk: Chunk) -> Iterator[Event]:
        if chunk.starts_recording:
            yield from self.finish()
            self.gaps.expected = None
            was_first = self.is_first  # no window was cut since the recording session began
            self._begin()
            self.is_first = was_first or not chunk.continues_session
        if not self.has_learned_jitter:
            self.first_chunks.append(chunk)
            if sum(len(waiting.times) for waiting in self.first_chunks) >= self.n_times:
                yield from self._learn_jitter()
        else:
            yield from self._process(chunk)

    def _learn_jitter(self) -> Iterator[Event]:
        """Learn the jitter of time stamps from the first samples, then process them."""
        chunks, self.first_chunks, self.has_learned_jitter = self.first_chunks, [], True
        if chunks:
            self.gaps.learn(np.concatenate([chunk.times for chunk in chunks]))
        for chunk in chunks:
            yield from self._process(chunk)

    def finish(self) -> Iterator[Event]:
        """End the recording."""
        yield from self._learn_jitter()
        if self.lost:
            yield self._close_gap(self.gaps.last)

    def _process(self, chunk: Chunk) -> Iterator[Event]:
        before = self.gaps.last
        missing = self.gaps.count_missing(chunk.times)
        # NaN is not usable.
        usable = (missing != UNTIMED) & np.all(np.abs(chunk.values) <= LARGEST, axis=1)
        breaks = np.flatnonzero((missing != 0) | ~usable)
        start = 0
        for index in breaks.tolist():
            if index > start:
                yield from self._append(chunk, slice(start, index))
            if missing[index] == BACK:
                if self.lost:
                    yield self._close_gap(before)
                self._begin()
                yield Restart(float(chunk.times[index]))
            elif missing[index] > 0:
                self.lost += int(missing[index])
            start = index
            if not usable[index]:
                self.lost += 1
                start += 1
        if start < len(missing):
            yield from self._append(chunk, slice(start, None))

    def _append(self, chunk: Chunk, rows: slice) -> Iterator[Event]:
        """Append samples without losses; a gap before them is reported first."""
        if self.lost:
            yield self._close_gap(float(chunk.times[rows][0]))
        self.values = np.concatenate([self.values, self.causal.feed(chunk.values[rows]).T], 1)
        self.times = np.concatenate([self.times, chunk.times[rows]])
        self.end += len(chunk.times[rows])
        while self.start + self.n_times <= self.end:
            first = self.start - (self.end - len(self.times))
            columns = slice(first, first + self.n_times)
            yield Window(float(self.times[columns][-1]), self.number, self.values[:, columns].copy(), self.is_first)
            self.is_first = False
            self.number += 1
            self.start += self.hop
        used = max(0, self.start - (self.end - len(self.times)))
        self.values, self.times = self.values[:, used:], self.times[used:]

    def _close_gap(self, time: float) -> Gap:
        samples, self.lost = self.lost, 0
        self.end += samples
        missed = max(0, -(-(self.end - self.start) // self.hop))
        self.start += missed * self.hop
        self.number += missed
        self.values, self.times = self.values[:, :0], self.times[:0]
        self.causal.reset()
        return Gap(time, samples, missed)
