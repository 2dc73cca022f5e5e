"""Tables of docs/results.md on baselines of the field, from field.csv (`benchmarks.field`) and shipped.csv."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from autotransfer.report.wording import score

from .evidence import Scores, best_baselines, differences, pairs, scores_by, set_means_of, table_of
from .inference import ahead_on, over_people
from .markdown import markdown
from .shipped import FIXED

OURS = "AutoTransfer"
SIMPLE = "the best baseline of the run"
ADAPTATIONS = ("zero-shot", "transductive")

Columns = dict[str, Scores]  # by name; ours first


def measured(folder: Path) -> dict[str, Columns]:
    """Return, by adaptation, the scores of AutoTransfer, of the best baseline of each run and of the field's baselines.

    A data set counts if it has a run, and a baseline with a score for every subject of the run.
    """
    shipped, field = table_of(folder, "shipped"), table_of(folder, "field")
    return {adaptation: _columns(shipped, field, adaptation) for adaptation in ADAPTATIONS}


def _columns(shipped: pd.DataFrame, field: pd.DataFrame, adaptation: str) -> Columns:
    runs = {
        str(data): people.set_index("subject")
        for data, people in shipped[shipped["adaptation"] == adaptation].groupby("data")
    }
    columns = ["baseline", "set", "person"]
    field = field[(field["adaptation"] == adaptation) & field["set"].isin(list(runs))].sort_values(columns)
    baselines: Columns = {
        baseline: {data: people for data, people in scores.items() if set(people) >= set(runs[data].index)}
        for baseline, scores in scores_by(field, *columns).items()
    }
    sets = {data for scores in baselines.values() for data in scores}
    ours = {data: _by_person(runs[data]["score"]) for data in sorted(sets)}
    simple: Scores = {}
    for data in sorted(sets):
        numbers = runs[data].drop(columns=[name for name in FIXED if name in runs[data]])
        numbers = numbers.apply(pd.to_numeric, errors="coerce").dropna(axis=1)
        if numbers.shape[1]:
            simple[data] = _by_person(numbers[numbers.mean().idxmax()])
    return {OURS: ours, SIMPLE: simple} | {baseline: scores for baseline, scores in baselines.items() if scores}


def _by_person(column: pd.Series[float]) -> dict[str, float]:
    return {str(person): float(value) for person, value in zip(column.index, column, strict=True)}


def ahead(folder: Path) -> str:
    """Return the baselines whose mean on a data set is above that of AutoTransfer."""
    rows = []
    for adaptation, columns in measured(folder).items():
        for baseline, scores in columns.items():
            if baseline == OURS:
                continue
            for dataset, pair in pairs(scores, columns[OURS]).items():
                if pair.mean > 0:
                    gap = over_people({dataset: pair.differences})
                    means = (set_means_of(both)[dataset] for both in (scores, columns[OURS]))
                    rows.append((-pair.mean, [dataset, adaptation, baseline, *map(score, means), str(gap)]))
    heads = ["data set", "adaptation", "baseline", "its mean", OURS, "ahead by (95 % interval over subjects)"]
    return markdown(heads, [cells for _, cells in sorted(rows)]) if rows else "None.\n"


def gaps(folder: Path) -> str:
    """Return AutoTransfer minus each baseline, and minus the best of each set, which is picked on these scores."""
    rows: dict[str, list[str]] = {}
    for place, columns in enumerate(measured(folder).values()):
        baselines = {name: scores for name, scores in columns.items() if name != OURS}
        best = best_baselines(baselines, list(baselines))
        for name, scores in {"the best of all, set by set": best, **baselines}.items():
            if ahead_by := differences(columns[OURS], scores):
                cells = [ahead_on(ahead_by), str(over_people(ahead_by))]
                rows.setdefault(name, ["–"] * 4)[2 * place : 2 * place + 2] = cells
    heads = [f"{head}, {adaptation}" for adaptation in ADAPTATIONS for head in ("sets ahead", "over subjects")]
    return markdown([f"{OURS} minus", *heads], [[name, *cells] for name, cells in rows.items()])


PARTS = {"field_ahead": ahead, "field_differences": gaps}
