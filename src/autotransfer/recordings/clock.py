"""The clock of a recording with a time stamp for each sample: which samples are lost, and when events happened.

Samples are counted, lost ones too, and lie 1 / rate apart, as in a stream: a clock that is a little fast or slow moves
no window. Stamps of events are of the same clock. Between lost samples a straight line through the stamps says which
sample was taken then.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .cutting import Cutting
from .pace import BACK, UNTIMED, missing_in

Floats = NDArray[np.float64]

RESTART = 3.0  # steps inserted where a clock begins again: more than cutting takes for jitter


class Clock:
    """stamps: (n,) s; rate: Hz; n_times, hop: samples of a window, and from the start of one to that of the next, which
    begins anew where the clock does.

    times: (n,) s from the first sample
    breaks: samples before which others are missing, in order
    untimed: (n,) samples whose stamp is no time, which are as good as lost
    """

    def __init__(self, stamps: Floats, rate: float, n_times: int, hop: float) -> None:
        missing = missing_in(stamps, rate, n_times)
        n, anew = len(stamps), np.flatnonzero(missing == BACK)
        self.untimed = missing == UNTIMED
        place = np.arange(n) + np.cumsum(np.maximum(missing, 0), dtype=np.float64)
        added, total = np.zeros(n), 0.0
        for begin in anew.tolist():
            now = place[begin] + total
            added[begin] = math.ceil((now + RESTART - 1) / hop) * hop - now
            total += added[begin]
        self.times = (place + np.cumsum(added)) / rate
        edges = np.union1d(np.flatnonzero(missing), np.flatnonzero(self.untimed) + 1)
        self.breaks: tuple[int, ...] = tuple(edges[(edges > 0) & (edges < n)].tolist())
        self._recordings = [
            self._ends(stamps, rate, missing[begin:end], begin) for begin, end in pairwise([0, *anew.tolist(), n])
        ]

    @classmethod
    def of(cls, stamps: Floats, rate: float, cutting: Cutting) -> Self:
        """Return the clock for windows that are cut in this way."""
        hop = cutting.hop or cutting.window
        n_times = len(stamps) if cutting.window is None else max(1, round(cutting.window * rate))
        return cls(stamps, rate, n_times, 1.0 if hop is None else hop * rate)

    def _ends(self, stamps: Floats, rate: float, missing: NDArray[np.int64], begin: int) -> tuple[Floats, Floats]:
        """Of a recording from sample `begin` on: stamps and seconds at both ends of every stretch without losses."""
        shown, seconds = [], []
        for first, end in pairwise([0, *(np.flatnonzero(missing[1:] > 0) + 1).tolist(), len(missing)]):
            samples = begin + first + np.flatnonzero(~self.untimed[begin + first : begin + end])
            if len(samples) == 0:
                continue
            middle, mean = samples.mean(), stamps[samples].mean()
            spread = float(np.square(samples - middle).sum())
            slope = float((samples - middle) @ (stamps[samples] - mean)) / spread if spread else 1 / rate
            ends = samples[[0, -1]]
            shown += [*(mean + slope * (ends - middle))]
            seconds += [*self.times[ends]]
        return np.maximum.accumulate(np.array(shown)), np.array(seconds)

    def seconds(self, stamps: Floats) -> Floats:
        """When events with these stamps (m,) happened, in seconds from the first sample, lost samples counted: in the
        recording that a stamp lies in, or next to."""
        onsets, nearest = np.full(len(stamps), np.nan), np.full(len(stamps), np.inf)
        for shown, seconds in self._recordings:
            if len(shown) == 0:
                continue
            beyond = stamps - np.clip(stamps, shown[0], shown[-1])
            closer = np.abs(beyond) < nearest
            nearest[closer] = np.abs(beyond)[closer]
            onsets[closer] = (np.interp(stamps, shown, seconds) + beyond)[closer]
        return onsets
