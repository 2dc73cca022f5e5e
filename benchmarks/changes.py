"""The parts of docs/results.md that say what each penalty and augmentation is worth, from changes.csv."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from autotransfer.report.statistics import Paired, holm
from autotransfer.report.wording import probability, score, signed
from autotransfer.words import range_words

from .evidence import pairs, pool, scores_by, table_of
from .markdown import NOTHING, markdown


def changes_table(folder: Path, part: str) -> str:
    """Every change of a part minus its reference, over all people; p corrected over the part."""
    gains = gains_of(table_of(folder, "changes"), part)
    whole = {name: pooled for name, by_set in gains.items() if (pooled := pool(by_set)) is not None}
    corrected = holm({name: pooled.p for name, pooled in whole.items()})
    rows = [
        [
            name, str(whole[name].n), signed(whole[name].mean), range_words(whole[name].interval),
            probability(corrected[name]),
            f"{sum(pair.mean > 0 for pair in gains[name].values())} of {len(gains[name])}",
            ", ".join(f"{dataset} {signed(pair.mean)}" for dataset, pair in sorted(gains[name].items())),
        ]
        for name in sorted(whole, key=lambda name: -whole[name].mean)
    ]  # fmt: skip
    heads = ["", "people", "over all people", "95 % interval", "p, Holm", "sets above 0", "by set"]
    return markdown(heads, rows) if rows else NOTHING


def turned(folder: Path) -> str:
    """Scores as recorded and with the test person's channels turned, without and with `turn` (turned.py)."""
    rows = []
    for dataset, table in table_of(folder, "turned").groupby("dataset"):
        means = table.groupby(["turn", "places"])["score"].mean()
        around = int(table["places"].max()) + 1
        cells = []
        for turn in ("none", "transductive"):
            moved = [(means[turn, k] + means[turn, around - k]) / 2 for k in range(1, min(4, around // 2) + 1)]
            cells += [score(means[turn, 0]), ", ".join(map(score, moved))]
        reachable = float(means["same person", 0])
        gained = float(means["transductive", 0] - means["none", 0])
        gap = reachable - float(means["none", 0])
        closed = f"{100 * gained / gap:.0f} %" if gap > 0 else "no gap"
        rows.append([str(dataset), str(table["subject"].nunique()), *cells, score(reachable), closed])
    heads = ["", "people", "as recorded", "turned by 1, 2, …", "as recorded, with `turn`", "turned, with `turn`",
             "same person", "closed"]  # fmt: skip
    return markdown(heads, rows)


def gains_of(table: pd.DataFrame, part: str) -> dict[str, dict[str, Paired]]:
    """Change -> data set -> what it gains over its reference, person by person, seeds and folds averaged."""
    scores = scores_by(table, "change", "dataset", "subject")
    changes = table[table["part"] == part]
    references = dict(zip(changes["change"], changes["reference"], strict=True))
    return {change: pairs(scores[change], scores.get(reference, {})) for change, reference in references.items()}
