"""Labels and columns: numbers or text of every window, and their encoding as integers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError, shown
from .raw import Array, Label, Raw

RESERVED = ("X", "y", "subject", "session", "scale", "channels", "sfreq", "meta")  # names with another meaning
MAX_NAME_LENGTH = 100  # of a column, in characters
KINDS = "biufUS"  # NumPy's kinds of numbers and text
Value = str | int | float | None


@dataclass(frozen=True, eq=False)
class Column:
    """One value per window: labels of groups, or a continuous quantity if `labels` is None."""

    values: Array  # (N,) int64 indices into `labels`, -1 if missing; without labels (N,) float64, NaN if missing
    labels: tuple[Label, ...] | None = None

    @property
    def is_continuous(self) -> bool:
        return self.labels is None

    def __iter__(self) -> Iterator[Value]:
        """Yield the value of every window; missing labels are None."""
        values = self.values.tolist()
        return iter(values if self.labels is None else [None if n < 0 else self.labels[n] for n in values])


def is_column_name(name: object) -> bool:
    """Return whether a column can have this name, which is also the name of a file."""
    return (
        isinstance(name, str)
        and name not in RESERVED
        and 0 < len(name) <= MAX_NAME_LENGTH
        and name.isprintable()
        and name == name.strip()
        and not name.startswith(".")
        and not set(name) & set("/\\")
    )


def plain_values(values: Iterable[Any]) -> list[Value] | None:
    """Return a list with None for missing values; return None if numbers and text are mixed or no value is known."""
    plain: list[Value] = []
    for value in map(_plain, values):
        missing = is_empty(value) or (isinstance(value, float) and math.isinf(value))
        plain.append(None if missing else int(value) if isinstance(value, bool) else value)
    known = [value for value in plain if value is not None]
    if all(isinstance(value, str) for value in known) or all(isinstance(value, (int, float)) for value in known):
        return plain if known else None
    return None


def plain_columns(columns: Mapping[Any, Iterable[Any]]) -> dict[str, list[Value]]:
    """Return the entries of a table whose names and values `encode_columns` accepts."""
    named = {name: values for name, values in columns.items() if is_column_name(name)}
    return {name: plain for name, values in named.items() if (plain := plain_values(values)) is not None}


def is_empty(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT, NA or blank text."""
    try:
        return value is None or not bool(value == value) or (isinstance(value, str) and not value.strip())
    except (TypeError, ValueError):  # pandas.NA has no truth value
        return True


def encode(values: object, n_windows: int, what: str, names: object = None) -> tuple[Tensor, tuple[Label, ...]]:
    """Return integer codes (N,) of the values, and the labels (K,) that the codes index.

    Labels are sorted, or in the order of first appearance if numbers and text are mixed. `names` orders and names
    labels: values are names, or indices into them. Names that do not occur are dropped.
    """
    labels = as_list(values, what, n_windows)
    invalid = (n for n, label in enumerate(labels) if not isinstance(label, (str, int, float)) or is_empty(label))
    if (first := next(invalid, None)) is not None:
        wrong = shown(labels[first])
        raise UserError(f"{what}[{first}] is {wrong}; drop windows without a label or give them a number or text")
    unique = list(dict.fromkeys(labels))
    check_distinct(unique, f"the values of {what}")
    if names is None:
        is_mixed = len({isinstance(label, str) for label in unique}) > 1
        ordered = unique if is_mixed else sorted(unique)
        known: tuple[Label, ...] = tuple(ordered)
    else:
        ordered, known = _order_by_names(unique, names, what)
    code = {label: k for k, label in enumerate(ordered)}
    return torch.tensor([code[label] for label in labels], dtype=torch.int64), known


def label_names(values: object, n_windows: int, what: str, names: object = None) -> list[Label]:
    """Return the label of each window (N,); values that are indices into `names` are replaced by these names."""
    codes, known = encode(values, n_windows, what, names)
    return [known[code] for code in codes.tolist()]


def encode_session(values: object, n_windows: int) -> Tensor:
    """Return sessions (N,) int64: integers unchanged, other labels encoded."""
    labels = as_list(values, "session", n_windows)
    if labels and all(isinstance(label, int) and -(2**63) <= label < 2**63 for label in labels):
        return torch.tensor(labels, dtype=torch.int64)
    return encode(labels, n_windows, "session")[0]


def encode_columns(columns: object, n_windows: int) -> dict[str, Column]:
    """Return columns by name from a dict or a DataFrame."""
    if columns is None:
        return {}
    items = getattr(columns, "items", None)
    if not callable(items) or isinstance(columns, type):
        raise UserError(f"columns are {shown(columns)}; give a dict or a DataFrame with one value per window in each")
    encoded = {}
    for name, values in items():
        if not is_column_name(name):
            raise UserError(
                f"a column is called {shown(name)}; give it another name of at most {MAX_NAME_LENGTH} characters, "
                f"without / and \\; reserved names are {', '.join(RESERVED)}"
            )
        given = as_list(values, f"the column {shown(name)}", n_windows)
        if (plain := plain_values(given)) is None:
            what = f"the column {shown(name)} holds {shown(given)}"
            raise UserError(f"{what}; give numbers or text, not both, and at least one known value")
        known = {value for value in plain if value is not None}
        if any(isinstance(value, float) for value in known):
            encoded[name] = Column(np.array([np.nan if value is None else float(value) for value in plain]))
        else:
            labels = tuple(sorted(known))  # all numbers or all text
            code = {label: k for k, label in enumerate(labels)} | {None: -1}
            encoded[name] = Column(np.array([code[value] for value in plain], dtype=np.int64), labels)
    return encoded


