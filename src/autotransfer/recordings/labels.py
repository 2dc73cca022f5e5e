"""Labels, numbers or text, to contiguous integers and back, and columns: further values of every trial, such as the
position of an electrode, an age or the time of day."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError, shown
from .raw import Array, Label, Raw

TAKEN = ("X", "y", "subject", "session", "scale", "channels", "sfreq", "meta")  # names with another meaning
MOST_LETTERS = 100  # of the name of a column
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

    def array(self) -> Array:
        """Return values as a file holds them, (N,): numbers, or text where labels are text or one is missing."""
        if self.labels is None:
            return self.values
        missing = bool((self.values < 0).any())
        return np.array([*self.labels, *[""] * missing])[self.values]


def is_column_name(name: object) -> bool:
    """Tell whether a column can be called so: a folder has a file of each name."""
    return (
        isinstance(name, str)
        and name not in TAKEN
        and 0 < len(name) <= MOST_LETTERS
        and name.isprintable()
        and name == name.strip()
        and not name.startswith(".")
        and not set(name) & set("/\\")
    )


def plain_values(values: Iterable[Any]) -> list[Value] | None:
    """Return values as numbers or text, None where missing. None unless all known values are numbers, or all are
    text."""
    plain: list[Value] = []
    for value in map(_plain, values):
        missing = is_empty(value) or (isinstance(value, float) and math.isinf(value))
        plain.append(None if missing else int(value) if isinstance(value, bool) else value)
    known = [value for value in plain if value is not None]
    if all(isinstance(value, str) for value in known) or all(isinstance(value, (int, float)) for value in known):
        return plain if known else None
    return None


def plain_columns(columns: Mapping[Any, Iterable[Any]]) -> dict[str, list[Value]]:
    """Return the entries of a table that can be columns; others are left out."""
    named = {name: values for name, values in columns.items() if is_column_name(name)}
    return {name: plain for name, values in named.items() if (plain := plain_values(values)) is not None}


def is_empty(value: Any) -> bool:
    """Tell whether a value is None, NaN, NaT, NA or text without letters."""
    try:
        return value is None or not bool(value == value) or (isinstance(value, str) and not value.strip())
    except (TypeError, ValueError):  # pandas.NA refuses to be a truth value
        return True


def encode(values: object, n_windows: int, what: str, names: object = None) -> tuple[Tensor, tuple[Label, ...]]:
    """Return integers 0..K-1, (N,) int64, and the K labels they stand for.

    Labels are in sorted order, or in the order of their first appearance where there are numbers and text.
    With `names`, values that are integers in range(len(names)) are indices into them; values that are
    themselves among the names keep the names' order. Names that do not occur are left out.
    """
    labels = as_list(values, what, n_windows)
    strange = (n for n, label in enumerate(labels) if not isinstance(label, (str, int, float)) or label != label)
    if (first := next(strange, None)) is not None:
        wrong = shown(labels[first])
        raise UserError(f"{what}[{first}] is {wrong}; drop trials without a label or give them a number or text")
    unique = list(dict.fromkeys(labels))
    if names is None:
        is_mixed = len({isinstance(label, str) for label in unique}) > 1
        ordered = unique if is_mixed else sorted(unique)
        known: tuple[Label, ...] = tuple(ordered)
    else:
        ordered, known = _named(unique, names, what)
    code = {label: k for k, label in enumerate(ordered)}
    return torch.tensor([code[label] for label in labels], dtype=torch.int64), known


def label_names(values: object, n_windows: int, what: str, names: object = None) -> list[Label]:
    """Return labels (N,), as names where they count into `names`."""
    codes, known = encode(values, n_windows, what, names)
    return [known[code] for code in codes.tolist()]


def encode_session(values: object, n_windows: int) -> Tensor:
    """Return sessions (N,) int64: integers stay as they are, anything else is numbered like labels."""
    labels = as_list(values, "session")
    if labels and all(isinstance(label, int) and -(2**63) <= label < 2**63 for label in labels):
        check_length(len(labels), n_windows, "session")
        return torch.tensor(labels, dtype=torch.int64)
    return encode(labels, n_windows, "session")[0]


def encode_columns(columns: object, n_windows: int) -> dict[str, Column]:
    """Return columns by name, from a dict or a DataFrame of anything that gives one value per trial."""
    if columns is None:
        return {}
    items: Callable[[], Iterable[tuple[Any, object]]] | None = getattr(columns, "items", None)
    if not callable(items) or isinstance(columns, type):
        raise UserError(f"columns are {shown(columns)}; give a dict or a DataFrame with one value per trial in each")
    encoded = {}
    for name, values in items():
        if not is_column_name(name):
            raise UserError(
                f"a column is called {shown(name)}; give it a short printable name without / and \\ that no "
                "argument or array of Recordings has"
            )
        encoded[name] = _column(values, n_windows, f"the column {shown(name)}")
    return encoded


def _column(values: object, n_windows: int, what: str) -> Column:
    if isinstance(values, Column):
        check_length(len(values.values), n_windows, what)
        return values
    given = as_list(values, what, n_windows)
    plain = plain_values(given)
    if plain is None:
        raise UserError(f"{what} holds {shown(given)}; give numbers alone or text alone, at least one of them")
    known = {value for value in plain if value is not None}
    if any(isinstance(value, float) for value in known):
        return Column(np.array([np.nan if value is None else float(value) for value in plain]))
    labels = tuple(sorted(known))  # all numbers or all text
    code = {label: k for k, label in enumerate(labels)} | {None: -1}
    return Column(np.array([code[value] for value in plain], dtype=np.int64), labels)


def check_length(length: int, n_windows: int, what: str) -> None:
    if length != n_windows:
        raise UserError(f"{what} has {length} entries but X has {n_windows} trials; give one entry per trial")


def as_list(values: object, what: str, n_windows: int | None = None) -> list[Label]:
    """Return plain Python values from a list, an array, a Series or a tensor with one axis, one for each trial."""
    if isinstance(values, (str, bytes, dict, set, frozenset)) or not isinstance(values, Iterable):
        raise UserError(f"{what} is {shown(values)}; give a list or an array with one axis")
    shape = getattr(values, "shape", None)
    if isinstance(shape, tuple) and len(shape) != 1:
        raise UserError(f"{what} has the shape {tuple(shape)}; give a list or an array with one axis")
    if isinstance(values, np.ndarray) and values.dtype.kind == "S":  # as C programs and HDF5 write text
        values = np.char.decode(values, "utf-8", errors="replace")
    to_list = getattr(values, "tolist", None)  # numpy, torch and pandas: far quicker than iterating
    plain = [_plain(value) for value in (to_list() if callable(to_list) else values)]
    if n_windows is not None:
        check_length(len(plain), n_windows, what)
    return plain


def _plain(value: Label) -> Label:
    """Return a value without NumPy's and torch's scalar types, and without blanks around text."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (np.generic, np.ndarray, Tensor)) and value.ndim == 0:
        return value.item()
    return value


