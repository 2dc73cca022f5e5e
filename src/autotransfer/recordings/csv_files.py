"""Reader of CSV files with a row for each sample and a column for each channel.

Each column has a role: times, labels, or a channel. Its name or an option determines the role. If a
file can be read in two ways, an error names the option that decides.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, shown
from ..words import count
from .cutting import Continuous, Cutting, Event, require_rate
from .timestamps import AGREE, Clock, check_bursts, measure_even_rate, round_rate

LABELS = (
    "class", "label", "labels", "event", "events", "marker", "markers", "trial_type", "annotation", "activity",
    "gesture", "trigger", "stim", "stimulus", "condition",
)  # fmt: skip
TIME = re.compile(r"(t|times?|timestamps?|datetime|seconds)([\s_]*[\[(]?(s|ms|us|µs|ns|min|h)[\])]?)?", re.IGNORECASE)
UNIT = re.compile(r"(?:^|[\s_\[(])(s|sec|seconds|ms|us|µs|ns|min|h)[\])]?$", re.IGNORECASE)  # at the end of a name
SECONDS = {
    "s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0,
}  # fmt: skip
SLOWEST, FASTEST = 10.0, 2e4  # Hz: if the rate is between them, times of unknown unit are taken as seconds
AGREE_IN_UNIT = 0.05  # largest relative difference between --sfreq and the rate by a unit of times
STEADY = 0.01  # limit for the relative deviation of steps in a column of times or a counter
MAX_CHANGES = 0.05  # largest share of rows in which a column of labels changes
MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None")
OPTIONS = ("label", "channels")
HOW_TO_LIST = "list the channels with ?channels=NAME,NAME after the path"
Floats = NDArray[np.float64]


@dataclass
class Table:
    """Text of a CSV file, and the indices of its columns by their role."""

    path: str  # quoted path of the file, for messages
    names: list[str]  # of columns
    values: str  # the text below the row of names
    sep: str
    decimal: str
    channels: list[int] = field(default_factory=list)
    time: int | None = None
    label: int | None = None

    def find_column(self, name: str, option: str) -> int:
        """Return the index of a column that an option names."""
        if name not in self.names:
            raise UserError(f"{self.path} has no column {shown(name)} for {option}; there are {self.list_names()}")
        return self.names.index(name)

    def list_names(self, columns: list[int] | None = None) -> str:
        names = self.names if columns is None else [self.names[n] for n in columns]
        return shown(", ".join(name or "(no name)" for name in names), 200)


def open_csv(path: Path, cutting: Cutting, options: dict[str, str]) -> Continuous:
    table = _read_table(path, cutting)
    _find_roles(table, cutting, options)
    columns = _read_columns(table)
    values = np.stack([columns[n] for n in table.channels], axis=1).astype(np.float32)  # (samples, channels)
    if "channels" not in options:
        _check_channels(table, columns)
    sfreq, clock, unit = cutting.sfreq, None, None
    if table.time is not None:
        stamps = columns[table.time]
        check_bursts(stamps, f"the column {shown(table.names[table.time])} of {table.path}")
        sfreq, unit = _find_rate(stamps, table.names[table.time], cutting.sfreq, table.path)
        clock = Clock(unit * stamps, sfreq, cutting.window)
        values[clock.untimed] = np.nan
    events = []
    if table.label is not None:
        step, end = 1 / require_rate(sfreq, path), 0
        times = np.arange(len(values)) * step if clock is None else clock.times
        for name, rows in groupby(label.strip() for label in columns[table.label]):
            begin, end = end, end + len(list(rows))
            events += [Event(float(times[begin]), float(times[end - 1] - times[begin] + step), name)] if name else []
    return Continuous(
        read=lambda start, stop: values[start:stop].T,
        n_times=len(values),
        channels=tuple(table.names[n] for n in table.channels),
        sfreq=sfreq,
        sources={} if clock is None else {"sfreq": "measured"},
        events=events,
        times=None if clock is None else clock.times,
        breaks=() if clock is None else clock.breaks,
        notes=(_describe_roles(table, sfreq, unit, cutting),),
    )


def _read_table(path: Path, cutting: Cutting) -> Table:
    """Return the text of a file with the names of its columns and its separator."""
    file, lines = repr(str(path)), list(io.StringIO(_read_text(path), newline=None))
    begin = next((n for n, line in enumerate(lines) if line.strip() and line.lstrip()[0] not in "#%"), None)
    if begin is None:
        raise UserError(f"{file} is empty")
    decimal, sep = cutting.decimal or ".", cutting.sep
    if sep is None:
        unquoted = re.sub(r'"[^"]*"', "", lines[begin])
        found = [mark for mark in ",;\t" if mark in unquoted and mark != decimal]
        if len(found) > 1:
            raise UserError(f"the first row of {file} has {' and '.join(map(repr, found))}; give the separator, --sep")
        sep = found[0] if found else ";" if decimal == "," else ","
    reader = csv.reader(lines[begin:], delimiter=sep)
    names = [" ".join(cell.split()) for cell in next(reader)]
    first = begin + reader.line_num
    named = [name for name in names if name]
    is_numbered = len(named) > 1 and named in [[str(start + n) for n in range(len(named))] for start in (0, 1)]
    if not is_numbered and all(_is_number(cell.replace(decimal, ".")) for cell in names):
        names = named = [f"ch{n}" for n in range(len(names))]
        first = begin
    if duplicate := next((name for n, name in enumerate(named) if name in named[:n]), None):
        raise UserError(f"{file} has two columns named {shown(duplicate)}; give each its own name")
    reader, values = csv.reader(lines[first:], delimiter=sep), "".join(lines[first:])
    if wrong := next((cells for cells in reader if cells and len(cells) != len(names)), None):
        raise UserError(
            f"line {first + reader.line_num} of {file} has {count(len(wrong), 'field')}, and there are {len(names)} "
            "columns; name every column, or give --sep, or --decimal , if commas are decimal marks"
        )
    if not values.strip():
        raise UserError(f"{file} holds no samples; leave it out")
    return Table(file, names, values, sep, decimal)


def _read_text(path: Path) -> str:
    """Return the text of a file in UTF-8, or otherwise in Latin-1."""
    data = path.read_bytes()
    if b"\0" in data:
        raise UserError(f"{str(path)!r} is not text in UTF-8; export it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True


def _find_roles(table: Table, cutting: Cutting, options: dict[str, str]) -> None:
    """Find the channels of a table, and its columns of times and labels."""
    names, listed = table.names, options.get("channels", "")
    stated = [table.find_column(name, "?channels=") for name in listed.split(",") if listed]
    unassigned = [n for n, name in enumerate(names) if name and n not in stated]
    times = [n for n in unassigned if TIME.fullmatch(names[n])]
    if cutting.time_column is not None:
        times = [table.find_column(cutting.time_column, "--time-column")]
    by_name = [n for n in unassigned if names[n].lower() in LABELS]
    labels = [table.find_column(options["label"], "?label=")] if "label" in options else by_name
    for found, option in ((times, "--time-column NAME"), (labels, "?label=NAME after the path")):
        if len(found) > 1:
            raise UserError(f"{table.path} has the columns {table.list_names(found)}; choose one with {option}")
    table.channels = stated or [n for n in unassigned if n not in (*times, *labels, *by_name)]
    if not table.channels:
        raise UserError(f"{table.path} has no column of samples; it has {table.list_names()}")
    table.time, table.label = next(iter(times), None), next(iter(labels), None)


def _read_columns(table: Table) -> dict[int, Any]:
    """Return the columns that have a role by their index, labels as text (n,) and other columns as numbers (n,)."""
    import pandas as pd

    missing: dict[Any, tuple[str, ...]] = {n: MISSING for n in range(len(table.names)) if n != table.label}
    frame = pd.read_csv(
        io.StringIO(table.values.rstrip("\n")), sep=table.sep, decimal=table.decimal, header=None, na_values=missing,
        skipinitialspace=True, low_memory=False, keep_default_na=False,
        dtype={} if table.label is None else {table.label: str},
        skip_blank_lines=len(table.names) > 1,  # a blank line of one column is a missing value
    )  # fmt: skip
    columns: dict[Any, Any] = {n: frame[n] for n in frame}
    if table.time is not None and not pd.api.types.is_numeric_dtype(columns[table.time]):
        dates = pd.to_datetime(columns[table.time], format="ISO8601", utc=True, errors="coerce")
        if dates.notna().equals(columns[table.time].notna()):
            columns[table.time] = (dates - dates.min()).dt.total_seconds()
    for n in table.channels if table.time is None else (*table.channels, table.time):
        values, name = columns[n], table.names[n]
        if not pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
            cell = next((text for text in values.dropna().astype(str) if not _is_number(text)), values.iloc[0])
            raise UserError(
                f"{table.path} has {shown(cell)} in the column {shown(name)}, which is not a number; give --decimal , "
                f"for decimal commas, ?label={name} for labels, or {HOW_TO_LIST}; remove separators of thousands"
            )
        columns[n] = values.to_numpy(np.float64)
    return columns


def _check_channels(table: Table, columns: dict[int, Any]) -> None:
    """Refuse columns that are probably clocks, counters or labels."""
    signals = [n for n in table.channels if not _is_ramp(columns[n])]
    for n in table.channels:
        name = shown(table.names[n])
        if signals and n not in signals:
            problem, remedy = "rises evenly, as times and counters do", f"--time-column {name}"
        elif _is_label(columns[n]):
            problem, remedy = "holds whole numbers that seldom change, as labels do", f"?label={table.names[n]}"
        else:
            continue
        raise UserError(f"the column {name} of {table.path} {problem}; give {remedy}, or {HOW_TO_LIST}")


def _is_ramp(values: Floats) -> bool:
    """Return whether values rise in equal steps, as times and counters do."""
    steps = np.diff(values)
    median = float(np.median(steps)) if len(steps) else 0.0
    return median > 0 and bool(np.mean(np.abs(steps - median) <= STEADY * median) >= 0.95)


def _is_label(values: Floats) -> bool:
    """Return whether values are whole numbers that change in few rows and are not all 0."""
    known = values[np.isfinite(values)]
    return bool(known.any() and (known == np.rint(known)).all() and np.mean(np.diff(known) != 0) <= MAX_CHANGES)


def _find_rate(stamps: Floats, name: str, sfreq: float | None, file: str) -> tuple[float, float]:
    """Return the rate in Hz and the unit of times in seconds, which `sfreq` determines if it is given."""
    per_unit = measure_even_rate(stamps[np.isfinite(stamps)])
    if per_unit is None:
        raise UserError(
            f"times of {file} in {shown(name)} do not rise evenly; resample it, or give --sfreq and {HOW_TO_LIST}"
        )
    match = UNIT.search(name)
    stated = None if match is None else SECONDS[match[1].lower()]
    if sfreq is not None:
        for unit in (1.0, 1e-3, 1e-6, 1e-9) if stated is None else (stated,):
            measured = round_rate(per_unit / unit)
            if abs(measured - sfreq) < AGREE_IN_UNIT * sfreq:
                return measured if abs(measured - sfreq) > AGREE * sfreq else sfreq, unit
    elif stated is not None or SLOWEST < per_unit <= FASTEST:
        unit = stated or 1.0
        return round_rate(per_unit / unit), unit
    raise UserError(
        f"times of {file} in {shown(name)} are {per_unit:.4g} Hz if the unit is seconds, {1e3 * per_unit:.4g} Hz "
        "if milliseconds; give the rate, --sfreq HZ, or add the unit to the name of the column"
    )


def _describe_roles(table: Table, sfreq: float | None, unit: float | None, cutting: Cutting) -> str:
    """Return one line that lists the columns of each role."""
    parts = [f"channels {table.list_names(table.channels)}"]
    if table.time is not None:
        units = next((known for known, seconds in SECONDS.items() if seconds == unit), "s")
        parts.append(f"time {table.list_names([table.time])} in {units}")
    if table.label is not None:
        parts.append(f"labels {table.list_names([table.label])}")
    if ignored := [n for n in range(len(table.names)) if n not in (*table.channels, table.time, table.label)]:
        parts.append(f"left out {table.list_names(ignored)}")
    source = "" if sfreq is None else " from the times" if cutting.sfreq is None else " from --sfreq"
    return f"columns: {'; '.join(parts)}; rate {'unknown' if sfreq is None else f'{sfreq:g} Hz'}{source}"
