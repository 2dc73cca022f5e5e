"""Formatting of model families, percentages, p values and durations."""

from __future__ import annotations

from ..model.encoders import ENCODERS
from ..preprocessing.represent import REPRESENTATIONS
from ..words import score


def family_words(family: str) -> str:
    """Return the name of a model family for a sentence. The name of a user's encoder is not changed."""
    registered = REPRESENTATIONS.get(family) or ENCODERS.get(family)
    return (registered and registered.display_name) or family


def share(value: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * value:.0f}\u00a0%"


def probability(p: float | None, *, equals: bool = False) -> str:
    if p is None:
        return "–"
    if p < 0.001:
        return "<\u00a0.001"
    return f"=\u00a0{score(p)}" if equals else score(p)


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left} min" if hours else f"{minutes} min"
