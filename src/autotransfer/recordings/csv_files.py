"""CSV files of samples: a row for each sample, a column for each channel. pandas reads the numbers.

A first row of text names the columns. Names and options say which column is the time, which one holds labels and which
ones are channels, and one note says what was taken for what. A file that can be read in two ways is refused, with the
option that settles it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, shown
from ..words import count
from .cutting import Continuous, Cutting, Event, known_rate
from .pace import Clock

LABELS = (
    "class", "label", "labels", "event", "events", "marker", "markers", "trial_type", "annotation", "activity",
    "gesture", "trigger", "stim", "stimulus", "condition",
)  # fmt: skip
TIME = re.compile(r"(t|times?|timestamps?|datetime|seconds)([\s_]*[\[(]?(s|ms|us|µs|ns|min|h)[\])]?)?", re.IGNORECASE)
UNIT = re.compile(r"(?:^|[\s_\[(])(s|sec|seconds|ms|us|µs|ns|min|h)[\])]?$", re.IGNORECASE)  # at the end of a name
SECONDS = {
    "s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0,
}  # fmt: skip
SLOWEST, FASTEST = 10.0, 2e4  # Hz: between them, times whose unit is not known are seconds
AGREE = 0.05  # relative difference between the rate of the times and the one that is given
JITTER = 0.5  # of the median step: nine in ten steps differ from it by less
ROUND = 5e-4  # relative difference to a round rate, which is then meant
STEADY = 0.01  # of a step: a column whose steps differ less is a clock or a counter
LONG = 0.05  # share of rows in which labels change at most
THREE_DECIMALS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")  # 1.234 can be 1234
MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None")  # a number that was not taken
OPTIONS = ("label", "ignore", "channels")
Floats = NDArray[np.float64]


class Table(NamedTuple):
    """The lines of a file, and how to read them."""

    path: Path
    lines: list[str]
    first: int  # the first line of values
    names: list[str]
    sep: str
    decimal: str

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of the line and the cells of every row of values."""
        reader = csv.reader(islice(self.lines, self.first, None), delimiter=self.sep)
        for cells in reader:
            if cells:
                yield self.first + reader.line_num, cells


class Roles(NamedTuple):
    """What the columns hold, by their place."""

    channels: list[int]
    time: int | None
    label: int | None
    ignored: list[int]
    stated: bool  # whether the user listed the channels


def open_csv(path: Path, cutting: Cutting, options: dict[str, str]) -> Continuous:
    table = _table(path, cutting)
    roles = _roles(table, cutting, options)
    columns = _columns(table, roles)
    values = np.stack([columns[n] for n in roles.channels], axis=1).astype(np.float32)  # (samples, channels)
    if not roles.stated:
        _check_channels(table, roles, columns)
    sfreq, clock, unit = cutting.sfreq, None, None
    if roles.time is not None:
        name, stamps = table.names[roles.time], columns[roles.time]
        sfreq, unit = _rate(stamps, name, cutting.sfreq, path)
        clock = Clock.of(unit * stamps, sfreq, cutting)
        values[clock.untimed] = np.nan
    events = []
    if roles.label is not None:
        step, end = 1 / known_rate(sfreq, path), 0
        times = np.arange(len(values)) * step if clock is None else clock.times
        for name, rows in groupby(label.strip() for label in columns[roles.label]):
            begin, end = end, end + len(list(rows))
            events += [Event(float(times[begin]), float(times[end - 1] - times[begin] + step), name)] if name else []
    notes = {_note(table, roles, sfreq, unit, cutting): 1}
    if clock is not None and clock.breaks:
        notes["gaps in the times, which no window spans:"] = len(clock.breaks)
    return Continuous(
        read=lambda start, stop: values[start:stop].T,
        n_times=len(values),
        channels=tuple(table.names[n] for n in roles.channels),
        sfreq=sfreq,
        events=events,
        times=None if clock is None else clock.times,
        breaks=() if clock is None else clock.breaks,
        notes=notes,
    )


