"""The exception for users' mistakes, the checks that raise it, and how values and errors are written in messages."""

from __future__ import annotations

import math
import reprlib
import sys
from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from types import FrameType
from typing import Any


class UserError(ValueError):
    """An input cannot work; the message says why, and what would."""


def shown(value: object, most: int = 60) -> str:
    """Write a value for a message, on one line and shortened: a stored one may be a page long."""
    text = " ".join(_REPR.repr(value).split())
    return text if len(text) <= most else f"{text[:most]}…"


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 1000
_REPR.maxlist = _REPR.maxtuple = _REPR.maxdict = 12


def one_line(error: BaseException) -> str:
    """Write another library's exception for a message, on one line and shortened."""
    text = ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))
    return text if len(text) <= 200 else f"{text[:200]}…"


def user_stacklevel() -> int:
    """Return the `stacklevel` with which a warning of the calling function points to the line of the user's program."""
    package, outermost, level = __name__.partition(".")[0], 0, 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        level += 1
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == package:
            outermost = level
        frame = frame.f_back
    return outermost + 1


def plain_value(value: Any) -> Any:
    """Return a scalar of NumPy as a number of Python, and anything else unchanged."""
    scalar = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if scalar else value


def is_off(value: Any) -> bool:
    """Tell whether a value switches a transform or an augmentation off. 0 does not: it is an invalid value."""
    return value is None or value is False or (isinstance(value, str) and value == "none")


def number(value: float) -> str:
    """Write a number in few digits, but different numbers differently: 0.3, 1, 1e-05."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


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


def check_types(record: Any, **called: str) -> None:
    """Raise unless every field of a frozen dataclass has a type that its annotation names.

    NumPy's numbers become Python's, and integers become floats where a float is meant: 1 and 1.0 are one value.
    called: other names of fields in messages.
    """
    kind: Any = type(record)  # to mypy, not every class can be hashed
    for field, annotation, names, kinds in _plain_fields(kind):
        value = getattr(record, field)
        if (plain := plain_value(value)) is not value:
            value = plain
            object.__setattr__(record, field, value)
        if not isinstance(value, kinds) or (isinstance(value, bool) and "bool" not in names):
            raise UserError(f"{called.get(field, field)} is {shown(value)}; it must be of type {annotation}")
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        if "float" in names and "int" not in names:
            object.__setattr__(record, field, _as_float(field, value))
        elif abs(value) >= 2**63:
            raise UserError(f"{called.get(field, field)} is {shown(value)}; it must be below 2**63")


@cache
def _plain_fields(kind: type) -> list[tuple[str, str, list[str], tuple[type, ...]]]:
    """Return name, annotation, the names in it and their types of each field that is not a record of its own."""
    plain = []
    for field in fields(kind):
        annotation = str(field.type)
        if annotation.startswith("Annotated["):
            annotation = annotation.removeprefix("Annotated[").partition(", ")[0]
        names = [name.partition("[")[0] for name in annotation.split(" | ")]
        if set(names) <= set(_KINDS):
            plain.append((field.name, annotation, names, tuple(kind for name in names for kind in _KINDS[name])))
    return plain


def _as_float(name: str, value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise UserError(f"{name} is {shown(value)}; it must be a number that a float can hold") from None


def check_positive(record: Any, *names: str, **called: str) -> None:
    """Raise unless these fields are positive finite numbers or None."""
    for name in names:
        value = getattr(record, name)
        if value is not None and not isinstance(value, str) and not (math.isfinite(value) and value > 0):
            raise UserError(f"{called.get(name, name)} is {shown(value)}; it must be a positive number")


def check_at_most(record: Any, **limits: int) -> None:
    """Raise where a field exceeds its limit: larger values are probably typos, and memory would not suffice."""
    for name, most in limits.items():
        value = getattr(record, name)
        if value is not None and not isinstance(value, str) and value > most:
            raise UserError(f"{name} is {shown(value)}; it must be at most {most}")


def describe_system_error(error: OSError | MemoryError) -> str:
    """Say in a few words what the machine lacks: room on the disk, memory, a permission."""
    if isinstance(error, MemoryError):
        return "out of memory"
    reason = error.strerror or str(error) or type(error).__name__
    return f"{reason} ({error.filename})" if error.filename and str(error.filename) not in reason else reason
