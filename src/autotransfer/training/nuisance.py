"""Nuisance: the groups of trials that z is not to tell apart: people, sessions, both, or values of any column."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, shown
from ..recordings import Recordings
from ..settings import nuisance_parts

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

QUANTILES = 8  # groups that a continuous column is cut into


def columns_of(recordings: Recordings) -> list[str]:
    """Return the names of all columns that can be a nuisance."""
    return ["subject", *(["session"] if recordings.session is not None else []), *recordings.columns]


def nuisance_groups(recordings: Recordings, nuisance: str, rows: Ints) -> Ints:
    """The nuisance's groups among these rows as 0, 1, ...: (N,), -1 at other rows and where a part is missing.

    Joined columns have a group for every combination that occurs. A continuous column is cut at quantiles of the rows.
    """
    codes = np.stack([_codes(recordings, name, rows) for name in nuisance_parts(nuisance)])  # (parts, N)
    known = rows[(codes[:, rows] >= 0).all(0)]
    groups = np.full(codes.shape[1], -1, dtype=np.int64)
    groups[known] = _numbered(codes[:, known])
    return groups


def most_groups(recordings: Recordings, nuisance: str) -> int:
    """No rows have more groups than this. All trials count, so that folds agree in it, whoever trains."""
    parts = [_values(recordings, name) for name in nuisance_parts(nuisance)]
    labels, joint = [values for values in parts if values.dtype.kind == "i"], 1
    if labels:
        codes: Ints = np.stack(labels)
        joint = int(_numbered(codes[:, (codes >= 0).all(0)]).max(initial=0)) + 1
    cuts = [min(QUANTILES, len(np.unique(values[~np.isnan(values)]))) for values in parts if values.dtype.kind == "f"]
    return joint * math.prod(cuts)


def check_nuisance(recordings: Recordings, nuisance: str, folds: Iterable[Ints]) -> None:
    """Refuse what is not there, and what has nothing to compare among the training rows of a fold."""
    for name in nuisance_parts(nuisance):
        _values(recordings, name)
    for rows in folds:
        n = int(nuisance_groups(recordings, nuisance, rows).max(initial=-1)) + 1
        if n < 2:
            others = [name for name in columns_of(recordings) if name not in nuisance_parts(nuisance)]
            raise UserError(
                f"the nuisance {shown(nuisance)} has {n} value{'s' * (n != 1)} among the training people of a fold, "
                f"and at least 2 are needed; choose from {', '.join(map(shown, others))}, or record more of it"
            )


def raw_values(recordings: Recordings, nuisance: str) -> Iterable[bytes]:
    """Everything that the groups depend on."""
    for name in nuisance_parts(nuisance):
        yield name.encode()
        yield _values(recordings, name).tobytes()


def _codes(recordings: Recordings, name: str, rows: Ints) -> Ints:
    """Return one column as whole numbers (N,), -1: missing."""
    values = _values(recordings, name)
    return values if values.dtype.kind == "i" else cut(values, rows)


def cut(values: Floats, rows: Ints) -> Ints:
    """Return the quantile group of the rows that each value (N,) falls into, -1: missing. Few distinct values are
    groups each."""
    known = values[rows][~np.isnan(values[rows])]
    edges = np.unique(known)[1:]
    if len(edges) >= QUANTILES:
        edges = np.quantile(known, np.arange(1, QUANTILES) / QUANTILES)
    groups = np.searchsorted(edges, values, side="right").astype(np.int64)
    groups[np.isnan(values)] = -1
    return groups


def _values(recordings: Recordings, name: str) -> NDArray[Any]:
    """A column (N,): whole numbers, -1: missing; or float64, NaN: missing."""
    if name == "subject":
        return recordings.subject.numpy()
    if name == "session" and recordings.session is not None:
        return np.unique(recordings.session.numpy(), return_inverse=True)[1].astype(np.int64)
    if name in recordings.columns:
        return recordings.columns[name].values
    raise UserError(
        f"the recordings have no column {shown(name)} to be the nuisance; there are "
        f"{', '.join(map(shown, columns_of(recordings)))} (a column has one number or text per trial)"
    )


def _numbered(codes: Ints) -> Ints:
    """Combinations (parts, n) as 0, 1, ... in their order: (n,)."""
    joint = np.unique(codes[0], return_inverse=True)[1].astype(np.int64)
    for part in codes[1:]:
        joint = joint * (part.max(initial=0) + 1) + part
        joint = np.unique(joint, return_inverse=True)[1].astype(np.int64)
    return joint
