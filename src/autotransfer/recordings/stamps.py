"""Columns of a table that say when a sample was taken, not what was measured: times, dates and counters.

A name alone is not enough (`t` can be a temperature, `index` a finger), and neither are the values alone: a column is
taken for one where both agree. Doubtful columns are reported with a remedy.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, shown
from .raw import Array

UNITS = {
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
    "ms": 1e-3, "msec": 1e-3, "millis": 1e-3, "millisecond": 1e-3, "milliseconds": 1e-3,
    "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "usec": 1e-6, "micros": 1e-6, "microsecond": 1e-6, "microseconds": 1e-6,
    "ns": 1e-9, "nanos": 1e-9, "nanoseconds": 1e-9,
    "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hr": 3600.0, "hrs": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86400.0, "days": 86400.0,
}  # fmt: skip
CLOCKS = {"time", "times", "timestamp", "timestamps", "stamp", "datetime", "date", "clock", "elapsed"}
SHORT = {"t", "zeit", "temps", "tiempo"}  # clocks only where the values rise evenly, too
COUNTERS = {
    "", "index", "idx", "sample", "samples", "frame", "frames", "counter", "count", "packet", "seq", "sequence", "row",
    "n", "nr", "no", "num", "number", "id", "unnamed",
}  # fmt: skip
TICKS = (6e17, 7e17, 1e-7)  # .NET's stamps, 100 ns since the year 1, from 1902 to 2219; as ns since 1970 they are 1990
SINCE_1970 = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3), (1e9, 1.0))  # values from which stamps are of this unit
JITTER = 0.5  # of the median step: nine in ten steps differ from it by less
AGREE = 0.05  # relative difference of the rate that stamps have and the one that is given
RESTART = 3.0  # steps inserted where a clock begins anew: more than cutting takes for jitter
STEADY = 0.01  # of a step: a column without a telling name whose steps differ less is no signal
FEWEST = 16  # samples below which values are not judged
CLOCK = r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?\s*(Z|UTC|[+-]\d{2}:?\d{2}|[AaPp][Mm])?"
DATE = re.compile(rf"\d{{1,4}}([-/.])\d{{1,2}}\1\d{{1,4}}([T ]+{CLOCK})?|{CLOCK}")
SLOWEST, FASTEST = 0.01, 1e5  # Hz: rates of biosignals; others come of a unit that the name does not say
SLOW = 10.0  # Hz: at most so fast, times in seconds may as well be milliseconds
DAYS = (2e4, 8e5)  # days since 1899 or since the year 0, as Excel and MATLAB count them; as seconds they are hours,
DAYS_FASTEST = 5e3  # Hz: and with steps of days the rate is above
ROUND = 5e-4  # relative difference to a round rate that is the clock's


class Stamps(NamedTuple):
    """When samples were taken."""

    sfreq: float | None  # Hz
    times: NDArray[np.float64] | None  # (n,) s from the first sample, evened out between breaks
    breaks: tuple[int, ...]  # samples before which others are missing


def unit_of(name: str) -> tuple[frozenset[str], float | None]:
    """The words of a column's name, and the unit in seconds that it states: `Timestamp_ms`, `time [s]`, `timeMs`."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.strip())
    words = re.sub(r"[\s_\-./:()\[\]]+", " ", apart.lower()).split()
    words = [word for word in words if not word.isdigit()] if len(words) > 1 else words
    known = [word for word in words if word in UNITS]
    return frozenset(words) - set(known), UNITS[known[-1]] if known else None


def is_clock(name: str) -> bool:
    """Whether a name alone says that a column holds times."""
    words, _ = unit_of(name)
    return bool(words & CLOCKS)


def may_be_clock(name: str) -> bool:
    """Whether a name can mean times: the values must say so too."""
    words, unit = unit_of(name)
    return bool(words & CLOCKS) or (len(words) == 1 and words <= SHORT) or (not words and unit is not None)


def may_count(name: str) -> bool:
    """Whether a name can mean a counter of samples: the values must say so too."""
    words, _ = unit_of(name)
    return words <= COUNTERS


def rises(values: Array) -> bool:
    """Whether values (n,) rise in almost even steps, but for gaps and new starts, as times and counters do."""
    return len(values) >= 2 and _middle(_filled(values)) is not None


def is_ramp(values: Array) -> bool:
    """Whether values (n,) rise in steps so even that no signal is like it."""
    steps = np.diff(np.asarray(values, np.float64))
    if len(steps) < FEWEST or not np.isfinite(steps).all():
        return False
    middle = float(np.median(steps))
    return middle > 0 and bool(np.mean(np.abs(steps - middle) <= STEADY * middle) >= 0.99)


