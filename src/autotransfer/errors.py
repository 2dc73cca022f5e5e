"""The exception for invalid inputs, checks that raise it, and functions that format values for messages."""

from __future__ import annotations

import difflib
import math
import reprlib
import sys
from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from types import FrameType
from typing import Any


class UserError(ValueError):
    """Error of an invalid input. The message gives the value and what to do."""


def shown(value: object, limit: int = 60) -> str:
    """Return the repr of a value on one line, shortened to `limit` characters."""
    text = " ".join(_REPR.repr(value).split())
    return text if len(text) <= limit else f"{text[:limit]}…"


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 1000
_REPR.maxlist = _REPR.maxtuple = _REPR.maxdict = 12


def one_line(error: BaseException) -> str:
    """Return type and message of an exception on one line, shortened."""
    text = ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))
    return text if len(text) <= 200 else f"{text[:200]}…"


def user_stacklevel() -> int:
    """Return the `stacklevel` with which a warning of the calling function points to the user's line of code."""
    package, outermost, level = __name__.partition(".")[0], 0, 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        level += 1
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == package:
            outermost = level
        frame = frame.f_back
    return outermost + 1


def plain_value(value: Any) -> Any:
    """Return a NumPy scalar as a Python number, and anything else unchanged."""
    is_scalar = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if is_scalar else value


def is_off(value: Any) -> bool:
    """Return whether a value disables a transform or an augmentation: None, False or "none", but not 0."""
    return value is None or value is False or (isinstance(value, str) and value == "none")


def format_number(value: float) -> str:
    """Return a number as the shortest exact text, such as 0.3, 1 or 1e-05."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Raise unless `value` is one of `choices`. name: name of the value in the message."""
    options = list(choices)
    if value not in options:
        raise UserError(f"unknown {name} {shown(value)}; choose from {', '.join(map(repr, options))}")


def suggest(name: str, choices: list[str]) -> str:
    """Return "did you mean ...?" if a choice is spelled like the name, otherwise "choose from ..."."""
    close = difflib.get_close_matches(name, choices, 1)
    return f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(choices)}"


_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "None": (type(None),),
    "list": (list,), "dict": (dict,),
}  # fmt: skip


def check_types(record: Any, **labels: str) -> None:
    """Raise unless every field of a frozen dataclass has a type that its annotation names.

    NumPy numbers are converted to Python numbers, and integers in float fields to floats. labels: names for fields in
    messages; default: the names of the fields
    """
    cls: Any = type(record)  # Any, because mypy does not regard every class as hashable
    for field, annotation, names, types in _plain_fields(cls):
        value = getattr(record, field)
        if (number := plain_value(value)) is not value:
            value = number
            object.__setattr__(record, field, value)
        if not isinstance(value, types) or (isinstance(value, bool) and "bool" not in names):
            raise UserError(f"{labels.get(field, field)} is {shown(value)}; it must be of type {annotation}")
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        if "float" in names and "int" not in names:
            object.__setattr__(record, field, _as_float(field, value))
        elif abs(value) >= 2**63:
            raise UserError(f"{labels.get(field, field)} is {shown(value)}; it must be below 2**63")


@cache
def _plain_fields(cls: type) -> list[tuple[str, str, list[str], tuple[type, ...]]]:
    """Return (name, annotation, names of types, types) of each field with only built-in types."""
    plain_fields = []
    for field in fields(cls):
        annotation = str(field.type)
        if annotation.startswith("Annotated["):
            annotation = annotation.removeprefix("Annotated[").partition(", ")[0]
        names = [name.partition("[")[0] for name in annotation.split(" | ")]
        if set(names) <= set(_TYPES):
            types = tuple(type_ for name in names for type_ in _TYPES[name])
            plain_fields.append((field.name, annotation, names, types))
    return plain_fields


def _as_float(name: str, value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise UserError(f"{name} is {shown(value)}; it must be a number in the range of float") from None


def check_positive(record: Any, *names: str, **labels: str) -> None:
    """Raise unless these fields are positive finite numbers or None. labels: as in `check_types`."""
    for name in names:
        value = getattr(record, name)
        if value is not None and not isinstance(value, str) and not (math.isfinite(value) and value > 0):
            raise UserError(f"{labels.get(name, name)} is {shown(value)}; it must be a positive number")


def check_at_most(record: Any, **limits: int) -> None:
    """Raise if a field exceeds its limit; larger values are probably typos and would not fit into memory."""
    for name, limit in limits.items():
        value = getattr(record, name)
        if value is not None and not isinstance(value, str) and value > limit:
            raise UserError(f"{name} is {shown(value)}; it must be at most {limit}")


def describe_system_error(error: OSError | MemoryError) -> str:
    """Return the reason of a system error, such as "out of memory" or "No space left on device (FILE)"."""
    if isinstance(error, MemoryError):
        return "out of memory"
    reason = error.strerror or str(error) or type(error).__name__
    return f"{reason} ({error.filename})" if error.filename and str(error.filename) not in reason else reason
