"""Time stamps: detection of missing samples, and times of events.

Each sample should come 1 / rate after the previous sample. Jitter moves a stamp ahead, but not the stamps after it. A
loss of samples moves all later stamps ahead. The largest jump back therefore measures the jitter, and if a stamp is
later than the jitter explains, samples were lost before it. Losses shorter than the jitter are not detected. A stamp
that is NaN, infinite or beyond LATEST counts as a lost sample.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray

from ..errors import UserError

Floats = NDArray[np.float64]

DRIFT_GAIN = 0.02  # share of a stamp's deviation by which the expected time is corrected, because clocks drift
MIN_LATE_SAMPLES = 0.75  # a stamp that is later by fewer samples never counts as a loss
JITTER_MARGIN = 1.25  # a stamp that is later by this multiple of the jitter counts as a loss
MAX_JITTER = 0.25  # seconds: a stamp later than this is a loss, and one this far back begins another recording
JITTER_MEMORY = 60.0  # seconds after which jitter is forgotten
LATEST = 1e12  # seconds, beyond which float64 does not resolve single samples
MIN_STEPS = 200  # steps between stamps that are needed to measure a rate
ROUND = 5e-4  # relative difference below which a measured rate is rounded
AGREE = 5e-3  # relative difference above which a measured rate replaces the stated one
BURST = 3  # samples that may share a stamp
MOST_IN_BURSTS = 0.1  # share of samples that may be in longer bursts
PIECE = 256  # samples of a file that are processed together
BACK = -1  # in place of a number of missing samples: the time goes back
UNTIMED = -2  # in place of a number of missing samples: the stamp is no time


def measure_even_rate(stamps: Floats) -> float | None:
    """Measure the rate by finite stamps (n,), even if some samples are missing; None if most steps are uneven."""
    steps = np.diff(stamps)
    middle = float(np.median(steps)) if len(steps) else 0.0
    is_even = np.abs(steps - middle) < 0.5 * middle
    return round_rate(1 / float(steps[is_even].mean())) if middle > 0 and is_even.mean() > 0.9 else None


def measure_rate(stamps: Floats) -> float | None:
    """Measure the rate in Hz by finite stamps (n,) of a stream; None if there are too few stamps."""
    if len(stamps) <= MIN_STEPS:
        return None
    if (rate := measure_even_rate(stamps)) is not None:
        return rate
    # Samples that arrive in chunks share a stamp, or are stamped afterwards: fit lines to parts of the recording.
    bursts = _find_bursts(stamps)
    parts = [part for part in np.array_split(bursts, np.clip(len(bursts) // 2, 1, 20)) if len(part) > 1]
    slopes = [np.polyfit(part - part[0], stamps[part] - stamps[part[0]], 1)[0] for part in parts]
    period = float(np.median(slopes)) if slopes else 0.0
    return round_rate(1 / period) if period > 0 else None


def _find_bursts(stamps: Floats) -> NDArray[np.int64]:
    """Return the first sample of each run of equal stamps."""
    return np.flatnonzero(np.diff(stamps, prepend=np.nan) != 0)


def check_bursts(stamps: Floats, what: str) -> None:
    """Raise if many samples share their stamp (n,) with several others, so that gaps cannot be told from bursts."""
    sizes = np.diff(_find_bursts(stamps), append=len(stamps))
    if (share := sizes[sizes > BURST].sum() / max(1, len(stamps))) > MOST_IN_BURSTS:
        raise UserError(
            f"{what} gives {share:.0%} of its samples the same time stamp as at least {BURST} others; give the samples "
            "as .csv without times, with --sfreq HZ"
        )


def round_rate(rate: float) -> float:
    """Return the nearest round rate in Hz if it is close, so that files of one device have the same rate."""
    near = (whole for whole in (round(rate), round(rate, 1), round(4 * rate) / 4) if whole > 0)
    return float(f"{next((whole for whole in near if abs(whole - rate) <= ROUND * rate), rate):.6g}")


def has_time(times: Floats) -> NDArray[np.bool_]:
    """Return whether stamps (n,) are valid times."""
    usable: NDArray[np.bool_] = np.abs(times) <= LATEST  # False for NaN
    return usable


class GapDetector:
    """Detector of missing samples in time stamps of a rate in Hz."""

    def __init__(self, sfreq: float) -> None:
        self.sfreq, self.step = sfreq, 1 / sfreq
        self.jitter = 0.0  # s
        self.expected: float | None = None
        self.last = 0.0

    def learn(self, times: Floats) -> None:
        """Estimate the jitter from the first stamps (n,)."""
        back = self.step - np.diff(times[has_time(times)])
        back = back[(back > 0) & (back < MAX_JITTER)]
        self.jitter = float(back.max()) if len(back) else 0.0

    def count_missing(self, times: Floats) -> NDArray[np.int64]:
        """Count missing samples before each stamp (n,); BACK if another recording begins, UNTIMED if it is no time."""
        missing = np.zeros(len(times), np.int64)
        if self.expected is not None:
            late = times - (self.expected + self.step * np.arange(len(times)))
            if np.abs(late).max() < 0.25 * self.step:  # the usual case, computed for all stamps at once
                weights = DRIFT_GAIN * (1 - DRIFT_GAIN) ** np.arange(len(times))[::-1]
                self.expected += self.step * len(times) + float(weights @ late)
                self.last = float(times[-1])
                return missing
        for index, (stamp, usable) in enumerate(zip(times.tolist(), has_time(times).tolist(), strict=True)):
            if usable:
                missing[index] = self._count_before(stamp)
            else:
                missing[index] = UNTIMED
                self.expected = None if self.expected is None else self.expected + self.step
        return missing

    def _count_before(self, stamp: float) -> int:
        if self.expected is None:
            self.expected, self.last = stamp, stamp - self.step
        back = self.last + self.step - stamp
        if 0 < back < MAX_JITTER:
            self.jitter = max(self.jitter, back)
        self.jitter *= 1 - self.step / JITTER_MEMORY
        self.last = stamp
        late = stamp - self.expected
        if late < -MAX_JITTER:
            self.expected = stamp + self.step
            return BACK
        if late > max(MIN_LATE_SAMPLES * self.step, min(JITTER_MARGIN * self.jitter, MAX_JITTER)):
            self.expected = stamp + self.step
            return max(1, round(late * self.sfreq))
        self.expected += self.step + DRIFT_GAIN * late
        return 0


class Clock:
    """Times of all samples of a file, which lie 1 / rate apart with missing samples counted, as in a stream."""

    def __init__(self, stamps: Floats, rate: float, window: float | None) -> None:
        """Find breaks in stamps (n,) in seconds. `window`: seconds of a window, None if the file is one window."""
        n, detector = len(stamps), GapDetector(rate)
        n_times = n if window is None else max(1, round(window * rate))
        detector.learn(stamps[: -(-n_times // PIECE) * PIECE])  # as many as a stream reads before its first window
        missing = np.concatenate(
            [detector.count_missing(stamps[start : start + PIECE]) for start in range(0, n, PIECE)]
        )
        if len(back := np.flatnonzero(missing == BACK)):
            raise UserError(
                f"the times go back after sample {back[0]}, where another recording begins; give each its own file"
            )
        self.untimed = missing == UNTIMED  # (n,)
        self.times = (np.arange(n) + np.cumsum(np.maximum(missing, 0), dtype=np.float64)) / rate  # (n,) s from 0
        edges = np.union1d(np.flatnonzero(missing), np.flatnonzero(self.untimed) + 1)
        # Samples before which others are missing, in order.
        self.breaks: tuple[int, ...] = tuple(edges[(edges > 0) & (edges < n)].tolist())
        # A straight line through the stamps of every stretch without losses; its ends are kept.
        stamps_at_ends, seconds_at_ends = [], []
        for begin, end in pairwise([0, *(np.flatnonzero(missing[1:] > 0) + 1).tolist(), n]):
            samples = begin + np.flatnonzero(~self.untimed[begin:end])
            if len(samples):
                ends, degree = samples[[0, -1]], min(1, len(samples) - 1)
                stamps_at_ends += [*Polynomial.fit(samples, stamps[samples], degree)(ends)]
                seconds_at_ends += [*self.times[ends]]
        self._stamps, self._seconds = np.maximum.accumulate(np.array(stamps_at_ends)), np.array(seconds_at_ends)

    def seconds(self, stamps: Floats) -> Floats:
        """Return the times of events with these stamps (m,), in seconds from the first sample."""
        beyond = stamps - np.clip(stamps, self._stamps[0], self._stamps[-1])
        onsets: Floats = np.interp(stamps, self._stamps, self._seconds) + beyond
        return onsets
