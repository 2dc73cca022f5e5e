"""Numbers and names in words."""

from __future__ import annotations

import math


def range_words(limits: tuple[float, ...] | None) -> str:
    """Write an interval of a difference."""
    return "–" if limits is None else f"{signed(limits[0])} to {signed(limits[1])}"


def score(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.3f}".replace("-", "−")


def signed(value: float) -> str:
    """Write a number with its sign and a true minus, without a sign if it rounds to zero."""
    text = f"{abs(value):.3f}"
    return text if float(text) == 0 else ("+" if value > 0 else "−") + text


def count(n: int, one: str, many: str | None = None) -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def printable(text: str) -> str:
    """Replace characters that would control a terminal by question marks."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def shorten(text: str, most: int) -> str:
    """Write text on one line of at most this many characters."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def clock(seconds: float) -> str:
    """Write a duration as 1:02:03 or 2:03."""
    if not math.isfinite(seconds):
        return "?"
    seconds = max(0.0, seconds)
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def fits_words(done: int, total: int, failed: int = 0) -> str:
    """Write how far fits are, such as '8 of 120 fits done'."""
    return f"{done} of {total} fit{'s' * (total != 1)} done" + (f", {failed} failed" if failed else "")
