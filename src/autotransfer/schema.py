"""Conversion of frozen dataclasses to and from JSON. All fields are checked, because files may have been edited.

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
Counts = np.ndarray[Any, np.dtype[np.int64]]  # confusion matrix (C, C)

# Fields and type hints of a class are cached, because runs make thousands of settings and records.
fields_of: Callable[[Any], tuple[Field[Any], ...]] = cache(fields)
_type_hints: Callable[[Any], dict[str, Any]] = cache(typing.get_type_hints)


def to_json(record: Any) -> str:
    return json.dumps(to_values(record))


def parse_json(text: str | bytes) -> Any:
    """Return the values of JSON text; raise ValueError if it is invalid or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def from_json(cls: type[T], text: str | bytes) -> T:
    """Return a record of a class from JSON text; raise UserError with the name of an invalid field."""
    try:
        values = parse_json(text)
    except (ValueError, TypeError):
        raise UserError("it is not JSON") from None
    try:
        record: T = from_values(cls, values)
    except RecursionError:
        raise UserError(TOO_DEEP) from None
    return record


def to_values(value: Any) -> Any:
    """Return the JSON values of a record, or of a list or dict of records."""
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


def from_values(type_: Any, value: Any, path: str = "") -> Any:
    """Return a value of a type from JSON values. path: path to the value, for messages."""
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if origin in (types.UnionType, typing.Union):
        return _parse_union(arguments, value, path)
    if hasattr(type_, "from_dict"):
        _require(isinstance(value, dict), path, value)
        return type_.from_dict(value)
    if is_dataclass(type_):
        return _parse_record(type_, value, path)
    if origin is np.ndarray:
        return _parse_counts(value, path)
    if origin in (list, tuple):
        _require(isinstance(value, list), path, value)
        if arguments[0] is float and _only_floats(value):
            return value if origin is list else tuple(value)
        entries = [from_values(arguments[0], entry, f"{path}[{n}]") for n, entry in enumerate(value)]
        return entries if origin is list else tuple(entries)
    if origin is dict:
        _require(isinstance(value, dict), path, value)
        return {key: from_values(arguments[1], entry, f"{path}.{key}") for key, entry in value.items()}
    if type_ is Any:
        return value
    if type_ is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return float(value)
    _require(isinstance(value, type_) and (type_ is bool or not isinstance(value, bool)), path, value)
    _require(not isinstance(value, int) or abs(value) < 2**63, path, value)
    return value


def _only_floats(values: Sequence[Any]) -> bool:
    """Return whether all values are floats, as in long learning curves, so that entries need no conversion."""
    return set(map(type, values)) <= {float}


def _parse_union(union: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and type(None) in union:
        return None
    *first_types, last_type = [type_ for type_ in union if type_ is not type(None)]
    for type_ in first_types:
        try:
            return from_values(type_, value, path)
        except UserError:
            continue
    return from_values(last_type, value, path)


def _parse_record(cls: Any, values: Any, path: str) -> Any:
    _require(isinstance(values, dict), path, values)
    hints, arguments = _type_hints(cls), {}
    for field in fields_of(cls):
        field_path = f"{path}.{field.name}".lstrip(".")
        if field.name in values:
            arguments[field.name] = from_values(hints[field.name], values[field.name], field_path)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise UserError(f"{field_path} is missing")
    unknown = sorted(set(values) - set(arguments))
    if unknown:
        raise UserError(f"unknown field {shown(unknown[0])}")
    return cls(**arguments)


def _parse_counts(value: Any, path: str) -> Counts:
    """Return a matrix of counts (C, C) from nested lists."""
    is_square = isinstance(value, list) and all(isinstance(row, list) and len(row) == len(value) for row in value)
    _require(is_square and all(type(n) is int and 0 <= n < 2**63 for row in value for n in row), path, value)
    return np.array(value, dtype=np.int64).reshape(len(value), len(value))


def _require(is_valid: bool, path: str, value: Any) -> None:
    if not is_valid:
        name = path if path.isprintable() and len(path) <= 100 else shown(path, 100)  # keys may be damaged
        raise UserError(f"invalid value for {name or 'the record'}: {shown(value)}")
