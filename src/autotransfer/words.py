"""Numbers and names in words."""

from __future__ import annotations

import math


def range_words(limits: tuple[float, ...] | None) -> str:
    """Of a difference."""
    return "–" if limits is None else f"{signed(limits[0])} to {signed(limits[1])}"


def score(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.3f}"


def signed(value: float) -> str:
    """With a true minus, and no sign on what rounds to zero."""
    text = f"{abs(value):.3f}"
    return text if float(text) == 0 else ("+" if value > 0 else "−") + text


def count(n: int, one: str, many: str | None = None) -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def printable(text: str) -> str:
    """Without what would command a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
