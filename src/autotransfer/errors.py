"""The one exception for mistakes of the user's: one line with the value and the remedy. Troubles of the machine."""

from __future__ import annotations

from collections.abc import Iterable


class UserError(ValueError):
    """Something handed to us cannot work; the message says what, and what would."""


def check_choice(what: str, value: object, choices: Iterable[object]) -> None:
    """Raise unless `value` is one of `choices`; the message gives both."""
    options = list(choices)
    if value not in options:
        listed = ", ".join(repr(option) for option in options)
        raise UserError(f"unknown {what} {value!r}; choose from {listed}")


def machine_trouble(error: OSError | MemoryError) -> str:
    """What the machine lacks, in a few words: room on the disk, memory, a permission."""
    if isinstance(error, MemoryError):
        return "out of memory"
    reason = error.strerror or str(error) or type(error).__name__
    return f"{reason} ({error.filename})" if error.filename and str(error.filename) not in reason else reason
