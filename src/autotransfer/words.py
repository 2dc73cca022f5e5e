"""Formatting of numbers and names for messages and reports."""

from __future__ import annotations

import math


def range_words(limits: tuple[float, ...] | None) -> str:
    """Return the interval of a difference of scores in words, such as '+.010 to +.050'."""
    return "–" if limits is None else f"{signed(limits[0])} to {signed(limits[1])}"


def score(value: float | None) -> str:
    """Return a score with three decimals and no zero before the point, such as '.788'; '–' without a finite score."""
    if value is None or not math.isfinite(value):
        return "–"
    return ("−" if value < 0 else "") + f"{abs(value):.3f}".removeprefix("0")


def signed(value: float) -> str:
    """Return a difference of scores with its sign, such as '+.010'; without a sign if it rounds to zero."""
    text = score(abs(value))
    return text if float(text) == 0 else ("+" if value > 0 else "−") + text


def count(n: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun, such as '1 window' or '1,200 windows'."""
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def printable(text: str) -> str:
    """Return text with question marks instead of control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def shorten(text: str, limit: int) -> str:
    """Return text on one line of at most `limit` characters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def clock(seconds: float) -> str:
    """Return a duration as 1:02:03 or 2:03."""
    if not math.isfinite(seconds):
        return "?"
    seconds = max(0.0, seconds)
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def fits_words(done: int, total: int, failed: int = 0) -> str:
    """Return the progress of fits in words, such as '8 of 120 fits done'."""
    return f"{done} of {total} fit{'s' * (total != 1)} done" + (f", {failed} failed" if failed else "")
