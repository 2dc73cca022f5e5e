"""Columns: what else is known of every trial, such as the position of an electrode, an age or the time of day."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import plain_value
from .raw import Array, Label

TAKEN = ("X", "y", "subject", "session", "scale", "meta")  # names that files and arguments use otherwise
MOST_LETTERS = 100  # of a name
KINDS = "biufUS"  # of arrays that can be columns: numbers and text
Value = str | int | float | None


@dataclass(frozen=True, eq=False)
class Column:
    """One value per trial. Whole numbers and text are labels of groups; other numbers are a continuous quantity."""

    values: Array  # (N,) int64 places in `labels`, -1: missing; without labels (N,) float64, NaN: missing
    labels: tuple[Label, ...] | None = None

    @property
    def continuous(self) -> bool:
        return self.labels is None


def is_name(name: object) -> bool:
    """Whether a column can be called so: a folder has a file of each name."""
    return (
        isinstance(name, str)
        and name not in TAKEN
        and 0 < len(name) <= MOST_LETTERS
        and name.isprintable()
        and name == name.strip()
        and not name.startswith(".")
        and not set(name) & set("+/\\")
    )


def plain_values(values: Iterable[Any]) -> list[Value] | None:
    """Values as numbers or text, None where missing. None unless all known values are numbers, or all are text."""
    plain: list[Value] = []
    for value in map(plain_value, values):
        missing = is_empty(value) or (isinstance(value, float) and math.isinf(value))
        plain.append(None if missing else int(value) if isinstance(value, bool) else value)
    known = [value for value in plain if value is not None]
    if all(isinstance(value, str) for value in known) or all(isinstance(value, (int, float)) for value in known):
        return plain if known else None
    return None


def plain_columns(columns: Mapping[Any, Iterable[Any]]) -> dict[str, list[Value]]:
    """The entries of a table that can be columns; others are left out."""
    named = {name: values for name, values in columns.items() if is_name(name)}
    return {name: plain for name, values in named.items() if (plain := plain_values(values)) is not None}


def is_missing(value: Any) -> bool:
    """None, NaN, NaT or NA, also within a tuple."""
    if type(value) is tuple:
        return any(map(is_missing, value))
    try:
        return value is None or not bool(value == value)
    except (TypeError, ValueError):  # pandas.NA refuses to be a truth value
        return True


def is_empty(value: Any) -> bool:
    """Missing, or text without letters."""
    return is_missing(value) or (isinstance(value, str) and not value.strip())