def as_list(values: object, what: str, n_windows: int | None = None) -> list[Label]:
    """Return plain Python values from a list, an array, a Series, a tensor or a Column, one for each window."""
    if isinstance(values, (str, bytes, dict, set, frozenset)) or not isinstance(values, Iterable):
        raise UserError(f"{what} is {shown(values)}; give a list or an array with one axis")
    shape = getattr(values, "shape", None)
    if isinstance(shape, tuple) and len(shape) != 1:
        raise UserError(f"{what} has the shape {tuple(shape)}; give a list or an array with one axis")
    if isinstance(values, np.ndarray) and values.dtype.kind == "S":  # text written by C programs or HDF5
        values = np.char.decode(values, "utf-8", errors="replace")
    to_list = getattr(values, "tolist", None)  # much faster than iteration
    plain = [_plain(value) for value in (to_list() if callable(to_list) else values)]
    if n_windows is not None and len(plain) != n_windows:
        raise UserError(f"{what} has {len(plain)} entries but X has {n_windows} windows; give one entry per window")
    return plain


def _plain(value: Label) -> Label:
    """Convert scalars of NumPy and torch to Python, and strip text."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (np.generic, np.ndarray, Tensor)) and value.ndim == 0:
        return value.item()
    return value


def _order_by_names(unique: list[Label], names: object, what: str) -> tuple[list[Label], tuple[Label, ...]]:
    """Return the labels that occur, in the order of their names, and these names."""
    known = as_list(names, f"the names for {what}")
    check_distinct(known, f"the names for {what}")
    n = len(known)
    stray = [label for label in unique if not (isinstance(label, (int, float)) and label in range(n))]
    are_names = set(unique) <= set(known)
    if stray and are_names:
        ordered = [name for name in known if name in set(unique)]
        return ordered, tuple(ordered)
    if stray:
        raise UserError(
            f"{what} holds {shown(stray[0])}, which is neither one of the {n} names nor an index from 0 to "
            f"{n - 1}; give a name for every label"
        )
    if are_names and (other := [label for label in unique if known[int(label)] != label]):
        raise UserError(
            f"{what} holds {shown(other[0])}, which is one of the names {shown(known)} and also the index of "
            f"{shown(known[int(other[0])])}; give names that are text, or no names"
        )
    return sorted(unique), tuple(known[int(label)] for label in sorted(unique))


def check_distinct(values: list[Label], what: str, *, allow_blank: bool = False) -> None:
    """Raise UserError unless values are numbers or text without duplicates; 1 and "1" count as duplicates."""
    known: set[Label] = set()
    for value in values:
        if not isinstance(value, (str, int, float)) or (is_empty(value) and not (allow_blank and value == value)):
            raise UserError(f"{what} hold {shown(value)}; give numbers or text")
        if known & {value, str(value)}:
            raise UserError(f"{what} hold {shown(value)} twice, perhaps as number and as text; make them distinct")
        known |= {value, str(value)}


def without_unlabeled(raw: Raw) -> tuple[Raw, int]:
    """Return the windows that have a label, and the number of windows without one; keep all if y is unknown."""
    missing = find_unlabeled(raw)
    if not missing.any():
        return raw, 0
    if missing.all():
        raise UserError("no window has a label; y must give the class of the windows to train on")
    return select_windows(raw, np.flatnonzero(~missing)), int(missing.sum())


def find_unlabeled(raw: Raw) -> NDArray[np.bool_]:
    """Return whether each window (N,) has no label: None, NaN, blank text, or -1 if y has indices of class names."""
    n = int(raw.X.shape[0])
    if raw.y is None:
        return np.zeros(n, dtype=bool)
    labels = as_list(raw.y, "y", n)
    is_index = raw.classes is not None and -1 not in as_list(raw.classes, "the names for y")
    return np.array(
        [is_empty(label) or (is_index and isinstance(label, (int, float)) and label == -1) for label in labels]
    )


def select_windows(raw: Raw, rows: NDArray[np.int64]) -> Raw:
    """Return the windows with these indices (n,)."""

    def select(values: object, what: str) -> list[Label]:
        listed = as_list(values, what)
        return [listed[n] for n in rows.tolist()]

    items = getattr(raw.columns, "items", dict[str, object]().items)
    parts: dict[str, Any] = {"columns": {name: select(values, f"the column {name!r}") for name, values in items()}}
    for name in ("y", "subject", "session"):
        parts[name] = None if getattr(raw, name) is None else select(getattr(raw, name), name)
    return replace(raw, X=raw.X[rows], **parts)


def unlabeled_warning(missing: int, n_windows: int) -> str | None:
    return f"{missing} of {n_windows} windows have no label: they are left out of training" if missing else None