def _table(path: Path, cutting: Cutting) -> Table:
    """Find names, separator and the first row of values; check that all rows have as many fields as there are names."""
    lines = list(io.StringIO(_text(path), newline=None))
    begin = next((n for n, line in enumerate(lines) if line.strip() and line.lstrip()[0] not in "#%"), None)
    if begin is None:
        raise UserError(f"{str(path)!r} is empty")
    decimal = cutting.decimal or "."
    sep = cutting.sep or _separator(lines[begin], decimal, path)
    reader = csv.reader(islice(lines, begin, None), delimiter=sep)
    names = [" ".join(cell.split()) for cell in next(reader)]
    first = begin + reader.line_num
    if all(map(_is_number, (cell.replace(decimal, ".") for cell in names))):
        if cutting.sep is None and sep == "," and len(names) % 2 == 0 and not any("." in line for line in lines):
            raise UserError(
                f"{str(path)!r} has no names of columns, and its commas can separate columns or be decimal marks; "
                "give --sep , or --decimal ,"
            )
        names, first = [f"ch{n}" for n in range(len(names))], begin
    table = Table(path, lines, first, names, sep, decimal)
    _check_rows(table, cutting)
    named = [name for name in names if name]
    if twice := next((name for n, name in enumerate(named) if name in named[:n]), None):
        raise UserError(f"{str(path)!r} has two columns named {shown(twice)}; give each its own name")
    return table


