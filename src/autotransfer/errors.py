"""The one exception for mistakes of the user's: it names the value and the remedy in one line."""

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
