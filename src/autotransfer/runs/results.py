"""results.csv: one tidy row per finished job."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import pandas as pd

from ..settings import Setting
from .ledger import FINISHED, Entry

COLUMNS = [
    "stage", "setting", "method", "mode", "strength", "estimator", "length_scale", "regularization", "standardise",
    "fold", "validation_subject", "test_subject", "seed", "best_epoch", "epochs", "validation_score", "test_score",
    "swapped_best_epoch", "swapped_validation_score", "swapped_test_score", "seconds", "failure", "key",
]  # fmt: skip


def results_table(
    entries: Sequence[Entry], subjects: Sequence[Hashable], name_of: Callable[[Setting], str]
) -> pd.DataFrame:
    """Rows of the finished jobs, settings named by the run. `fold` is the position of the test subject; the swapped_
    columns are the same trajectory with validation and test subject exchanged."""
    rows: list[dict[str, Any]] = []
    for entry in entries:
        if entry.status not in FINISHED or entry.record is None:
            continue
        setting, record = Setting.from_json(entry.setting), entry.record
        swapped = record.get("swapped", {})
        rows.append(
            setting.as_row()
            | {
                "stage": entry.stage,
                "setting": name_of(setting),
                "fold": entry.test,
                "validation_subject": subjects[entry.validation],
                "test_subject": subjects[entry.test],
                "seed": entry.seed,
                "best_epoch": record["best_epoch"],
                "epochs": record["epochs"],
                "validation_score": record["validation_score"],
                "test_score": record["test_score"],
                "swapped_best_epoch": swapped.get("best_epoch"),
                "swapped_validation_score": swapped.get("validation_score"),
                "swapped_test_score": swapped.get("test_score"),
                "seconds": record["seconds"],
                "failure": record["failure"] or "",
                "key": entry.key,
            }
        )
    return pd.DataFrame(rows, columns=COLUMNS + sorted(set(Setting().as_row()) - set(COLUMNS)))
