"""The table of results as the page needs it: complete, in text, with the scores of each stage by subject."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pandas as pd

from .escaping import plain
from .summary import Summary

T = TypeVar("T")
Scores = dict[str, dict[str, float]]  # setting -> subject -> mean score

COLUMNS = (
    "stage", "setting", "method", "mode", "strength", "estimator", "length_scale", "regularization", "standardise",
    "fold", "validation_subject", "test_subject", "seed", "best_epoch", "epochs", "validation_score", "test_score",
    "swapped_validation_score", "seconds", "failure",
)  # fmt: skip
NUMBERS = (
    "strength", "fold", "seed", "best_epoch", "epochs", "validation_score", "test_score", "swapped_validation_score",
    "seconds",
)  # fmt: skip
TEXTS = ("stage", "setting", "method", "mode", "validation_subject", "test_subject")


def settled(summary: Summary) -> Summary:
    """The same run with every column, subjects as text, and without claims if it is unfinished.

    Three columns are added: `failed`, `in_folds` for the jobs that stage two counts, and `in_search` for those of stage
    one. A finished job is not trained again, so the first fold of each candidate stands under "search", and a plain
    network may stand under "prepare" altogether.
    """
    table = summary.results.reindex(columns=pd.Index(COLUMNS)).astype(object).reset_index(drop=True)
    for column in NUMBERS:
        table[column] = pd.to_numeric(table[column], errors="coerce")
    for column in TEXTS:
        table[column] = [plain(value) for value in table[column]]
    table["failed"] = pd.Series([not is_empty(value) for value in table["failure"]], dtype=bool)
    table["in_folds"] = _counted_in_folds(table, (summary.choice or {}).get("shortlist") or [])
    table["in_search"] = _counted_in_search(table)
    if not summary.complete:  # whatever was chosen so far may be chosen differently in the end
        return replace(summary, results=table, choice=None, leakage={}, latent={}, confusion={})
    run = replace(summary, results=table)
    return _without_twin(run) if (summary.choice or {}).get("baseline_won") else run


def _counted_in_search(table: pd.DataFrame) -> pd.Series[bool]:
    """Jobs of stage one, and those of its split that the search for a preparation had done before."""
    search = table["stage"] == "search"
    own: pd.Series[bool] = search | (
        (table["stage"] == "prepare") & table["in_folds"] & table["fold"].isin(table["fold"][search])
        & table["seed"].isin(table["seed"][search])
    )  # fmt: skip
    return own


def _counted_in_folds(table: pd.DataFrame, shortlist: Iterable[object]) -> pd.Series[bool]:
    stages = list(table["stage"])
    jobs = list(zip(table["setting"], table["fold"], table["seed"], strict=True))
    trained = {job for job, stage in zip(jobs, stages, strict=True) if stage == "folds"}
    candidates = {setting for setting, *_ in trained} | {plain(name) for name in shortlist}
    own = [
        stage == "folds" or (job[0] in candidates and job not in trained)
        for job, stage in zip(jobs, stages, strict=True)
    ]
    return pd.Series(own, dtype=bool)


def _without_twin(run: Summary) -> Summary:
    """Where the baseline was chosen, "chosen" and "baseline" are one model: it is drawn once."""

    def first(sides: dict[str, T]) -> dict[str, T]:
        return {side: value for side, value in sides.items() if side != "chosen"}

    return replace(run, leakage=first(run.leakage), latent=first(run.latent), confusion=first(run.confusion))


def is_empty(value: object) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def tried_once(results: pd.DataFrame) -> pd.DataFrame:
    """Jobs of stage one that ended well."""
    return results[results["in_search"] & ~results["failed"]].dropna(subset=["validation_score"])


def tried_everywhere(results: pd.DataFrame) -> pd.DataFrame:
    """Jobs of stage two, failed ones too."""
    return results[results["in_folds"]]


def records(results: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as dicts."""
    return [{str(key): value for key, value in row.items()} for row in results.to_dict("records")]


def chosen_name(summary: Summary) -> str | None:
    name = ((summary.choice or {}).get("chosen") or {}).get("name")
    return None if name is None else plain(name)


def shortlist(summary: Summary) -> set[str]:
    """Names of the settings that went on to stage two."""
    given = (summary.choice or {}).get("shortlist")
    return {plain(name) for name in given} if given else set(tried_everywhere(summary.results)["setting"])


def scores_on_test(results: pd.DataFrame) -> Scores:
    """Score on every test subject, mean over seeds."""
    rows = tried_everywhere(results)
    return _means(rows[~rows["failed"]], (("test_subject", "test_score"),))


def scores_on_validation(results: pd.DataFrame) -> Scores:
    """What the choice rests on: the score on every subject that validated, in its own fold or, because both held-out
    subjects are absent from training, as the exchanged twin. A failed job counts as 0."""
    rows = tried_everywhere(results).copy()
    for column in ("validation_score", "swapped_validation_score"):
        rows.loc[rows["failed"], column] = 0.0
    return _means(rows, (("validation_subject", "validation_score"), ("test_subject", "swapped_validation_score")))


def _means(rows: pd.DataFrame, pairs: tuple[tuple[str, str], ...]) -> Scores:
    """Mean by setting and subject over all (subject, score) columns, without what is missing."""
    values: dict[str, dict[str, list[float]]] = {}
    for subject_column, score_column in pairs:
        for setting, subject, value in zip(rows["setting"], rows[subject_column], rows[score_column], strict=True):
            if math.isfinite(value):
                values.setdefault(setting, {}).setdefault(subject, []).append(float(value))
    return {name: {s: sum(v) / len(v) for s, v in own.items()} for name, own in values.items()}


def numbers(scores: Mapping[Any, Any] | None) -> dict[str, float]:
    """{subject or setting: number} with text keys, without what is missing or not finite."""
    pairs = ((plain(k), math.nan if v is None else float(v)) for k, v in (scores or {}).items())
    return {key: value for key, value in pairs if math.isfinite(value)}


def chance(summary: Summary) -> float | None:
    """Balanced accuracy of guessing."""
    classes = summary.data.get("classes")
    return 1 / len(classes) if classes else None