def _text(path: Path) -> str:
    """Decode UTF-8, UTF-16 with its mark, or else Latin-1."""
    data = path.read_bytes()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    if b"\0" in data:
        raise UserError(f"{str(path)!r} is no text in UTF-8, nor in UTF-16 with its mark; export it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _separator(line: str, decimal: str, path: Path) -> str:
    """Return the separator of the first row: the only one of comma, semicolon and tab that it has."""
    plain = re.sub(r'"[^"]*"', "", line)
    found = [mark for mark in ",;\t" if mark in plain and mark != decimal]
    if len(found) > 1:
        raise UserError(
            f"the first row of {str(path)!r} has {' and '.join(map(repr, found))}; say with --sep which "
            "separates columns, and with --decimal , where commas are decimal marks"
        )
    return found[0] if found else ";" if decimal == "," else ","


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True


def _check_rows(table: Table, cutting: Cutting) -> None:
    """Refuse rows of another length, such as those with names of rows or with decimal commas, and thousands."""
    width, line, doubtful, small = len(table.names), 0, None, None
    settled = cutting.decimal is not None
    for line, cells in table.rows():
        if len(cells) != width:
            raise UserError(
                f"line {line} of {str(table.path)!r} has {count(len(cells), 'field')}, and there are {width} columns; "
                "give every column a name and every row all fields, or say with --sep what separates them (and with "
                "--decimal , that commas are decimal marks)"
            )
        for cell in () if settled else map(str.strip, cells):
            if THREE_DECIMALS.fullmatch(cell):
                doubtful = doubtful or (line, cell)
            elif "." in cell and _is_number(cell):
                settled = True
            elif cell.lstrip("+-").isdigit() and len(cell.lstrip("+-")) <= 3:
                small = cell
    if not line:
        raise UserError(f"{str(table.path)!r} holds no samples; leave it out")
    if doubtful is not None and small is not None and not settled:
        raise UserError(
            f"line {doubtful[0]} of {str(table.path)!r} has {doubtful[1]} in a file that also has {small}: points can "
            "separate thousands or be decimal marks; write thousands without a separator, or give --decimal ."
        )


def _roles(table: Table, cutting: Cutting, options: dict[str, str]) -> Roles:
    names = table.names
    chosen = {key: [_place(table, name, f"?{key}=") for name in text.split(",")] for key, text in options.items()}
    stated = chosen.get("channels", [])
    free = [n for n, name in enumerate(names) if name and n not in (*chosen.get("ignore", []), *stated)]
    if cutting.time_column is not None:
        times = [_place(table, cutting.time_column, "--time-column")]
    else:
        times = [n for n in free if TIME.fullmatch(names[n])]
    by_name = [n for n in free if names[n].lower() in LABELS]
    labels = chosen.get("label", by_name)
    for found, option in ((times, "--time-column NAME"), (labels, "?label=NAME after the path")):
        if len(found) > 1:
            listed = " and ".join(shown(names[n]) for n in found)
            raise UserError(f"{str(table.path)!r} has the columns {listed}; choose one with {option}")
    channels = stated or [n for n in free if n not in (*times, *labels, *by_name)]
    if not channels:
        raise UserError(f"{str(table.path)!r} has no column of samples; it has {', '.join(map(shown, names))[:400]}")
    used = {*channels, *times, *labels}
    ignored = [n for n in range(len(names)) if n not in used]
    return Roles(channels, next(iter(times), None), next(iter(labels), None), ignored, bool(stated))


def _place(table: Table, name: str, option: str) -> int:
    if name not in table.names:
        there = ", ".join(map(shown, table.names))
        raise UserError(f"{str(table.path)!r} has no column {shown(name)} for {option}; there are {there[:400]}")
    return table.names.index(name)


def _columns(table: Table, roles: Roles) -> dict[int, Any]:
    """Read the columns that are used, by their place: text (n,) of labels, and numbers (n,)."""
    import pandas as pd

    used = [n for n in range(len(table.names)) if n not in roles.ignored]
    missing: dict[Any, tuple[str, ...]] = {n: MISSING for n in used if n != roles.label}  # NA can be a label
    frame = pd.read_csv(
        io.StringIO("".join(table.lines[table.first :])), sep=table.sep, decimal=table.decimal, header=None,
        names=range(len(table.names)), usecols=used, index_col=False, skipinitialspace=True, low_memory=False,
        keep_default_na=False, na_values=missing,
        dtype={} if roles.label is None else {roles.label: str},
    )  # fmt: skip
    columns: dict[int, Any] = {n: frame[n] for n in used}
    if roles.time is not None and not pd.api.types.is_numeric_dtype(columns[roles.time]):
        dates = pd.to_datetime(columns[roles.time], format="ISO8601", utc=True, errors="coerce")
        if dates.notna().equals(columns[roles.time].notna()):
            columns[roles.time] = (dates - dates.min()).dt.total_seconds()
    for n, values in columns.items():
        if n == roles.label:
            continue
        if not pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
            raise _no_number(table, n)
        columns[n] = values.to_numpy(np.float64)
    return columns


def _no_number(table: Table, place: int) -> UserError:
    """Explain the first cell of a column that is no number."""
    name, where = table.names[place], repr(str(table.path))
    for line, cells in table.rows():
        cell = cells[place].strip()
        mixed = table.decimal != "." and "." in cell
        if mixed or not (_is_number(cell.replace(table.decimal, ".", 1)) or cell in MISSING):
            where = f"line {line} of {str(table.path)!r} has {shown(cell)} in the column {shown(name)}"
            break
    return UserError(
        f"{where}, which is no number; decimal commas need --decimal , and thousands no separator; text is taken for "
        f"labels with ?label={name} after the path, or left out with ?ignore={name}"
    )


def _check_channels(table: Table, roles: Roles, columns: dict[int, Any]) -> None:
    """Refuse channels that are probably none: clocks, counters and labels beside signals."""
    signals = [n for n in roles.channels if not _is_ramp(columns[n])]
    for n in roles.channels:
        name, values = table.names[n], columns[n]
        if signals and n not in signals:
            why, remedy = "rises evenly, as times and counters do", f"--time-column {shown(name)} or ?ignore={name}"
        elif _is_label(values):
            why, remedy = "holds whole numbers that stay for long, as labels do", f"?label={name} or ?ignore={name}"
        else:
            continue
        raise UserError(
            f"the column {shown(name)} of {str(table.path)!r} {why}; give {remedy} (after the path), or list the "
            "channels with ?channels=NAME,NAME"
        )


def _is_ramp(values: Floats) -> bool:
    """Whether values rise in steps so even that no signal is like it."""
    steps = np.diff(values)
    middle = float(np.median(steps)) if len(steps) else 0.0
    return middle > 0 and bool(np.mean(np.abs(steps - middle) <= STEADY * middle) >= 0.95)


def _is_label(values: Floats) -> bool:
    """Whether whole numbers, not all of them 0, change in few rows."""
    known = values[np.isfinite(values)]
    return bool(known.any() and (known == np.rint(known)).all() and np.mean(np.diff(known) != 0) <= LONG)


def _rate(stamps: Floats, name: str, sfreq: float | None, path: Path) -> tuple[float, float]:
    """Return the rate in Hz and the unit of times in seconds; with `sfreq`, the times have to agree."""
    steps = np.diff(stamps[np.isfinite(stamps)])
    middle = float(np.median(steps)) if len(steps) else 0.0
    if not middle > 0 or np.mean(np.abs(steps - middle) > JITTER * middle) > 0.1:
        raise UserError(
            f"the times of {str(path)!r} in {shown(name)} do not rise evenly; resample it, or leave them out with "
            f"?ignore={name} after the path and give --sfreq HZ"
        )
    longest = (1.5 if np.quantile(np.abs(steps - middle), 0.9) < 0.2 * middle else 2.5) * middle
    period = float(steps[(steps >= 0) & (steps <= longest)].mean())
    match = UNIT.search(name)
    stated = None if match is None else SECONDS[match[1].lower()]
    if sfreq is not None:
        for unit in (1.0, 1e-3, 1e-6, 1e-9) if stated is None else (stated,):
            if abs(period * unit * sfreq - 1) < AGREE:
                return sfreq, unit
    elif stated is not None or SLOWEST < 1 / period <= FASTEST:
        unit = stated or 1.0
        return _round_rate(1 / (period * unit)), unit
    raise UserError(
        f"the times of {str(path)!r} in {shown(name)} are {period:.4g} apart: {1 / period:.4g} Hz if they are seconds, "
        f"{1e3 / period:.4g} Hz if milliseconds; give the rate, --sfreq HZ, or the unit in the name, {name}_ms"
    )


def _round_rate(rate: float) -> float:
    """Return the round number that the rate of a clock stands for, so that files of one device have one rate."""
    for grid in (1.0, 0.1, 0.25):
        whole = round(rate / grid) * grid
        if whole > 0 and abs(whole - rate) <= ROUND * rate:
            return float(f"{whole:.6g}")
    return float(f"{rate:.6g}")


def _note(table: Table, roles: Roles, sfreq: float | None, unit: float | None, cutting: Cutting) -> str:
    """Say what was taken for what, in one line."""

    def listed(places: list[int]) -> str:
        return shown(", ".join(table.names[n] or "(no name)" for n in places), 200)

    parts = [f"channels {listed(roles.channels)}"]
    source = "unknown"
    if roles.time is not None:
        units = next((known for known, seconds in SECONDS.items() if seconds == unit), "s")
        parts.append(f"time {listed([roles.time])} in {units}")
        source = f"{sfreq:g} Hz by the time"
    if cutting.sfreq is not None:
        source = f"{cutting.sfreq:g} Hz by --sfreq"
    if roles.label is not None:
        parts.append(f"labels {listed([roles.label])}")
    if roles.ignored:
        parts.append(f"left out {listed(roles.ignored)}")
    return f"columns: {'; '.join(parts)}; rate {source}"
