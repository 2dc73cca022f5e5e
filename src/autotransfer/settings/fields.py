"""Conversion of dataclasses to dictionaries of their fields."""

from __future__ import annotations

from typing import Any

from ..censoring import MethodOptions
from ..model.encoder import EncoderOptions
from ..schema import fields_of


def flat(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass with their values, which `asdict` would copy."""
    return {field.name: getattr(record, field.name) for field in fields_of(type(record))}


def picked(values: dict[str, Any], kind: type) -> dict[str, Any]:
    """Return the values that a dataclass has fields for, without None for options of a method or encoder."""
    optional = issubclass(kind, (MethodOptions, EncoderOptions))
    names = [field.name for field in fields_of(kind) if field.name in values and field.name != "options"]
    return {name: values[name] for name in names if values[name] is not None or not optional}
