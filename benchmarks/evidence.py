"""Read committed tables of scores and compare pipelines on their common subjects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from autotransfer.report.statistics import Paired, paired, spread

from .csv_rows import read_table

Scores = dict[str, dict[str, float]]  # data set -> subject -> mean score over seeds


def read_scores(folder: Path, name: str) -> pd.DataFrame:
    """Read a CSV of the folder, with names as text."""
    return read_table(folder / f"{name}.csv")


def scores_by(table: pd.DataFrame, *columns: str) -> dict[str, Any]:
    """Return scores, averaged over seeds, as nested dictionaries by these columns."""
    nested: dict[str, Any] = {}
    if len(table):
        means = table.groupby(list(columns), sort=False)["score"].mean()
        for (*places, last), score in zip(means.index, means, strict=True):
            inner = nested
            for place in places:
                inner = inner.setdefault(place, {})
            inner[last] = float(score)
    return nested


def set_means(scores: Scores) -> dict[str, float]:
    """Return the mean over the subjects of each data set."""
    return {dataset: spread(list(subjects.values())).mean for dataset, subjects in scores.items()}


def select_best(baselines: Mapping[str, Scores], names: Sequence[str]) -> Scores:
    """Return for each data set the scores of the pipeline with the highest mean."""
    best: Scores = {}
    for name in names:
        for dataset, subjects in baselines.get(name, {}).items():
            if dataset not in best or spread(list(subjects.values())).mean > spread(list(best[dataset].values())).mean:
                best[dataset] = subjects
    return best


def pairs(first: Scores, second: Scores) -> dict[str, Paired]:
    """Compare two pipelines on each data set with common subjects."""
    compared = {dataset: paired(subjects, second.get(dataset, {})) for dataset, subjects in first.items()}
    return {dataset: pair for dataset, pair in compared.items() if pair is not None}


def differences(first: Scores, second: Scores) -> Scores:
    """Return first minus second for every common subject."""
    return {dataset: pair.differences for dataset, pair in pairs(first, second).items()}


def compare_pooled(differences: Mapping[str, Mapping[str, float]]) -> Paired | None:
    """Compare the subjects of all data sets, each counted once; None if there are none.

    differences: data set -> subject -> difference.
    """
    values = [value for subjects in differences.values() for value in subjects.values()]
    numbered = {str(place): value for place, value in enumerate(values)}
    return paired(numbered, dict.fromkeys(numbered, 0.0))
