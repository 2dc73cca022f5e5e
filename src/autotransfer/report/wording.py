"""Names of model families, numbers and durations in words."""

from __future__ import annotations

from ..model.encoders import ENCODERS
from ..preprocessing.represent import REPRESENTATIONS
from ..words import count as count
from ..words import range_words
from ..words import score as score
from ..words import signed as signed
from .statistics import Paired


def family_words(family: str) -> str:
    """Return the name of a model family inside a sentence; a user's encoder has its own name."""
    registered = REPRESENTATIONS.get(family) or ENCODERS.get(family)
    return (registered and registered.display_name) or family


def share(value: float) -> str:
    """Return a percentage."""
    return f"{100 * value:.0f}\u00a0%"


def interval(pair: Paired) -> str:
    return range_words(pair.interval)


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
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{minutes} min"
