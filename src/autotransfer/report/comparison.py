"""Who is compared with whom: the rows of the results figure, each a test score per subject."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pandas as pd

from ..settings import METHODS
from .escaping import plain
from .summary import Summary
from .wording import METHOD_NAMES

T = TypeVar("T")

COLUMNS = (
    "stage", "setting", "method", "mode", "strength", "estimator", "length_scale", "regularization", "standardise",
    "fold", "validation_subject", "test_subject", "seed", "best_epoch", "epochs", "validation_score", "test_score",
    "seconds", "failure",
)  # fmt: skip
_NUMBERS = ("strength", "fold", "seed", "best_epoch", "epochs", "validation_score", "test_score", "seconds")


@dataclass(frozen=True)
class Contender:
    """One row of the results figure."""

    key: str  # "none", a method, "published", "nested" or "nested_full": decides the colour
    label: str
    setting: str | None  # None: it differs between subjects
    scores: dict[str, float]  # test score by subject, mean over seeds

    @property
    def is_autotransfer(self) -> bool:
        return self.key in ("published", "nested", "nested_full")


def settled(summary: Summary) -> Summary:
    """The same run with a table that has every column, subjects as text, and no claims if it is unfinished."""
    table = summary.results.reindex(columns=pd.Index(COLUMNS)).astype(object)
    for column in _NUMBERS:
        table[column] = pd.to_numeric(table[column], errors="coerce")
    for column in ("stage", "setting", "method", "mode", "validation_subject", "test_subject"):
        table[column] = [plain(value) for value in table[column]]
    table = table.reset_index(drop=True)
    if summary.complete:
        run = replace(summary, results=table)
        return _without_twin(run) if (summary.choice or {}).get("baseline_won") else run
    # Whatever was chosen so far may be chosen differently in the end.
    return replace(summary, results=table, choice=None, leakage={}, latent={}, confusion={})


def _without_twin(summary: Summary) -> Summary:
    """Where the baseline was chosen, "chosen" and "baseline" are one model: it is drawn once."""

    def first(sides: dict[str, T]) -> dict[str, T]:
        return {side: value for side, value in sides.items() if side != "chosen"}

    return replace(
        summary, leakage=first(summary.leakage), latent=first(summary.latent), confusion=first(summary.confusion)
    )


def succeeded(results: pd.DataFrame, stage: str) -> pd.DataFrame:
    """Rows of a stage whose training ended well."""
    return results[(results["stage"] == stage) & results["failure"].map(is_empty).astype(bool)]


def is_empty(value: object) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def records(results: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as dicts."""
    return [{str(key): value for key, value in row.items()} for row in results.to_dict("records")]


def chosen_name(summary: Summary) -> str | None:
    name = ((summary.choice or {}).get("chosen") or {}).get("name")
    return None if name is None else plain(name)


def shortlist(summary: Summary) -> set[str]:
    """Names of the settings that went on to stage two."""
    given = (summary.choice or {}).get("shortlist")
    return {plain(name) for name in given} if given else set(succeeded(summary.results, "folds")["setting"])


def by_subject(results: pd.DataFrame, setting: str) -> dict[str, float]:
    """Test score of a setting for every test subject, mean over seeds."""
    rows = succeeded(results, "folds")
    rows = rows[rows["setting"] == setting].dropna(subset=["test_score"])
    return {str(k): float(v) for k, v in rows.groupby("test_subject", sort=False)["test_score"].mean().items()}


def validation_table(summary: Summary) -> pd.DataFrame:
    """Per setting of stage two: method, q25 and mean of its validation scores. Test scores are not in it.

    What the choice was made from goes before what can be computed here.
    """
    columns = ["setting", "method", "validation_score"]
    rows = succeeded(summary.results, "folds")[columns].dropna()
    grouped = rows.groupby("setting", sort=False)
    table = pd.DataFrame(
        {
            "method": grouped["method"].first(),
            "q25": grouped["validation_score"].quantile(0.25),
            "mean": grouped["validation_score"].mean(),
        }
    )
    for column, key in (("q25", "validation_q25"), ("mean", "validation_mean")):
        given = numbers((summary.choice or {}).get(key))
        table[column] = [given.get(str(name), value) for name, value in table[column].items()]
    return table.sort_values(["q25", "mean"], ascending=False, kind="stable")


def best_settings(validation: pd.DataFrame) -> dict[str, str]:
    """Method -> the setting that stands for it, by validation alone. validation: as from `validation_table`."""
    return {str(row["method"]): str(name) for name, row in reversed(list(validation.iterrows()))}


def contenders(summary: Summary) -> list[Contender]:
    """Baseline, the methods in their usual order, then AutoTransfer as published and as estimated honestly."""
    best = best_settings(validation_table(summary))
    order = ["none", *METHODS, *(m for m in best if m not in METHODS and m != "none")]
    rows = [
        Contender(m, METHOD_NAMES.get(m, m), best[m], by_subject(summary.results, best[m])) for m in order if m in best
    ]
    choice = summary.choice or {}
    tests = choice.get("test_scores") or {}
    if rows and rows[0].key == "none" and tests.get("baseline"):
        rows[0] = replace(rows[0], scores=numbers(tests["baseline"]))
    elif tests.get("baseline"):
        rows.insert(0, Contender("none", METHOD_NAMES["none"], "baseline", numbers(tests["baseline"])))
    published = numbers(tests.get("chosen"))
    rows.append(Contender("published", "AutoTransfer, published", chosen_name(summary), published))
    rows.append(Contender("nested", "AutoTransfer, nested", None, numbers(choice.get("nested_test_scores"))))
    full = numbers(choice.get("nested_full_test_scores"))
    rows.append(Contender("nested_full", "AutoTransfer, nested full", None, full))
    return [row for row in rows if row.scores]


def find(rows: list[Contender], *keys: str) -> Contender | None:
    """The first of `keys` that is there."""
    return next((row for key in keys for row in rows if row.key == key), None)


def honest(rows: list[Contender]) -> Contender | None:
    """The estimate that the headline rests on: the strictest there is."""
    return find(rows, "nested_full", "nested", "published")


def subject_order(rows: list[Contender]) -> list[str]:
    """Test subjects from worst to best under the baseline; those it was not tested on come last."""
    base = find(rows, "none")
    first = base.scores if base else {}
    others = dict.fromkeys(s for row in rows for s in row.scores if s not in first)
    return sorted(first, key=lambda s: first[s]) + list(others)


def numbers(scores: Mapping[Any, Any] | None) -> dict[str, float]:
    """{subject or setting: number} with text keys, without what is missing or not finite."""
    pairs = ((plain(k), math.nan if v is None else float(v)) for k, v in (scores or {}).items())
    return {key: value for key, value in pairs if math.isfinite(value)}


def chance(summary: Summary) -> float | None:
    """Balanced accuracy of guessing."""
    classes = summary.data.get("classes")
    return 1 / len(classes) if classes else None
