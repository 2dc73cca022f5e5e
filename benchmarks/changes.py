"""The parts of docs/results.md that say what each penalty and augmentation is worth, from changes.csv."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from autotransfer.report.statistics import Paired, holm
from autotransfer.report.wording import interval, probability, score, signed
from autotransfer.runs.csv_tables import read_table

from .evidence import Evidence, Scores, pairs, pool
from .markdown import NOTHING, markdown


def table_of(part: str) -> Callable[[Evidence, Path], str]:
    def made(evidence: Evidence, folder: Path) -> str:
        """Every change of a part minus its reference, over all people; p corrected over the part."""
        path = folder / "changes.csv"
        if not path.exists():
            return NOTHING
        found = differences(read_table(path, dtype={"subject": str, "dataset": str}), part)
        whole = {name: pooled for name, by_set in found.items() if (pooled := pool(by_set)) is not None}
        corrected = holm({name: one.p for name, one in whole.items()})
        order = sorted(whole, key=lambda name: -whole[name].mean)
        rows = [
            [
                name, str(whole[name].n), signed(whole[name].mean), interval(whole[name]), probability(corrected[name]),
                f"{sum(pair.mean > 0 for pair in found[name].values())} of {len(found[name])}",
                ", ".join(f"{dataset} {signed(pair.mean)}" for dataset, pair in sorted(found[name].items())),
            ]
            for name in order
        ]  # fmt: skip
        heads = ["", "people", "over all people", "95 % interval", "p, Holm", "sets above 0", "by set"]
        return markdown(heads, rows) if rows else NOTHING

    return made


def turned(evidence: Evidence, folder: Path) -> str:
    """Scores as recorded and with the test person's channels turned, without and with `turn` (turned.py)."""
    path = folder / "turned.csv"
    if not path.exists():
        return NOTHING
    table = read_table(path, dtype={"subject": str, "dataset": str})
    rows = []
    for dataset, own in table.groupby("dataset"):
        means = own.groupby(["turn", "places"])["score"].mean()
        around = int(own["places"].max()) + 1
        cells = []
        for turn in ("none", "transductive"):
            moved = [(means[turn, k] + means[turn, around - k]) / 2 for k in range(1, min(4, around // 2) + 1)]
            cells += [score(means[turn, 0]), ", ".join(map(score, moved))]
        reachable = float(means["same person", 0])
        gained = float(means["transductive", 0] - means["none", 0])
        gap = reachable - float(means["none", 0])
        closed = f"{100 * gained / gap:.0f} %" if gap > 0 else "no gap"
        rows.append([str(dataset), str(own["subject"].nunique()), *cells, score(reachable), closed])
    heads = ["", "people", "as recorded", "turned by 1, 2, …", "as recorded, with `turn`", "turned, with `turn`",
             "same person", "closed"]  # fmt: skip
    return markdown(heads, rows)


def differences(table: pd.DataFrame, part: str) -> dict[str, dict[str, Paired]]:
    """Change -> data set -> what it gains over its reference, person by person, seeds and folds averaged."""
    means = table.groupby(["change", "dataset", "subject"], sort=False)["score"].mean()
    known: dict[str, Scores] = {}
    for row in means.reset_index().to_dict("records"):
        known.setdefault(row["change"], {}).setdefault(row["dataset"], {})[row["subject"]] = float(row["score"])
    own = table[table["part"] == part]
    beside = dict(zip(own["change"], own["reference"], strict=True))
    return {change: pairs(known[change], known.get(reference, {})) for change, reference in beside.items()}
