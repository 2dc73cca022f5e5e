"""Values and reasons in error messages: on one line, and short however long they are."""

from __future__ import annotations

import reprlib


def show(value: object) -> str:
    """A value as Python writes it."""
    return " ".join(reprlib.repr(value).split())


def reason(error: BaseException) -> str:
    """An exception of another library's, with its type."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}" if text else type(error).__name__
