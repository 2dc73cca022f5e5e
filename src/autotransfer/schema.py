"""Conversion of frozen dataclasses to JSON and back. All fields are checked, because files may have been edited.

A type may define its own conversion: `to_dict()` returns JSON values, the class method `from_dict(values)` reads them.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np

from .errors import UserError, shown

T = TypeVar("T")
TOO_DEEP = "it is nested too deeply"
Counts = np.ndarray[Any, np.dtype[np.int64]]  # (C, C) confusion matrix

# Fields and type hints of a class are cached, because runs make thousands of settings and records.
fields_of: Callable[[Any], tuple[Field[Any], ...]] = cache(fields)
_hints: Callable[[Any], dict[str, Any]] = cache(typing.get_type_hints)


def to_json(record: Any) -> str:
    return json.dumps(to_values(record))


def parse_json(text: str | bytes) -> Any:
    """Return the values of JSON text; raise ValueError if it is invalid or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def from_json(kind: type[T], text: str | bytes) -> T:
    """Return a record from JSON text; raise UserError with the name of an invalid field."""
    try:
        values = parse_json(text)
    except (ValueError, TypeError):
        raise UserError("it is not JSON") from None
    try:
        record: T = from_values(kind, values)
    except RecursionError:
        raise UserError(TOO_DEEP) from None
    return record


def to_values(value: Any) -> Any:
    """Return a record, or a list or dict of records, as JSON values."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_values(getattr(value, field.name)) for field in fields_of(type(value))}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): to_values(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return list(value) if _only_floats(value) else [to_values(entry) for entry in value]
    return value


def from_values(kind: Any, value: Any, where: str = "") -> Any:
    """Return a value of a type from JSON values. where: path to the value, for messages."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _one_of(arguments, value, where)
    if hasattr(kind, "from_dict"):
        _require(isinstance(value, dict), where, value)
        return kind.from_dict(value)
    if is_dataclass(kind):
        return _record(kind, value, where)
    if origin is np.ndarray:
        return _counts(value, where)
    if origin in (list, tuple):
        _require(isinstance(value, list), where, value)
        if arguments[0] is float and _only_floats(value):
            return value if origin is list else tuple(value)
        entries = [from_values(arguments[0], entry, f"{where}[{n}]") for n, entry in enumerate(value)]
        return entries if origin is list else tuple(entries)
    if origin is dict:
        _require(isinstance(value, dict), where, value)
        return {key: from_values(arguments[1], entry, f"{where}.{key}") for key, entry in value.items()}
    if kind is Any:
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return float(value)
    _require(isinstance(value, kind) and (kind is bool or not isinstance(value, bool)), where, value)
    _require(not isinstance(value, int) or abs(value) < 2**63, where, value)
    return value


def _only_floats(values: Sequence[Any]) -> bool:
    """Return whether all values are floats, as in long learning curves, so that entries need no conversion."""
    return set(map(type, values)) <= {float}


def _one_of(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    others = [kind for kind in kinds if kind is not type(None)]
    for kind in others[:-1]:
        try:
            return from_values(kind, value, where)
        except UserError:
            continue
    return from_values(others[-1], value, where)


def _record(kind: Any, values: Any, where: str) -> Any:
    _require(isinstance(values, dict), where, values)
    hints, given = _hints(kind), {}
    for field in fields_of(kind):
        path = f"{where}.{field.name}".lstrip(".")
        if field.name in values:
            given[field.name] = from_values(hints[field.name], values[field.name], path)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise UserError(f"{path} is missing")
    unknown = sorted(set(values) - set(given))
    if unknown:
        raise UserError(f"unknown field {shown(unknown[0])}")
    return kind(**given)


def _counts(value: Any, where: str) -> Counts:
    """Return a matrix of counts (C, C) from nested lists."""
    square = isinstance(value, list) and all(isinstance(row, list) and len(row) == len(value) for row in value)
    _require(square and all(type(n) is int and 0 <= n < 2**63 for row in value for n in row), where, value)
    return np.array(value, dtype=np.int64).reshape(len(value), len(value))


def _require(right: bool, where: str, value: Any) -> None:
    if not right:
        place = where if where.isprintable() and len(where) <= 100 else shown(where, 100)  # keys may be damaged
        raise UserError(f"invalid value for {place or 'the record'}: {shown(value)}")
