"""The part of docs/results.md that compares a calibrated model with networks that learn from the same labelled windows,
from FOLDER/fine_tuning.csv (`python -m benchmarks.fine_tuning`) and FOLDER/average/playback.csv."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from autotransfer.person.calibration import LABELS

from .drawing import curves, figure
from .evidence import Scores, pairs, pool, scores_by, table_of
from .markdown import NOTHING, best_in_bold, markdown, with_interval
from .played import by_set, delivered, played

NAMES = {"fine_tuned": "fine-tuned", "head_tuned": "head alone", "scratch": "from scratch"}
CASES = [str(number) for number in LABELS]


def tuned(folder: Path) -> str:
    """Calibrated with a few labels of each class, and EEGNet tuned on the same windows, on people that both have."""
    table = table_of(folder, "fine_tuning").astype({"labels": str})
    by_pipeline = scores_by(table, "pipeline", "labels", "dataset", "subject")
    theirs: dict[str, dict[str, Scores]] = {  # pipeline -> number of labels -> scores
        name: {case: by_pipeline.get(name, {}).get(case, {}) for case in CASES} for name in ("before", *NAMES)
    }
    calibrated = _calibrated(folder)
    means = {case: _means(calibrated[case], {name: theirs[name][case] for name in NAMES}) for case in CASES}
    sets = sorted({dataset for by_case in means.values() for dataset in by_case})
    if not sets:
        return NOTHING
    rows = [[dataset, *(_cell(means[case].get(dataset)) for case in CASES)] for dataset in sets]
    rows += [_differences(f"calibrated minus {label}", calibrated, theirs[name]) for name, label in NAMES.items()]
    for name in ("fine_tuned", "head_tuned"):
        rows.append(_differences(f"{NAMES[name]} minus the network as it was", theirs[name], theirs["before"]))
    heads = [" / ".join(("calibrated", *NAMES.values())), *(f"{case} label{'s' * (case != '1')}" for case in CASES)]
    return _drawn(means, sets, folder) + markdown(heads, rows)


def _drawn(means: dict[str, dict[str, dict[str, float]]], sets: list[str], folder: Path) -> str:
    """A figure of the sets whose people can give every number of labels, where there are any."""
    whole = [dataset for dataset in sets if all(len(means[case].get(dataset, {})) == 1 + len(NAMES) for case in CASES)]
    if not whole:
        return ""
    lines = {
        name: [float(np.mean([means[case][dataset][name] for dataset in whole])) for case in CASES]
        for name in ("calibrated", NAMES["fine_tuned"], NAMES["scratch"])
    }
    drawing = curves(list(LABELS), lines, "labelled windows of each class", "balanced accuracy, mean over sets")
    return figure(folder, "tuned", drawing, "Score by the number of labels, beside tuned networks") + "\n"


def _calibrated(folder: Path) -> dict[str, Scores]:
    """By the number of labels, as people get it."""
    got = {dataset: delivered(scores) for dataset, scores in played(folder).items()}
    return {case: by_set(got, "calibrated", case) for case in CASES}


def _means(ours: Scores, theirs: dict[str, Scores]) -> dict[str, dict[str, float]]:
    """Data set -> who -> mean over the people that everybody with scores of the set has."""
    means: dict[str, dict[str, float]] = {}
    for dataset, calibrated in ours.items():
        tables = {NAMES[name]: scores[dataset] for name, scores in theirs.items() if dataset in scores}
        people = [person for person in calibrated if all(person in table for table in tables.values())]
        if tables and people:
            every = {"calibrated": calibrated, **tables}
            means[dataset] = {who: float(np.mean([table[p] for p in people])) for who, table in every.items()}
    return means


def _cell(means: dict[str, float] | None) -> str:
    if means is None:
        return "–"
    return " / ".join(best_in_bold([means.get(label) for label in ("calibrated", *NAMES.values())]))


def _differences(label: str, first: dict[str, Scores], second: dict[str, Scores]) -> list[str]:
    """A row of what they differ by over all people, by the number of labels."""
    return [f"**{label}**, all people", *(with_interval(pool(pairs(first[case], second[case]))) for case in CASES)]
