"""CSV files of samples: a row for each sample, a column for each channel.

A first row that is not numbers names the columns. `time` (seconds) gives the rate, unless it is given; a column named
as in EVENTS gives events: each stretch of one value is an event of that name.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import UserError, shown
from .cutting import Continuous, Cutting, Event
from .npy import check_memory

TIMES = ("time", "times", "t", "timestamp", "timestamps", "seconds")  # in any case of letters
EVENTS = ("class", "label", "event", "events", "marker", "trial_type")
HEAD = 2**20  # bytes in which the first two rows must lie
IRREGULAR = 0.01  # relative difference of mean and median step that is no longer one rate


def open_csv(path: Path, cutting: Cutting, options: dict[str, str]) -> Continuous:
    import pandas as pd

    check_memory(4 * path.stat().st_size, "the samples", path, "split it into shorter files")
    form = _form(path)
    lower = [name.lower() for name in form.columns]
    time, event = (next((n for n, name in enumerate(lower) if name in known), None) for known in (TIMES, EVENTS))
    channels = [n for n in range(len(lower)) if n not in (time, event)]
    if not channels:
        raise UserError(f"{str(path)!r} has no columns of samples besides {', '.join(map(shown, form.columns))}")
    kinds: dict[int, Any] = dict.fromkeys(channels, np.float32)
    kinds |= {} if time is None else {time: np.float64}
    kinds |= {} if event is None else {event: str}
    try:
        table = pd.read_csv(
            path, sep=form.separator, decimal=form.decimal, header=None, skiprows=int(form.named), dtype=kinds,
            names=list(range(len(lower))), index_col=False, compression=None, on_bad_lines="error",
        )  # fmt: skip
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{str(path)!r} is no table of numbers ({' '.join(str(error).split())[:120]}); columns are channels, "
            f"{TIMES[0]!r} and one of {', '.join(EVENTS)}"
        ) from None
    values = table[channels].to_numpy(dtype=np.float32)  # (samples, channels)
    if not len(values):
        raise UserError(f"{str(path)!r} holds no samples; leave it out")
    sfreq = cutting.sfreq if cutting.sfreq is not None or time is None else _rate(table[time].to_numpy(), path)
    found = [] if event is None else list(_stretches(table[event].to_numpy(dtype=object), sfreq, path))
    return Continuous(
        read=lambda start, stop: values[start:stop].T,
        n_times=len(values),
        channels=tuple(form.columns[n] for n in channels),
        sfreq=sfreq,
        events=found,
    )


class _Form(NamedTuple):
    separator: str
    decimal: str
    named: bool  # whether the first row names the columns
    columns: list[str]


def _form(path: Path) -> _Form:
    """How a file is written, from its first two rows."""
    with path.open("rb") as stream:
        text = stream.read(HEAD).decode("utf-8-sig", errors="replace")
    first, second = ([*io.StringIO(text), "", ""])[:2]
    separator = max(",;\t", key=first.count)
    decimal = "," if separator != "," and "," in second else "."
    cells = [cell.strip().strip('"').strip() for cell in first.rstrip("\r\n").split(separator)]
    named = not all(_is_number(cell, decimal) for cell in cells)
    if not named:
        return _Form(separator, decimal, False, [f"ch{n}" for n in range(len(cells))])
    twice = next((cell for n, cell in enumerate(cells) if cell in cells[:n]), None)
    if twice is not None:
        raise UserError(f"{str(path)!r} has two columns named {shown(twice)}; give each its own name")
    return _Form(separator, decimal, True, cells)


def _is_number(cell: str, decimal: str) -> bool:
    try:
        float(cell.replace(decimal, ".") or "nan")
    except ValueError:
        return False
    return True


def _rate(times: Any, path: Path) -> float:
    """Hz from a column of seconds."""
    steps = np.diff(times)
    middle, mean = (float(np.median(steps)), float(np.mean(steps))) if len(steps) else (0.0, 0.0)
    uneven = len(steps) and np.quantile(np.abs(steps - middle), 0.9) > middle / 2  # jitter is less
    if not middle > 0 or not (steps > 0).all() or uneven or abs(mean - middle) > IRREGULAR * middle:
        raise UserError(
            f"the times of {str(path)!r} are not even (steps of {middle:g} s, {mean:g} s on average); resample it, or "
            f"give the rate, --sfreq HZ"
        )
    return float(f"{1 / mean:.6g}")


def _stretches(values: Any, sfreq: float | None, path: Path) -> Iterator[Event]:
    """Events: a stretch of rows of one value, missing ones left out."""
    if sfreq is None:
        raise UserError(f"{str(path)!r} does not say how fast it was sampled; give the rate in Hz, --sfreq 200")
    names = ["" if value is None or value != value else str(value).strip() for value in values]
    begin = 0
    for row in range(1, len(names) + 1):
        if row == len(names) or names[row] != names[begin]:
            if names[begin]:
                yield Event(begin / sfreq, (row - begin) / sfreq, names[begin])
            begin = row
