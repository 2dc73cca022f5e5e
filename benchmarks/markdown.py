"""Format tables of docs/results.md and docs/leaderboard.md as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotransfer.report.statistics import PairedComparison
from autotransfer.words import range_words, score, signed


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table with these headings and cells."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def bold_best(values: Sequence[float | None]) -> list[str]:
    """Return the scores of a row as cells: bold for the highest rounded score, '–' for a missing one."""
    cells = [score(value) for value in values]
    best = max((cell for cell, value in zip(cells, values, strict=True) if value is not None), default=None)
    return [f"**{cell}**" if cell == best else cell for cell in cells]


def format_interval(pair: PairedComparison | None) -> str:
    """Return a mean difference and its 95 % interval as a cell."""
    return "–" if pair is None else f"{signed(pair.mean)} ({range_words(pair.interval)})"


def by_set_table(columns: Mapping[str, Mapping[str, float]], n_subjects: Mapping[str, int]) -> str:
    """Return a row of means for each data set, and a last row with the mean over data sets.

    columns: heading -> data set -> mean. Columns must have the same subjects and windows, because readers compare
    them. n_subjects: data set -> number of subjects.
    """
    rows = [
        [dataset, str(n_subjects[dataset]), *bold_best([means.get(dataset) for means in columns.values()])]
        for dataset in sorted(n_subjects)
    ]
    complete = [means if set(means) >= set(n_subjects) else None for means in columns.values()]
    whole = [sum(means.values()) / len(means) if means else None for means in complete]
    return markdown(["", "subjects", *columns], [*rows, ["mean over sets", "", *bold_best(whole)]])
