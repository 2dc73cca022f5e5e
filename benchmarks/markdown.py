"""Tables of docs/results.md as text, and what the pipelines are called there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotransfer.censoring import CENSORS
from autotransfer.report.statistics import Paired
from autotransfer.report.wording import score, signed
from autotransfer.words import range_words

from .evidence import pool

METHODS = {name: kind.label for name, kind in CENSORS.items()}
NAMES = {
    "none": "Baseline", **METHODS, "uncensored": "Best uncensored", "published": "AutoTransfer, published",
    "nested": "AutoTransfer, nested",
    "nested_uncensored": "the same without any censor", "two_se": "AutoTransfer, 2 SE",
    "nested_two_se": "AutoTransfer, nested, 2 SE", "chosen": "AutoTransfer, published",
    "baseline": "Baseline", "best_uncensored": "Best uncensored", "lda": "shrinkage LDA",
    "riemann": "pyRiemann",
    "riemann_recentred": "pyRiemann, re-centred (transductive)", "riemann_running": "pyRiemann, online",
    "riemann_running_file_order": "pyRiemann, online, order of the file",
    "riemann_templates": "pyRiemann, templates",
    "riemann_templates_recentred": "pyRiemann, templates, re-centred (transductive)",
    "riemann_templates_running": "pyRiemann, templates, online",
    "riemann_templates_running_file_order": "pyRiemann, templates, online, order of the file",
    "ensemble": "AutoTransfer, ensemble",
    "log_euclidean": "pyRiemann, log-Euclidean",
    "log_euclidean_recentred": "pyRiemann, log-Euclidean, re-centred (transductive)",
    "log_power": "LDA on log power", "hudgins": "LDA on Hudgins' features",
    "hudgins_by_person": "LDA on Hudgins' features, z-scored by person (transductive)",
    "hudgins_ar": "LDA on Hudgins' features and autoregression",
    "hudgins_ar_by_person": "LDA on Hudgins' features and autoregression, z-scored by person (transductive)",
    "eegnet": "EEGNet in skorch", "dann": "DANN (transductive)", "coral": "DeepCORAL (transductive)",
    "dann_skada": "SKADA's DANN, which does not adapt", "coral_skada": "SKADA's DeepCORAL (transductive)",
}  # fmt: skip
NOTHING = "Not measured yet.\n"


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def best_in_bold(values: Sequence[float | None]) -> list[str]:
    """Scores as cells of a row, '–' where there is none; the best in bold, whoever it is, and all that round alike."""
    cells = [score(value) for value in values]
    best = max((cell for cell, value in zip(cells, values, strict=True) if value is not None), default=None)
    return [f"**{cell}**" if cell == best else cell for cell in cells]


def with_interval(pair: Paired | None) -> str:
    """A mean difference and its 95 % interval as a cell."""
    return "–" if pair is None else f"{signed(pair.mean)} ({range_words(pair.interval)})"


def by_set_table(columns: Mapping[str, Mapping[str, float]], people: Mapping[str, int]) -> str:
    """Column -> data set -> mean: a row for each set with its people, the best of it in bold; then the mean over sets.
    Only for columns that may be subtracted: the same people and windows."""
    rows = [
        [dataset, str(people[dataset]), *best_in_bold([means.get(dataset) for means in columns.values()])]
        for dataset in sorted(people)
    ]
    whole = [sum(means.values()) / len(means) if set(means) >= set(people) else None for means in columns.values()]
    return markdown(["", "people", *columns], [*rows, ["mean over sets", "", *best_in_bold(whole)]])


def differences_table(heads: list[str], columns: list[dict[str, Paired]]) -> str:
    """Differences by data set and over all subjects, with their intervals."""
    datasets = sorted({dataset for column in columns for dataset in column})
    if not datasets:
        return NOTHING
    rows = [[dataset, *(with_interval(column.get(dataset)) for column in columns)] for dataset in datasets]
    return markdown(heads, [*rows, ["**all subjects**", *(with_interval(pool(column)) for column in columns)]])
