"""Read committed tables of scores and compare pipelines on their common subjects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from autotransfer.report.statistics import PairedComparison, compare_paired

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
        for (*keys, last), score in zip(means.index, means, strict=True):
            inner = nested
            for key in keys:
                inner = inner.setdefault(key, {})
            inner[last] = float(score)
    return nested


def set_means(scores: Scores) -> dict[str, float]:
    """Return the mean over the subjects of each data set."""
    return {dataset: fmean(subjects.values()) for dataset, subjects in scores.items()}


def select_best(baselines: Mapping[str, Scores], names: Sequence[str]) -> Scores:
    """Return for each data set the scores of the pipeline with the highest mean."""
    best: Scores = {}
    for name in names:
        for dataset, subjects in baselines.get(name, {}).items():
            if dataset not in best or fmean(subjects.values()) > fmean(best[dataset].values()):
                best[dataset] = subjects
    return best


def compare_by_set(first: Scores, second: Scores) -> dict[str, PairedComparison]:
    """Compare two pipelines on each data set with common subjects."""
    compared = {dataset: compare_paired(subjects, second.get(dataset, {})) for dataset, subjects in first.items()}
    return {dataset: pair for dataset, pair in compared.items() if pair is not None}


def differences(first: Scores, second: Scores) -> Scores:
    """Return the score of the first pipeline minus the score of the second for every common subject."""
    return {dataset: pair.differences for dataset, pair in compare_by_set(first, second).items()}


def compare_pooled(differences: Mapping[str, Mapping[str, float]]) -> PairedComparison | None:
    """Test differences over the subjects of all data sets, each counted once; return None without subjects.

    differences: data set -> subject -> difference.
    """
    values = [value for subjects in differences.values() for value in subjects.values()]
    numbered = {str(i): value for i, value in enumerate(values)}
    return compare_paired(numbered, dict.fromkeys(numbered, 0.0))
