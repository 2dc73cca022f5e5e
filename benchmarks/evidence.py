"""What the committed CSVs say: scores by pipeline, data set and subject, and how two pipelines compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from autotransfer.report.statistics import Paired, paired, spread

from .csv_rows import read_table

ENSEMBLE = "_ensemble"  # how the pipelines of ensembles end in scores.csv

Scores = dict[str, dict[str, float]]  # data set -> subject -> mean score over seeds


@dataclass(frozen=True)
class Evidence:
    """What the CSVs say; the control apart."""

    ours: dict[str, Scores]  # pipeline -> its scores; "none" is the baseline
    ensembles: dict[str, Scores]  # the same for ensembles, under the names that choice.json has
    control: dict[str, Scores]
    peers: dict[str, Scores]
    settings: dict[str, dict[str, str]]  # pipeline -> data set -> its setting, where it has one for everybody
    nested: dict[str, dict[str, str]]  # data set -> subject -> the setting that was chosen without them
    leakage: pd.DataFrame
    results: pd.DataFrame

    @property
    def sets(self) -> list[str]:
        return sorted({dataset for scores in (*self.ours.values(), *self.peers.values()) for dataset in scores})


def table_of(folder: Path, name: str) -> pd.DataFrame:
    """A CSV of the folder, with names as text; where there is none, results.made says so on the page."""
    return read_table(folder / f"{name}.csv")


def read(folder: Path) -> Evidence:
    """What is missing is empty."""

    def table(name: str) -> pd.DataFrame:
        return _in_todays_words(table_of(folder, name) if (folder / f"{name}.csv").exists() else pd.DataFrame())

    scores = table("scores")
    true, control = (scores[~scores["control"]], scores[scores["control"]]) if len(scores) else (scores, scores)
    pipelines = scores_by(true, "pipeline", "dataset", "subject")
    single = {name: values for name, values in pipelines.items() if not name.endswith(ENSEMBLE)}
    ensembles = {name.removesuffix(ENSEMBLE): pipelines[name] for name in pipelines if name.endswith(ENSEMBLE)}
    controls, peers = (scores_by(part, "pipeline", "dataset", "subject") for part in (control, table("peers")))
    leakage, results = table("leakage"), _with_twins(table("results"))
    return Evidence(single, ensembles, controls, peers, _settings(true), _nested(true), leakage, results)


# ---- CSVs of the first version ---------------------------------------------------------------------------------------

PIPELINES = {"careful": "two_se", "nested_careful": "nested_two_se"}
WORDS = {
    "standardise channel": "standardise train", "standardise running": "standardise online",
    "standardise subject": "standardise transductive", "align running": "align online",
    "align subject": "align transductive", "levels": "append_scale", "power": "log_power",
    "keep last": "checkpoint last", "balanced batches": "batches balanced",
}  # fmt: skip


def _in_todays_words(table: pd.DataFrame) -> pd.DataFrame:
    """Names of pipelines and settings as this version writes them."""
    if "setting" in table:
        names = {name: _todays_name(name) for name in table["setting"].unique()}
        table = table.assign(setting=table["setting"].map(names))
    if "pipeline" in table:
        old = table["pipeline"].str.removesuffix(ENSEMBLE)
        ends = table["pipeline"].str.endswith(ENSEMBLE).map({True: ENSEMBLE, False: ""})
        table = table.assign(pipeline=old.replace(PIPELINES) + ends)
    return table


def _todays_name(name: str) -> str:
    penalty, *rest = name.split(" with ", 1)
    traits = [", ".join(WORDS.get(trait, trait) for trait in part.split(", ")) for part in rest]
    return " with ".join([penalty, *traits])


def _with_twins(results: pd.DataFrame) -> pd.DataFrame:
    """Results of the first version have no columns `checkpoint`, `uncensored` and `shuffled`: names tell them there."""
    if not len(results) or "uncensored" in results:
        return results
    return results.assign(
        checkpoint=results["setting"].str.contains("checkpoint last").map({True: "last", False: "best"}),
        uncensored=results["setting"].map(_uncensored),
        shuffled=results["setting"].map(_shuffled),
    )


def _uncensored(name: str) -> str:
    penalty, *traits = name.split(" with ", 1)
    return name if penalty == "baseline" else f"baseline with {', '.join([*traits, 'batches balanced'])}"


def _shuffled(name: str) -> str:
    penalty, *traits = name.split(" with ", 1)
    shuffled = penalty if penalty == "baseline" else f"{penalty.removesuffix(' shuffled')} shuffled"
    return " with ".join([shuffled, *traits])


# ---- what they say ---------------------------------------------------------------------------------------------------


def twins(results: pd.DataFrame, kind: str) -> dict[str, str]:
    """Name of a setting -> name of its twin; kind: "uncensored", the same without its penalty, or "shuffled"."""
    return dict(zip(results["setting"], results[kind], strict=True))


def _nested(table: pd.DataFrame) -> dict[str, dict[str, str]]:
    settings: dict[str, dict[str, str]] = {}
    if len(table):
        for row in table[table["pipeline"] == "nested"].to_dict("records"):
            settings.setdefault(row["dataset"], {})[row["subject"]] = row["setting"]
    return settings


def _settings(table: pd.DataFrame) -> dict[str, dict[str, str]]:
    settings: dict[str, dict[str, str]] = {}
    if len(table):
        for (pipeline, dataset), names in table.groupby(["pipeline", "dataset"], sort=False)["setting"]:
            if names.nunique() == 1:
                settings.setdefault(str(pipeline), {})[str(dataset)] = str(names.iloc[0])
    return settings


def both_sides(results: pd.DataFrame, of: str) -> pd.DataFrame:
    """Mean `of` (test or validation) score over seeds, by data set, control, setting (the index) and subject: every
    training has two held-out people, and each of them tests what the other one validated."""
    other = {"test": "validation", "validation": "test"}[of]
    names = ["dataset", "control", "setting", "subject", "score"]
    sides = ((f"{of}_subject", f"{of}_score"), (f"{other}_subject", f"swapped_{of}_score"))
    both = pd.concat([results[["dataset", "control", "setting", *side]].set_axis(names, axis=1) for side in sides])
    return both.astype({"subject": str, "score": float}).groupby(names[:4])["score"].mean().reset_index("subject")


def scores_by(table: pd.DataFrame, *columns: str) -> dict[str, Any]:
    """Nested dictionaries by these columns, in the order of the table; scores that share them, as of several seeds,
    are averaged."""
    nested: dict[str, Any] = {}
    if len(table):
        means = table.groupby(list(columns), sort=False)["score"].mean()
        for (*places, last), score in zip(means.index, means, strict=True):
            inner = nested
            for place in places:
                inner = inner.setdefault(place, {})
            inner[last] = float(score)
    return nested


def set_means_of(scores: Scores) -> dict[str, float]:
    """Mean over the people of each data set."""
    return {dataset: spread(list(people.values())).mean for dataset, people in scores.items()}


def pairs(first: Scores, second: Scores) -> dict[str, Paired]:
    """By data set, where both have subjects in common."""
    compared = {dataset: paired(people, second.get(dataset, {})) for dataset, people in first.items()}
    return {dataset: pair for dataset, pair in compared.items() if pair is not None}


def differences(first: Scores, second: Scores) -> Scores:
    """first minus second of everybody whom both have."""
    return {dataset: pair.differences for dataset, pair in pairs(first, second).items()}


def pool(compared: dict[str, Paired]) -> Paired | None:
    return pooled({name: pair.differences for name, pair in compared.items()})


def pooled(differences: Mapping[str, Mapping[str, float]]) -> Paired | None:
    """The people of all sets together, each counting once; None without any. differences: set -> subject -> value."""
    values = [value for people in differences.values() for value in people.values()]
    numbered = {str(place): value for place, value in enumerate(values)}
    return paired(numbered, dict.fromkeys(numbered, 0.0))
