"""Conversion of dataclasses to dictionaries of their fields."""

from __future__ import annotations

from typing import Any

from ..censoring import MethodOptions
from ..model.encoder import EncoderOptions
from ..schema import fields_of


def field_values(record: Any) -> dict[str, Any]:
    """Return the values of a dataclass by field, without the copies that `asdict` makes."""
    return {field.name: getattr(record, field.name) for field in fields_of(type(record))}


def select_values(values: dict[str, Any], cls: type) -> dict[str, Any]:
    """Return the values of keywords that are fields of a dataclass, for methods and encoders without None."""
    skips_none = issubclass(cls, (MethodOptions, EncoderOptions))
    names = [field.name for field in fields_of(cls) if field.name in values and field.name != "options"]
    return {name: values[name] for name in names if values[name] is not None or not skips_none}