def from_clock(values: Array, name: str, sfreq: float | None, where: str) -> Stamps | None:
    """Of a column of times in the unit of its name. With `sfreq`, None where the stamps do not fit that rate."""
    filled = _filled(values)
    middle = _middle(filled)
    if middle is None:
        if sfreq is not None:
            return None
        raise UserError(
            f"the times of {where} in {shown(name)} are not even; resample it, or give the rate, --sfreq HZ"
        )
    steps = np.diff(filled)
    longest = (1.5 if np.quantile(np.abs(steps - middle), 0.9) < 0.2 * middle else 2.5) * middle
    regular = (steps >= 0) & (steps <= longest)
    period = float(steps[regular].mean())
    if sfreq is None:
        unit = _unit(name, filled, period, where)
        rate = _round_rate(1 / (period * unit))
    else:
        fitting = [
            unit for unit in (*dict.fromkeys(UNITS.values()), TICKS[2]) if abs(period * unit * sfreq - 1) < AGREE
        ]
        if not fitting:
            return None
        unit, rate = fitting[0], sfreq
    gaps = np.zeros(len(filled))
    breaks = np.flatnonzero(~regular) + 1
    gaps[breaks] = np.where(steps[breaks - 1] > 0, steps[breaks - 1] * unit * rate, RESTART) - 1  # samples
    times = (np.arange(len(filled)) + np.cumsum(gaps)) / rate
    return Stamps(rate, times, tuple(breaks.tolist()))


def from_counter(values: Array, sfreq: float | None) -> Stamps:
    """Of a column that counts samples, perhaps up to a largest number and then from the smallest again."""
    filled = _filled(values)
    steps = np.diff(filled)
    middle = float(np.median(steps))
    around = float(filled.max() - filled.min()) + middle
    irregular = np.abs(np.where(steps < 0, steps + around, steps) - middle) > middle / 2
    return Stamps(sfreq, None, tuple((np.flatnonzero(irregular) + 1).tolist()))


def _middle(values: NDArray[np.float64]) -> float | None:
    """The usual step of values (n,); None where steps are not even."""
    steps = np.diff(values)
    middle = float(np.median(steps)) if len(steps) else 0.0
    if not middle > 0 or np.mean(np.abs(steps - middle) > JITTER * middle) > 0.1:
        return None
    return middle


def _filled(values: Array) -> NDArray[np.float64]:
    """Missing stamps are interpolated: samples that were lost with them show as steps that are too long."""
    given = np.asarray(values, np.float64)
    known = np.isfinite(given)
    if known.all() or not known.any():
        return np.nan_to_num(given, nan=0.0, posinf=0.0, neginf=0.0) if not known.any() else given
    places = np.arange(len(given))
    return np.interp(places, places[known], given[known])


def _unit(name: str, values: NDArray[np.float64], period: float, where: str) -> float:
    """Seconds of one unit: as the name says, as the size of stamps since 1970 says, or seconds."""
    _, unit = unit_of(name)
    if unit is not None:
        return unit
    size = float(np.abs(values).max())
    if TICKS[0] <= size < TICKS[1]:
        return TICKS[2]
    for least, since in SINCE_1970:
        if size >= least and size < 1e4 * least:
            if period * since > 100:  # s: no such recording; it counts something else
                break
            return since
    if period >= 1:
        raise UserError(
            f"the times of {where} in {shown(name)} are {period:g} apart: {1 / period:.4g} Hz in seconds, "
            f"{1e3 / period:.4g} Hz in milliseconds; give the rate, --sfreq HZ, or the unit in the name, {name}_ms"
        )
    fastest = DAYS_FASTEST if DAYS[0] <= size < DAYS[1] else FASTEST
    if not SLOWEST <= 1 / period <= fastest:
        raise UserError(
            f"the times of {where} in {shown(name)} are {period:.3g} apart: {1 / period:.4g} Hz in seconds; give the "
            f"rate, --sfreq HZ, or the unit in the name, {name}_min, {name}_h or {name}_days"
        )
    return 1.0


def slow_concern(name: str, values: Array, stamps: Stamps) -> str | None:
    """A warning for times in seconds that may be milliseconds: nothing says it, and samples would be seldom."""
    small = unit_of(name)[1] is None and float(np.nanmax(np.abs(values))) < SINCE_1970[-1][0]
    if stamps.sfreq is None or not small or stamps.sfreq > SLOW:
        return None
    return (
        f"column {shown(name)} is taken for seconds: {stamps.sfreq:g} Hz; if it is milliseconds, give --sfreq "
        f"{1000 * stamps.sfreq:g}"
    )


def _round_rate(rate: float) -> float:
    """The round number that a clock's rate stands for, so that files of one device have one rate."""
    for grid in (1.0, 0.1, 0.25):
        whole = round(rate / grid) * grid
        if whole > 0 and abs(whole - rate) <= ROUND * rate:
            return float(f"{whole:.6g}")
    return float(f"{rate:.6g}")


def seconds_of_dates(texts: Any) -> NDArray[np.float64] | None:
    """Seconds from dates, times of day or ISO stamps (n,) of text; None where most are none."""
    import pandas as pd

    series = pd.Series(texts, dtype=object)
    for options in ({"format": "ISO8601"}, {"format": "mixed", "dayfirst": True}):
        try:
            dates = pd.to_datetime(series, utc=True, errors="coerce", **options)
        except (ValueError, TypeError, OverflowError):
            continue
        if dates.notna().mean() > 0.9:
            values = dates.to_numpy(dtype="datetime64[ns]")
            seconds = (values - values[~np.isnat(values)][0]) / np.timedelta64(1, "ns") * 1e-9
            return np.where(np.isnat(values), np.nan, seconds).astype(np.float64)
    return None


def is_date(text: str) -> bool:
    """Whether a cell looks like a date or a time of day: 2024-05-01T10:00:00.005Z, 1.5.2024 10:00, 10:00:00.5."""
    return DATE.fullmatch(text.strip()) is not None
