"""Format tables of docs/results.md and docs/leaderboard.md as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from autotransfer.words import score


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table with these headings and cells."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def bold_best(values: Sequence[float | None]) -> list[str]:
    """Return the scores of a row as cells: bold for the highest rounded score, '–' for a missing one."""
    cells = [score(value) for value in values]
    best = max((cell for cell, value in zip(cells, values, strict=True) if value is not None), default=None)
    return [f"**{cell}**" if cell == best else cell for cell in cells]


def join_words(parts: Sequence[str]) -> str:
    """Return 'a, b and c'."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
