"""CSV files of samples: a row for each sample, a column for each channel.

A first row that is not numbers names the columns. Times, dates and counters (stamps.py) give the rate and show gaps; a
column named as in EVENTS gives events: each stretch of one value is an event of that name. Other
columns that are no signals by their names are left out. `?time=`, `?label=`, `?ignore=` and `?channels=` after the path
say what columns are where their names do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, shown
from .csv_form import MISSING, Form, decimal_of, form_of, is_number, misfit, unfilled, values_of
from .cutting import Continuous, Cutting, Event, known_rate
from .npy import check_memory
from .stamps import (
    Stamps,
    from_clock,
    from_counter,
    is_clock,
    is_date,
    is_ramp,
    may_be_clock,
    may_count,
    rises,
    seconds_of_dates,
    slow_concern,
    unit_of,
)  # fmt: skip

EVENTS = (
    "class", "label", "labels", "event", "events", "marker", "markers", "trial_type", "annotation", "activity",
    "gesture", "trigger", "stim", "stimulus", "condition",
)  # fmt: skip
TIMES = ("time", "times", "timestamp", "timestamps", "seconds")  # names that mean nothing else
PEOPLE = {"subject", "subj", "participant", "patient", "person", "user", "pid"}  # alone, or with one of
NUMBERED = {"id", "nr", "no", "num", "number", "code", "name"}
NO_SIGNAL = ("session", "trial", "repetition", "rep", "run", "block", "fold")  # by their names
OPTIONS = ("time", "label", "ignore", "channels")
MOST_SHARE = 0.05  # of rows: a column of trials or blocks changes in fewer


def open_csv(path: Path, cutting: Cutting, options: dict[str, str]) -> Continuous:
    check_memory(6 * path.stat().st_size, "the samples", path, "split it into shorter files")
    form = form_of(path)
    roles = _roles(form, options, path)
    table = _table(path, form, roles)
    n_times = len(next(iter(table.values())))
    if not n_times:
        raise UserError(f"{str(path)!r} holds no samples; leave it out")
    empty = _columns_without_fields(path, form, table, roles)
    roles.channels = [  # rows may end with a separator, after which there is no name
        n for n in roles.channels if n not in empty and (form.columns[n] or np.isfinite(table[n]).any())
    ]
    stamps = _stamps(form, roles, table, cutting.sfreq, path)
    values = np.stack([table[n].astype(np.float32) for n in roles.channels], axis=1)  # (samples, channels)
    events = [] if roles.event is None else list(_stretches(table[roles.event], stamps, path))
    if roles.event is not None and (alike := sorted({event.name for event in events} & MISSING)):
        roles.notes.append(
            f"{', '.join(map(repr, alike))} in the column {shown(form.columns[roles.event])} are labels like others; "
            "those that --events does not name give no windows"
        )
    notes = dict.fromkeys(roles.notes, 1)
    if stamps.breaks:
        notes["gaps in the stamps, which no window spans"] = len(stamps.breaks)
    return Continuous(
        read=lambda start, stop: values[start:stop].T,
        n_times=n_times,
        channels=tuple(form.columns[n] for n in roles.channels),
        sfreq=stamps.sfreq,
        events=events,
        times=stamps.times,
        breaks=stamps.breaks,
        notes=notes,
    )


@dataclass
class _Roles:
    """What each column holds, by its index; notes explain it to the user."""

    channels: list[int]
    clocks: list[int] = field(default_factory=list)  # columns that may hold times, the likeliest first
    event: int | None = None
    ignored: list[int] = field(default_factory=list)
    by_user: bool = False  # whether the user chose the channels or the times
    notes: list[str] = field(default_factory=list)


def _roles(form: Form, options: dict[str, str], path: Path) -> _Roles:
    """Roles by the names of the columns and the options; `_stamps` corrects them by the values."""
    lower = [name.lower() for name in form.columns]
    chosen = {key: [_place(name, form, key, path) for name in value.split(",")] for key, value in options.items()}
    left_out, notes = [*chosen.get("ignore", []), *form.unused], list(form.notes)
    named = [n for n, name in enumerate(lower) if name in EVENTS and n not in left_out]
    event = chosen["label"][0] if "label" in chosen else min(named, key=lambda n: EVENTS.index(lower[n]), default=None)
    free = [n for n in range(len(lower)) if n != event and n not in left_out]
    if "time" in chosen:
        clocks = chosen["time"][:1]
    else:
        clocks = [n for n in free if may_be_clock(form.columns[n])]
        clocks += [n for n in free if n not in clocks and is_date(form.first[n] if n < len(form.first) else "")]
    if "channels" in chosen:
        channels = [n for n in chosen["channels"] if n not in left_out]
        clocks = [n for n in clocks if n not in channels]
        others = [n for n in range(len(lower)) if n not in (event, *channels, *clocks)]
        return _Roles(channels, clocks, event, others, by_user=True, notes=notes)
    texts = [n for n in free if n not in clocks and n < len(form.first) and not is_number(form.first[n])]
    for n in (n for n in texts if n in named):  # of which one gives the events
        left_out.append(n)
        notes.append(_other_labels(form, n, event))
    channels = [n for n in free if n not in (*clocks, *left_out)]
    if not channels:
        raise UserError(_no_samples(path, form))
    for n in (n for n in texts if n in channels):
        if len(channels) > 1 and set(channels) <= set(texts):
            raise UserError(
                f"the first row of {str(path)!r} below the names holds no numbers ({shown(form.first[n])}); take rows "
                "that are no samples out, or write numbers as 0.5 or 5e-1"
            )
        raise UserError(
            f"the column {shown(form.columns[n])} of {str(path)!r} holds text ({shown(form.first[n])}): take it "
            f"for labels with ?label={form.columns[n]} after the path, or leave it out with "
            f"?ignore={form.columns[n]}"
        )
    return _Roles(channels, clocks, event, list(left_out), by_user="time" in chosen, notes=notes)


def _place(name: str, form: Form, key: str, path: Path) -> int:
    if name not in form.columns:
        there = ", ".join(map(shown, form.columns))
        raise UserError(f"{str(path)!r} has no column {shown(name)} for ?{key}=; there are {there[:400]}")
    return form.columns.index(name)


def _table(path: Path, form: Form, roles: _Roles) -> dict[int, NDArray[Any]]:
    """The columns that are read, by place: (n,) float64, or text for labels and dates."""
    import pandas as pd

    texts = {n for n in roles.clocks if n < len(form.first) and not is_number(form.first[n])}
    texts |= set() if roles.event is None else {roles.event}
    texts |= set(roles.ignored)  # which may hold anything
    numbers = [n for n in range(len(form.columns)) if n not in texts]
    kinds: dict[int, Any] = {n: str if n in texts else np.float64 for n in range(len(form.columns))}
    # Not of events: None and NA may be names of classes.
    missing: dict[Any, list[str]] = {n: sorted(MISSING) for n in kinds if n != roles.event}
    decimal = decimal_of(path, form, numbers)
    try:
        with values_of(path, form) as rows:
            table = pd.read_csv(
                rows, sep=form.separator, decimal=decimal, header=None, dtype=kinds, names=list(kinds),
                index_col=False, on_bad_lines="error", keep_default_na=False, na_values=missing,
            )  # fmt: skip
    except (ValueError, TypeError) as error:
        raise UserError(
            misfit(path, form, numbers, decimal)
            or f"{str(path)!r} is no table of numbers ({' '.join(str(error).split())[:120]}); columns are channels, "
            f"times and one of {', '.join(EVENTS[:6])}; leave others out with ?ignore=NAME,NAME after the path"
        ) from None
    return {n: table[n].to_numpy() for n in kinds if n not in roles.ignored}


def _columns_without_fields(path: Path, form: Form, table: dict[int, NDArray[Any]], roles: _Roles) -> list[int]:
    """The last columns, where no row has fields for them; a row that is shorter than others is refused."""
    import pandas as pd

    last = max(n for n, name in enumerate(form.columns) if name or n == 0)
    values = table.get(last)
    if values is not None and not (pd.isna(values) | (values == "")).any():
        return []  # every row reaches the last column that has a name
    width = unfilled(path, form, last + 1)
    empty = list(range(width, last + 1))
    if empty:
        names = ", ".join(shown(form.columns[n]) for n in empty)
        roles.notes.append(f"rows have {width} fields and the header {last + 1} names: {names} left out")
    return empty


def _stamps(form: Form, roles: _Roles, table: dict[int, NDArray[Any]], sfreq: float | None, path: Path) -> Stamps:
    """When samples were taken, by the names and values of columns; removes what is no channel from `roles.channels`."""
    stamps: Stamps | None = None
    for n in roles.clocks:
        name, values = form.columns[n], table[n]
        if values.dtype.kind not in "iuf":
            dates = seconds_of_dates(values)
            if dates is None and not roles.by_user:
                raise UserError(
                    f"the column {shown(name)} of {str(path)!r} holds text ({shown(str(values[0]))}), and no times; "
                    f"leave it out with ?ignore={name} after the path"
                )
            values, name = (np.zeros(len(values)) if dates is None else dates), f"{name} (s)"
        table[n] = values
        if stamps is None and (rises(values) or roles.by_user or form.columns[n].lower() in TIMES):
            stamps = from_clock(values, name, sfreq, repr(str(path)))
            used = "gives the rate" if stamps is not None and sfreq is None else "shows gaps"
            used = "does not fit --sfreq and is not used" if stamps is None else used
            if form.columns[n].lower() != "time" or stamps is None:  # a note would say nothing new
                roles.notes.append(f"column {shown(form.columns[n])} is time: it {used}, and is no channel")
            if stamps is not None and sfreq is None and (slow := slow_concern(name, values, stamps)) is not None:
                roles.notes.append(slow)
        elif rises(values) or form.columns[n] != name or np.ptp(np.nan_to_num(values)) == 0:
            roles.notes.append(f"column {shown(form.columns[n])} is time, and no channel")
        else:
            roles.channels = sorted([*roles.channels, n])
            if is_clock(form.columns[n]):
                roles.notes.append(_doubt(form.columns[n], "is called like a time but does not rise evenly"))
    if not (roles.by_user and roles.ignored):
        stamps = _counters(form, roles, table, sfreq, stamps, path)
    if not roles.channels:
        raise UserError(_no_samples(path, form))
    return stamps or Stamps(sfreq, None, ())


def _counters(
    form: Form, roles: _Roles, table: dict[int, NDArray[Any]], sfreq: float | None, stamps: Stamps | None, path: Path
) -> Stamps | None:
    """Remove counters, and columns that name the trial or person, from the channels."""
    ramps = [n for n in roles.channels if is_ramp(table[n])]
    for n in list(roles.channels):
        name, values = form.columns[n], table[n]
        if may_count(name) and rises(values):
            roles.channels.remove(n)
            if stamps is None:
                stamps = from_counter(values, sfreq)
            roles.notes.append(f"column {shown(name)} counts samples, and is no channel")
        elif name.lower() in EVENTS and _stays(values):
            roles.channels.remove(n)
            roles.notes.append(_other_labels(form, n, roles.event))
        elif (_is_person(name) or name.lower() in NO_SIGNAL) and _stays(values):
            if _is_person(name) and len(np.unique(values)) > 1:
                raise UserError(
                    f"{str(path)!r} holds {len(np.unique(values))} people (column {shown(name)}); give a file for each "
                    "person, and say what names of files mean with --pattern"
                )
            roles.channels.remove(n)
            roles.notes.append(f"column {shown(name)} is no channel by its name; --pattern says whose a file is")
        elif n in ramps and len(ramps) < len(roles.channels) and stamps is None:
            roles.notes.append(_doubt(name, "rises evenly, as times and counters do", f"?time={name} or "))
    return stamps


def _is_person(name: str) -> bool:
    words, _ = unit_of(name)
    return bool(words & PEOPLE) and words <= PEOPLE | NUMBERED


def _no_samples(path: Path, form: Form) -> str:
    if not form.columns:
        return f"{str(path)!r} is empty"
    return f"{str(path)!r} has no columns of samples besides {', '.join(map(shown, form.columns))}"


def _other_labels(form: Form, n: int, event: int | None) -> str:
    events = "" if event is None else f": {shown(form.columns[event])} gives the events"
    name = form.columns[n]
    return f"column {shown(name)} holds labels by its name, and is no channel{events}; ?label={name} takes it instead"


def _stays(values: NDArray[Any]) -> bool:
    """Whether a column keeps its value for long."""
    return bool(np.mean(np.diff(values) != 0) <= MOST_SHARE) if len(values) > 1 else True


def _doubt(name: str, why: str, else_: str = "") -> str:
    remedy = f"if it is none, put {else_}?ignore={name} after the path"
    return f"column {shown(name)} {why}, and is taken for a channel; {remedy}"


def _stretches(values: Any, stamps: Stamps, path: Path) -> Iterator[Event]:
    """Events: stretches of rows with the same value; missing values are left out."""
    step = 1 / known_rate(stamps.sfreq, path)
    names = ["" if value is None or value != value else str(value).strip() for value in values]
    times = stamps.times if stamps.times is not None else np.arange(len(names)) * step
    end = 0
    for name, rows in groupby(names):
        begin, end = end, end + len(list(rows))
        if name:
            yield Event(float(times[begin]), float(times[end - 1] - times[begin] + step), name)
