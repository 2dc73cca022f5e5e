"""Time stamps: which samples are missing, and when events happened.

Each sample should come 1 / rate after the one before. Stamps jitter: where one is late they jump ahead, and back
afterwards. Where samples are lost they jump ahead and never back. So the largest jump back is how much stamps jitter,
and a stamp that is later than that follows a loss. A loss that is shorter than the jitter is not seen.

A stamp may be no time at all: NaN, infinite, or beyond what a clock shows. Nobody knows when such a sample was taken,
nor whether others are missing around it, so it counts as lost itself. The next stamp shows what else is missing.

A `Clock` serves a whole file: it says which samples are lost, and when events happened. Samples are counted, lost ones
too, and lie 1 / rate apart, as in a stream: a clock that is a little fast or slow moves no window. Stamps of events are
of the same clock. Between lost samples a straight line through the stamps says which sample was taken then.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError

Floats = NDArray[np.float64]

GAIN = 0.02  # share of a stamp's deviation by which the expected time follows: clocks drift
LEAST = 0.75  # samples: stamps that are later by less are never a loss
MARGIN = 1.25  # times the jitter
LARGEST = 0.25  # seconds: a stamp later than that is a loss, and one that far back begins another recording
MEMORY = 60.0  # seconds over which jitter is forgotten
LATEST = 1e12  # seconds: float64 no longer tells samples apart that far from 0
MOST = 2**53  # samples that are counted as missing at once
PIECE = 256  # samples of a file that are looked at together
BACK = -1
UNTIMED = -2


def has_time(times: Floats) -> NDArray[np.bool_]:
    """Return which stamps (n,) are times."""
    usable: NDArray[np.bool_] = np.abs(times) <= LATEST  # False for NaN
    return usable


class GapDetector:
    """Follows time stamps of a rate in Hz."""

    def __init__(self, sfreq: float) -> None:
        self.sfreq, self.step = sfreq, 1 / sfreq
        self.jitter = 0.0  # s
        self.expected: float | None = None
        self.last = 0.0

    def learn(self, times: Floats) -> None:
        """Estimate the jitter from the first stamps (n,)."""
        back = self.step - np.diff(times[has_time(times)])
        back = back[(back > 0) & (back < LARGEST)]
        self.jitter = float(back.max()) if len(back) else 0.0

    def missing(self, times: Floats) -> NDArray[np.int64]:
        """Return how many samples are missing before each of the next ones (n,); BACK where a recording begins anew,
        UNTIMED where a stamp is no time."""
        missing = np.zeros(len(times), np.int64)
        if self.expected is not None:
            late = times - (self.expected + self.step * np.arange(len(times)))
            if np.abs(late).max() < 0.25 * self.step:  # as it should be, and mostly is
                # As sample by sample: each stamp draws the expected time to itself, and later ones have drawn since.
                drawn = GAIN * (1 - GAIN) ** np.arange(len(times))[::-1]
                self.expected += self.step * len(times) + float(drawn @ late)
                self.last = float(times[-1])
                return missing
        for place, (stamp, usable) in enumerate(zip(times.tolist(), has_time(times).tolist(), strict=True)):
            missing[place] = self._missing(stamp) if usable else self._untimed()
        return missing

    def _untimed(self) -> int:
        if self.expected is not None:
            self.expected += self.step
        return UNTIMED

    def _missing(self, stamp: float) -> int:
        if self.expected is None:
            self.expected, self.last = stamp, stamp - self.step
        back = self.last + self.step - stamp
        if 0 < back < LARGEST:
            self.jitter = max(self.jitter, back)
        self.jitter *= 1 - self.step / MEMORY
        self.last = stamp
        late = stamp - self.expected
        if late < -LARGEST:
            self.expected = stamp + self.step
            return BACK
        if late > max(LEAST * self.step, min(MARGIN * self.jitter, LARGEST)):
            self.expected = stamp + self.step
            return max(1, round(min(late * self.sfreq, MOST)))
        self.expected += self.step + GAIN * late
        return 0


class Clock:
    """stamps: (n,) s; rate: Hz; window: seconds of a window, None: all samples are one.

    times: (n,) s from the first sample
    breaks: samples before which others are missing, in order
    untimed: (n,) samples whose stamp is no time, which are as good as lost
    """

    def __init__(self, stamps: Floats, rate: float, window: float | None) -> None:
        n, pace = len(stamps), GapDetector(rate)
        n_times = n if window is None else max(1, round(window * rate))
        pace.learn(stamps[: -(-n_times // PIECE) * PIECE])  # as a stream does, which windows of n_times are cut from
        missing = np.concatenate([pace.missing(stamps[start : start + PIECE]) for start in range(0, n, PIECE)])
        if len(back := np.flatnonzero(missing == BACK)):
            raise UserError(
                f"the times go back after sample {back[0]}, where another recording begins; give each its own file"
            )
        self.untimed = missing == UNTIMED
        self.times = (np.arange(n) + np.cumsum(np.maximum(missing, 0), dtype=np.float64)) / rate
        edges = np.union1d(np.flatnonzero(missing), np.flatnonzero(self.untimed) + 1)
        self.breaks: tuple[int, ...] = tuple(edges[(edges > 0) & (edges < n)].tolist())
        # Stamps and seconds at both ends of every stretch without losses
        shown, seconds = [], []
        for begin, end in pairwise([0, *(np.flatnonzero(missing[1:] > 0) + 1).tolist(), n]):
            samples = begin + np.flatnonzero(~self.untimed[begin:end])
            if len(samples) == 0:
                continue
            middle, mean = samples.mean(), stamps[samples].mean()
            spread = float(np.square(samples - middle).sum())
            slope = float((samples - middle) @ (stamps[samples] - mean)) / spread if spread else 1 / rate
            ends = samples[[0, -1]]
            shown += [*(mean + slope * (ends - middle))]
            seconds += [*self.times[ends]]
        self._shown, self._seconds = np.maximum.accumulate(np.array(shown)), np.array(seconds)

    def seconds(self, stamps: Floats) -> Floats:
        """Return when events with these stamps (m,) happened, in seconds from the first sample."""
        beyond = stamps - np.clip(stamps, self._shown[0], self._shown[-1])
        onsets: Floats = np.interp(stamps, self._shown, self._seconds) + beyond
        return onsets
