"""Which samples are missing, according to time stamps.

Each sample should come 1 / rate after the one before. Stamps jitter: where one is late they jump ahead, and back
afterwards. Where samples are lost they jump ahead and never back. So the largest jump back is how much stamps jitter,
and a stamp that is later than that follows a loss. A loss that is shorter than the jitter is not seen.

A stamp may be no time at all: NaN, infinite, or beyond what a clock shows. Nobody knows when such a sample was taken,
nor whether others are missing around it, so it counts as lost itself. The next stamp shows what else is missing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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


def timed(times: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which stamps (n,) are times."""
    usable: NDArray[np.bool_] = np.abs(times) <= LATEST  # False for NaN
    return usable


class Pace:
    """Follows time stamps of a rate in Hz."""

    def __init__(self, sfreq: float) -> None:
        self.sfreq, self.step = sfreq, 1 / sfreq
        self.jitter = 0.0  # s
        self.expected: float | None = None
        self.last = 0.0

    def learn(self, times: NDArray[np.float64]) -> None:
        """Jitter, from the first stamps (n,)."""
        back = self.step - np.diff(times[timed(times)])
        back = back[(back > 0) & (back < LARGEST)]
        self.jitter = float(back.max()) if len(back) else 0.0

    def missing(self, times: NDArray[np.float64]) -> NDArray[np.int64]:
        """How many samples are missing before each of the next ones (n,); BACK where a recording begins anew, UNTIMED
        where a stamp is no time."""
        missing = np.zeros(len(times), np.int64)
        if self.expected is not None:
            late = times - (self.expected + self.step * np.arange(len(times)))
            if np.abs(late).max() < 0.25 * self.step:  # as it should be, and mostly is
                # As sample by sample: each stamp draws the expected time to itself, and later ones have drawn since.
                drawn = GAIN * (1 - GAIN) ** np.arange(len(times))[::-1]
                self.expected += self.step * len(times) + float(drawn @ late)
                self.last = float(times[-1])
                return missing
        for place, (stamp, usable) in enumerate(zip(times.tolist(), timed(times).tolist(), strict=True)):
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


def missing_in(times: NDArray[np.float64], sfreq: float, n_times: int) -> NDArray[np.int64]:
    """`Pace.missing` of all stamps (n,) of a file, of which windows of n_times are decoded, as a stream finds it."""
    pace = Pace(sfreq)
    pace.learn(times[: -(-n_times // PIECE) * PIECE])
    pieces = [pace.missing(times[start : start + PIECE]) for start in range(0, len(times), PIECE)]
    return np.concatenate(pieces)
