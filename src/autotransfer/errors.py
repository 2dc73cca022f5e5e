"""The one exception for mistakes of the user's: one line with the value and the remedy. Troubles of the machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any


class UserError(ValueError):
    """Something handed to us cannot work; the message says what, and what would."""


def shown(value: object, most: int = 60) -> str:
    """A value as a message can hold it: a stored one may be a page long."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"


def check_choice(what: str, value: object, choices: Iterable[object]) -> None:
    """Raise unless `value` is one of `choices`; the message gives both."""
    options = list(choices)
    if value not in options:
        listed = ", ".join(repr(option) for option in options)
        raise UserError(f"unknown {what} {shown(value)}; choose from {listed}")


_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "None": (type(None),),
    "list": (list,), "dict": (dict,),
}  # fmt: skip


def check_types(record: Any) -> None:
    """Every field of a frozen dataclass is of a type that its annotation names; numpy's numbers become Python's."""
    for field in fields(record):
        value = getattr(record, field.name)
        if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
            value = value.item()
            object.__setattr__(record, field.name, value)
        names = [name.partition("[")[0] for name in str(field.type).split(" | ")]
        right = any(isinstance(value, _KINDS[name]) for name in names)
        if not right or (isinstance(value, bool) and "bool" not in names):
            raise UserError(f"{field.name} is {shown(value)}; it must be of type {field.type}")


def machine_trouble(error: OSError | MemoryError) -> str:
    """What the machine lacks, in a few words: room on the disk, memory, a permission."""
    if isinstance(error, MemoryError):
        return "out of memory"
    reason = error.strerror or str(error) or type(error).__name__
    return f"{reason} ({error.filename})" if error.filename and str(error.filename) not in reason else reason