def _named(unique: list[Label], names: object, what: str) -> tuple[list[Label], tuple[Label, ...]]:
    """Return the labels that occur, in the order of their names, and those names."""
    known = as_list(names, f"the names for {what}")
    check_distinct(known, f"the names for {what}")
    n = len(known)
    are_names = set(unique) <= set(known)
    if all(isinstance(label, (int, float)) and label in range(n) for label in unique):
        if are_names and (other := [label for label in unique if known[int(label)] != label]):
            raise UserError(
                f"{what} holds {shown(other[0])}, and the names given for it, {shown(known)}, are numbers themselves: "
                f"it may be that name or count from 0, to {shown(known[int(other[0])])}; give names as text, or none"
            )
        ordered = sorted(unique)
        return ordered, tuple(known[int(label)] for label in ordered)
    if are_names:
        ordered = [name for name in known if name in set(unique)]
        return ordered, tuple(ordered)
    stray = next(label for label in unique if not (isinstance(label, (int, float)) and label in range(n)))
    raise UserError(
        f"{what} holds {shown(stray)}, for which the {n} names given have no entry; "
        f"name every label: {what} counts from 0 into the names, or holds the names themselves"
    )


def check_distinct(values: list[Label], what: str) -> None:
    known: set[Label] = set()
    for value in values:
        if not isinstance(value, (str, int, float)):
            raise UserError(f"{what} hold {shown(value)}; give numbers or text")
        if value in known:
            raise UserError(f"{what} hold {shown(value)} twice; make them distinct")
        known.add(value)


def without_unlabeled(raw: Raw) -> tuple[Raw, int]:
    """Return the windows that have a label, and how many have none; if y is unknown all are kept."""
    missing = find_unlabeled(raw)
    if not missing.any():
        return raw, 0
    if missing.all():
        raise UserError("no window has a label; y must give the class of those that train")
    return select_windows(raw, np.flatnonzero(~missing)), int(missing.sum())


def find_unlabeled(raw: Raw) -> NDArray[np.bool_]:
    """Return whether each window (N,) has no label; False for all if y is unknown.

    A label is missing if it is None, NaN or empty text, or if it is -1 and y counts into the names of classes.
    """
    n = int(raw.X.shape[0])
    if raw.y is None:
        return np.zeros(n, dtype=bool)
    labels = as_list(raw.y, "y", n)
    counted = raw.classes is not None and -1 not in as_list(raw.classes, "the names for y")
    return np.array(
        [is_empty(label) or (counted and isinstance(label, (int, float)) and label == -1) for label in labels]
    )


def select_windows(raw: Raw, rows: NDArray[np.int64]) -> Raw:
    """Return some of the windows, (n,)."""
    labels = {name: getattr(raw, name) for name in ("y", "subject", "session")}
    parts: dict[str, Any] = {
        name: None if values is None else _some(values, rows, name) for name, values in labels.items()
    }
    items = getattr(raw.columns, "items", dict[str, object]().items)
    parts["columns"] = {name: _some(values, rows, f"the column {name!r}") for name, values in items()}
    return replace(raw, X=raw.X[rows], **parts)


def unlabeled_warning(missing: int, n_windows: int) -> str | None:
    return f"{missing} of {n_windows} windows have no label: they are left out of training" if missing else None


def _some(values: object, rows: NDArray[np.int64], what: str) -> object:
    if isinstance(values, Column):
        return replace(values, values=values.values[rows])
    listed = as_list(values, what)
    return [listed[n] for n in rows.tolist()]
