"""Read committed tables of scores, collect all baselines, and compare pipelines on their common subjects.

A CSV in FOLDER/baselines has the columns dataset, baseline, adaptation, subject and score, and optionally seed and kind
("generic", the default, or "specialist": built for one signal). An empty subject stands for the mean over all subjects
of the data set. All pages include every CSV in this folder, so a new baseline needs only a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from autotransfer.report.statistics import compare_paired

from .csv_rows import read_table

Scores = dict[str, dict[str, float]]  # data set -> subject -> mean score over seeds

ENSEMBLE = "weighted ensemble"  # pipeline of AutoTransfer in the confirmations
RUN_COLUMNS = ["data", "adaptation", "version", "subject", "score", "first", "stages", "first_seconds", "seconds",
               "time", "seeds"]  # fmt: skip
OWN_CASES = ("zero_shot", "windows", "session", "all_windows", "before", "calibrated", "own")  # first words of cases
FIRST_RUN_BASELINES = ("shrinkage LDA", "tangent space, LDA")  # baselines that every run of version 0.1.0 fitted
LATER = ("statistics, intervals and speed", "trained as candidates", "average of")  # in names of baselines
LATER_RUNS = ("run default", "run cases")
USABLE = {  # adaptation -> adaptations of baselines that use the same or less data of the subject
    "zero-shot": ("zero-shot",),
    "transductive": ("transductive", "zero-shot"),
}


@dataclass(frozen=True)
class Baseline:
    """Scores of a baseline on one data set."""

    name: str
    kind: str  # "generic" or "specialist"
    source: str  # CSV of FOLDER/baselines, or "run" and the run that fitted it
    is_transductive: bool
    scores: Mapping[str, float]  # subject -> score, or "" -> mean over all subjects

    @property
    def mean(self) -> float:
        return fmean(self.scores.values())

    @property
    def is_later(self) -> bool:
        """Return whether the baseline, or one in an average, uses code of AutoTransfer after the confirmations."""
        return self.source in LATER_RUNS or any(part in self.name for part in LATER)

    def subtract_from(self, ours: Mapping[str, float]) -> dict[str, float]:
        """Return scores of AutoTransfer minus those of the baseline.

        If the baseline has a mean over subjects only, the mean is subtracted. Such differences are not paired, so they
        vary more between subjects.
        """
        if "" in self.scores:
            return {subject: value - self.scores[""] for subject, value in ours.items()}
        pair = compare_paired(ours, self.scores)
        return {} if pair is None else pair.differences


@cache
def collect_baselines(folder: Path, dataset: str, adaptation: str) -> tuple[Baseline, ...]:
    """Return every committed baseline of a data set that uses no more of a subject than `adaptation`.

    A baseline counts if it has a score for every subject of the data set, or a mean over all of them.
    """
    table = read_baseline_rows(folder)
    table = table[(table["dataset"] == dataset) & table["adaptation"].isin(USABLE[adaptation])]
    n_subjects = int(data_sheets(folder)["subjects"].to_dict()[dataset])
    found = []
    for (source, used, name, kind), rows in table.groupby(["source", "adaptation", "baseline", "kind"]):
        scores = dict(zip(rows["subject"], rows["score"], strict=True))
        if "" in scores or len(scores) == n_subjects:
            label = str(name)
            if used == "transductive" and "transductive" not in label:
                label += ", all windows"
            found.append(Baseline(label, str(kind), str(source), used == "transductive", scores))
    return tuple(found)


def select_best(baselines: Iterable[Baseline]) -> Baseline | None:
    """Return the baseline with the highest mean, which is selected on these scores; None if there is none."""
    return max(baselines, key=lambda baseline: baseline.mean, default=None)


@cache
def data_sheets(folder: Path) -> pd.DataFrame:
    """Return datasets.csv by data set."""
    return read_scores(folder, "datasets").set_index("dataset", drop=False)


@cache
def read_baseline_rows(folder: Path) -> pd.DataFrame:
    """Return the scores of all baselines, of the CSVs in FOLDER/baselines and of the runs."""
    paths = sorted((folder / "baselines").glob("*.csv"))
    tables = [read_scores(path.parent, path.stem).assign(source=path.stem) for path in paths]
    rows = pd.concat([*tables, *_rows_of_runs(folder)], ignore_index=True)
    rows["kind"] = rows["kind"].where(rows["kind"] == "specialist", "generic")
    keys = ["source", "adaptation", "baseline", "kind", "dataset", "subject"]
    return rows.groupby(keys)["score"].mean().reset_index()  # over seeds


def _rows_of_runs(folder: Path) -> Iterator[pd.DataFrame]:
    """Yield the baselines that runs fitted on their own folds."""
    names = {"pipeline": "baseline"}
    first = read_scores(folder / "confirmation", "zero_shot").rename(columns=names)
    yield first[first["baseline"].isin(FIRST_RUN_BASELINES)].assign(adaptation="zero-shot", source="run confirmation")
    second = read_scores(folder / "confirmation2", "zero_shot").rename(columns=names)
    yield second[second["baseline"] != ENSEMBLE].assign(adaptation="zero-shot", source="run confirmation2")
    runs = read_scores(folder, "default_runs")
    baselines = [name for name in runs if name not in RUN_COLUMNS]
    keys = ["data", "adaptation", "subject"]
    # A run has only the scores of baselines for its signal.
    long = runs[[*keys, *baselines]].melt(keys, var_name="baseline", value_name="score")
    long["score"] = pd.to_numeric(long["score"], errors="coerce")
    yield long.dropna(subset="score").rename(columns={"data": "dataset"}).assign(source="run default")
    stages = read_scores(folder, "cases").rename(columns={"data": "dataset", "case": "baseline"})
    is_own = stages["baseline"].str.split().str[0].isin(OWN_CASES)
    yield stages[~is_own].assign(adaptation="zero-shot", source="run cases")


def read_scores(folder: Path, name: str) -> pd.DataFrame:
    """Read a CSV of the folder, with names as text."""
    return read_table(folder / f"{name}.csv")


def scores_by(table: pd.DataFrame, *columns: str) -> dict[str, Any]:
    """Return scores, averaged over seeds, as nested dictionaries whose keys are values of these columns."""
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


def differences(first: Scores, second: Scores) -> Scores:
    """Return first minus second for every common subject."""
    pairs = {dataset: compare_paired(subjects, second.get(dataset, {})) for dataset, subjects in first.items()}
    return {dataset: pair.differences for dataset, pair in pairs.items() if pair is not None}
