"""Tables of docs/pretraining.md, from pretraining.csv (benchmarks.pretraining), and from based.csv and first_answer.csv
(benchmarks.first_answer with and without --base)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from autotransfer.report.wording import score, signed

from .evidence import table_of
from .inference import mean_of
from .markdown import best_in_bold, markdown

EVERYBODY = "all"  # of the target's people who are not held out train
NUMBERS = ("2", "5", "10", EVERYBODY)
FAMILIES = {"emg": "armband sets", "eeg": "EEG sets"}  # first letters of the names of sets
# Columns of the table by target: what stands alone, then what stands beside closed forms of the target.
MODELS = {
    "closed": "closed forms", "closed+base": "closed forms, base",
    "closed+random_base": "closed forms, untrained base", "closed+network": "closed forms, network",
    "closed+network+base": "closed forms, network, base",
    "closed+network+base+tuned_base": "closed forms, network, base and fine-tuned base",
}  # fmt: skip
ALONE = {
    "base": "base, frozen", "random_base": "untrained, frozen", "tuned_base": "base, fine-tuned",
    "scratch_base": "the same from scratch", "network": "network of the target", "joint": "a head for each study",
    "pooled": "gestures pooled by name",
}  # fmt: skip
DIFFERENCES = (
    ("base", "random_base"), ("tuned_base", "scratch_base"), ("closed+base", "closed"),
    ("closed+network+base", "closed+network"), ("closed+network+base+tuned_base", "closed+network+base"),
    ("closed+pooled", "closed+network"), ("closed+joint", "closed+network"),
)  # fmt: skip
USED = {  # cases of benchmarks.first_answer
    "zero-shot": "zero_shot", "in a session": "session", "all windows at once": "all_windows",
    "1 label": "calibrated 1", "5 labels": "calibrated 5",
}  # fmt: skip


def means_of(folder: Path) -> pd.DataFrame:
    """A row for each target, adaptation, number of people and seed, a column for each model."""
    table = table_of(folder, "pretraining").astype({"people": str, "score": float})
    return table.pivot_table(index=["target", "adaptation", "people", "seed"], columns="model", values="score")


def of_seeds(means: pd.DataFrame, adaptation: str, people: str) -> pd.DataFrame:
    """(target, model): the mean over seeds."""
    levels = means.index.get_level_values("adaptation"), means.index.get_level_values("people")
    return means[(levels[0] == adaptation) & (levels[1] == people)].groupby("target").mean()


def by_target(folder: Path, columns: dict[str, str], adaptation: str) -> str:
    """Means over people of each target with everybody training, and over the targets that have every column."""
    scores = of_seeds(means_of(folder), adaptation, EVERYBODY).reindex(columns=list(columns))
    rows = []
    for letters, family in FAMILIES.items():
        of_family = scores[scores.index.str.startswith(letters)]
        if not len(of_family):
            continue
        whole = of_family.dropna()
        lines = [*of_family.iterrows()]
        if len(whole) > 1:
            lines.append((f"mean of {len(whole)} {family}", whole.mean()))
        rows += [[str(name), *_bold(line)] for name, line in lines]
    return markdown(["people held out of", *columns.values()], rows)


def _bold(line: pd.Series[float]) -> list[str]:
    return best_in_bold([None if np.isnan(value) else float(value) for value in line])


def by_people(folder: Path) -> str:
    """Means over the armband sets that have so many people, by how many of the target train."""
    means, columns = means_of(folder), ["closed", "closed+base", "closed+random_base", "base", "random_base"]
    means = means[means.index.get_level_values("target").str.startswith("emg")]
    enough = set.intersection(*(set(of_seeds(means, "zero-shot", number).index) for number in NUMBERS))
    rows = []
    for adaptation in ("zero-shot", "transductive"):
        for number in NUMBERS:
            of_sets = of_seeds(means, adaptation, number).loc[sorted(enough)]
            rows.append([adaptation, number, *_bold(of_sets[columns].mean())])
    heads = ["", f"people of the target, {len(enough)} sets"]
    return markdown([*heads, *((MODELS | ALONE)[name] for name in columns)], rows)


def differences(folder: Path) -> str:
    """Over the armband sets, with everybody training: sets as the unit, and each seed by itself."""
    means = means_of(folder)
    means = means[means.index.get_level_values("target").str.startswith("emg")]
    rows = []
    for adaptation in ("zero-shot", "transductive"):
        of_sets = means.xs((adaptation, EVERYBODY), level=("adaptation", "people"))
        for first, second in DIFFERENCES:
            gaps = (of_sets[first] - of_sets[second]).dropna()
            by_set, by_seed = gaps.groupby("target").mean(), gaps.groupby("seed").mean()
            seeds = ", ".join(map(signed, by_seed))
            rows.append([f"{first} − {second}", adaptation, str(len(by_set)), str(mean_of(by_set)), seeds])
    return markdown(["", "adaptation", "sets", "difference (95 % interval over sets)", "by seed"], rows)


def used(folder: Path) -> str:
    """First answers of runs with a base and without, of the same people: means, and the mean over sets."""
    every = {name: table_of(folder, name).set_index(["data", "case", "subject"])["score"].astype(float)
             for name in ("first_answer", "based")}  # fmt: skip
    both = pd.DataFrame(every).dropna().groupby(["data", "case"]).mean()
    rows = []
    for data, cases in both.groupby("data"):
        lines = cases.droplevel("data").reindex(list(USED.values()))
        pairs = zip(lines["first_answer"], lines["based"], strict=True)
        rows.append([str(data), *(f"{score(without)} → {score(based)}" for without, based in pairs)])
    gaps = (both["based"] - both["first_answer"]).unstack("case")
    pooled = [str(mean_of(gaps[case])) for case in USED.values()]
    return markdown(["without → with base", *USED], [*rows, [f"**mean of {len(gaps)} sets** (95 % interval)", *pooled]])


PARTS: dict[str, Callable[[Path], str]] = {
    "base_beside": partial(by_target, columns=MODELS, adaptation="zero-shot"),
    "base_beside_all_windows": partial(by_target, columns=MODELS, adaptation="transductive"),
    "base_alone": partial(by_target, columns=ALONE, adaptation="zero-shot"),
    "base_people": by_people,
    "base_differences": differences,
    "base_used": used,
}
