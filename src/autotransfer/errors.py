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


def shown(value: object, most: int = 60) -> str:
    """Return the repr of a value on one line, shortened to `most` characters."""
    text = " ".join(_REPR.repr(value).split())
    return text if len(text) <= most else f"{text[:most]}…"


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
    scalar = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if scalar else value


def is_off(value: Any) -> bool:
    """Return whether a value switches a transform or an augmentation off; 0 does not, it is invalid."""
    return value is None or value is False or (isinstance(value, str) and value == "none")


def number(value: float) -> str:
    """Return a number in at most 6 digits, such as 0.3, 1 or 1e-05, or its repr if that would change it."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def check_choice(what: str, value: object, choices: Iterable[object]) -> None:
    """Raise unless `value` is one of `choices`."""
    options = list(choices)
    if value not in options:
        listed = ", ".join(repr(option) for option in options)
        raise UserError(f"unknown {what} {shown(value)}; choose from {listed}")


def suggest(name: str, choices: list[str]) -> str:
    """Return "did you mean ...?" if a choice is spelled like the name, otherwise "choose from ..."."""
    close = difflib.get_close_matches(name, choices, 1)
    return f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(choices)}"


_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "None": (type(None),),
    "list": (list,), "dict": (dict,),
}  # fmt: skip


def check_types(record: Any, **called: str) -> None:
    """Raise unless every field of a frozen dataclass has a type that its annotation names.

    NumPy numbers are converted to Python numbers, and integers in float fields to floats. called: names of fields in
    messages, if they differ
    """
    kind: Any = type(record)  # typed for mypy, which holds not every class for hashable
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
    """Return name, annotation, names of types and types of each field that is not a dataclass."""
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
        raise UserError(f"{name} is {shown(value)}; it must be a number in the range of float") from None


def check_positive(record: Any, *names: str, **called: str) -> None:
    """Raise unless these fields are positive finite numbers or None."""
    for name in names:
        value = getattr(record, name)
        if value is not None and not isinstance(value, str) and not (math.isfinite(value) and value > 0):
            raise UserError(f"{called.get(name, name)} is {shown(value)}; it must be a positive number")


def check_at_most(record: Any, **limits: int) -> None:
    """Raise if a field exceeds its limit; larger values are probably typos and would not fit into memory."""
    for name, most in limits.items():
        value = getattr(record, name)
        if value is not None and not isinstance(value, str) and value > most:
            raise UserError(f"{name} is {shown(value)}; it must be at most {most}")


def describe_system_error(error: OSError | MemoryError) -> str:
    """Return the reason of a system error in a few words, such as "out of memory" or "disk full (FILE)"."""
    if isinstance(error, MemoryError):
        return "out of memory"
    reason = error.strerror or str(error) or type(error).__name__
    return f"{reason} ({error.filename})" if error.filename and str(error.filename) not in reason else reason
