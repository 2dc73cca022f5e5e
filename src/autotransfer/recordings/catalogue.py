"""The list of data sets that can be loaded by name, as lines to print."""

from __future__ import annotations

from collections.abc import Iterator

from . import RECIPES, SETS

WIDTH = 18


def catalogue() -> Iterator[str]:
    """Embedded sets, MOABB's and the paper's: description, source, terms and layout of each."""
    for name, known in SETS.items():
        yield from _entry(name, known.description, known.obtained)
    yield from _entry(
        "moabb:NAME",
        "any MOABB dataset, with the default paradigm for its type or another one: moabb:NAME/PARADIGM",
        "downloaded by MOABB when first used: pip install moabb; terms: see each dataset",
        "options: moabb:PhysionetMI/LeftRightImagery?subjects=1-20&resample=128",
    )
    for prefix, recipe in RECIPES.items():
        yield from _entry(
            f"{prefix}FOLDER",
            recipe.description,
            f"from: {recipe.source}",
            f"terms: {recipe.terms}",
            f"expects: {recipe.layout}",
        )


def _entry(name: str, *lines: str) -> Iterator[str]:
    for n, line in enumerate(lines):
        yield f"{'' if n else name:<{WIDTH}} {line}"
