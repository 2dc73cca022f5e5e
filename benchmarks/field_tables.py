"""Compare AutoTransfer with published baselines in docs/results.md, from field.csv and default_runs.csv."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from autotransfer.words import score

from .default_runs import RUN_COLUMNS
from .evidence import Scores, compare_by_set, differences, read_scores, scores_by, select_best, set_means
from .inference import format_sets_ahead, mean_over_subjects
from .markdown import markdown

OURS = "AutoTransfer"
RUN_BASELINE = "the best baseline of the run"
ADAPTATIONS = ("zero-shot", "transductive")

Columns = dict[str, Scores]  # by name; ours first


def read_columns(folder: Path) -> dict[str, Columns]:
    """Return, by adaptation, the scores of AutoTransfer, of the best baseline of each run and of published baselines.

    A data set counts if it has a run, and a baseline with a score for every subject of the run.
    """
    runs, field = read_scores(folder, "default_runs"), read_scores(folder, "field")
    return {adaptation: _columns(runs, field, adaptation) for adaptation in ADAPTATIONS}


def _columns(table: pd.DataFrame, field: pd.DataFrame, adaptation: str) -> Columns:
    runs = {
        str(data): scores.set_index("subject")
        for data, scores in table[table["adaptation"] == adaptation].groupby("data")
    }
    columns = ["baseline", "dataset", "subject"]
    field = field[(field["adaptation"] == adaptation) & field["dataset"].isin(list(runs))].sort_values(columns)
    baselines: Columns = {
        baseline: {data: subjects for data, subjects in scores.items() if set(subjects) >= set(runs[data].index)}
        for baseline, scores in scores_by(field, *columns).items()
    }
    sets = {data for scores in baselines.values() for data in scores}
    ours = {data: _by_subject(runs[data]["score"]) for data in sorted(sets)}
    simple: Scores = {}
    for data in sorted(sets):
        numbers = runs[data].drop(columns=[name for name in RUN_COLUMNS if name in runs[data]])
        numbers = numbers.apply(pd.to_numeric, errors="coerce").dropna(axis=1)
        if numbers.shape[1]:
            simple[data] = _by_subject(numbers[numbers.mean().idxmax()])
    return {OURS: ours, RUN_BASELINE: simple} | {baseline: scores for baseline, scores in baselines.items() if scores}


def _by_subject(column: pd.Series[float]) -> dict[str, float]:
    return {str(subject): float(value) for subject, value in zip(column.index, column, strict=True)}


def ahead(folder: Path) -> str:
    """Return the baselines whose mean on a data set is above that of AutoTransfer."""
    rows = []
    for adaptation, columns in read_columns(folder).items():
        for baseline, scores in columns.items():
            if baseline == OURS:
                continue
            for dataset, pair in compare_by_set(scores, columns[OURS]).items():
                if pair.mean > 0:
                    gap = mean_over_subjects({dataset: pair.differences})
                    means = (set_means(both)[dataset] for both in (scores, columns[OURS]))
                    rows.append((-pair.mean, [dataset, adaptation, baseline, *map(score, means), str(gap)]))
    heads = ["data set", "adaptation", "baseline", "its mean", OURS, "difference (95 % interval over subjects)"]
    return markdown(heads, [cells for _, cells in sorted(rows)]) if rows else "None.\n"


def gaps(folder: Path) -> str:
    """Return AutoTransfer minus each baseline, and minus the best baseline of each set."""
    rows: dict[str, list[str]] = {}
    for place, columns in enumerate(read_columns(folder).values()):
        baselines = {name: scores for name, scores in columns.items() if name != OURS}
        best = select_best(baselines, list(baselines))
        for name, scores in {"the best baseline of each set": best, **baselines}.items():
            if ahead_by := differences(columns[OURS], scores):
                cells = [format_sets_ahead(ahead_by), str(mean_over_subjects(ahead_by))]
                rows.setdefault(name, ["–"] * 4)[2 * place : 2 * place + 2] = cells
    heads = [f"{head}, {adaptation}" for adaptation in ADAPTATIONS for head in ("sets ahead", "over subjects")]
    return markdown([f"{OURS} minus", *heads], [[name, *cells] for name, cells in rows.items()])


PARTS = {"field_ahead": ahead, "field_differences": gaps}
