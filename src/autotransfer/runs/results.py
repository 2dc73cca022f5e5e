"""results.csv: one tidy row per finished job, and the typed record behind each row."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ..jobs import Record
from ..settings import Setting, field_names
from .ledger import FINISHED, Entry

COLUMNS = [
    "stage", "setting", "method", "mode", "strength", "estimator", "length_scale", "regularization", "standardise",
    "fold", "validation_subject", "test_subject", "seed", "best_epoch", "epochs", "validation_score", "test_score",
    "swapped_best_epoch", "swapped_validation_score", "swapped_test_score", "seconds", "failure", "key",
]  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """A finished job: what was trained, on whom it was measured, and what it gave."""

    stage: str  # "prepare", "search", "folds" or "nested"
    name: str  # of the setting, unique in the run
    setting: Setting
    fold: int  # the position of the test subject
    validation_subject: Hashable
    test_subject: Hashable
    seed: int
    key: str
    record: Record

    @property
    def failed(self) -> bool:
        return self.record.failure is not None


def trained(entries: Sequence[Entry], subjects: Sequence[Hashable], name_of: Callable[[Setting], str]) -> list[Trained]:
    """Of the finished jobs, settings named by the run."""
    return [
        Trained(
            entry.stage, name_of(entry.setting), entry.setting, entry.test, subjects[entry.validation],
            subjects[entry.test], entry.seed, entry.key, entry.record,
        )
        for entry in entries
        if entry.status in FINISHED and entry.record is not None
    ]  # fmt: skip


def results_table(found: Sequence[Trained]) -> pd.DataFrame:
    """A row a job. The swapped_ columns are the same trajectory with validation and test subject exchanged."""
    rows: list[dict[str, Any]] = []
    for one in found:
        record, swapped = one.record, one.record.swapped
        rows.append(
            one.setting.as_row()
            | {
                "stage": one.stage,
                "setting": one.name,
                "fold": one.fold,
                "validation_subject": one.validation_subject,
                "test_subject": one.test_subject,
                "seed": one.seed,
                "best_epoch": record.best_epoch,
                "epochs": record.epochs,
                "validation_score": record.validation_score,
                "test_score": record.test_score,
                "swapped_best_epoch": None if swapped is None else swapped.best_epoch,
                "swapped_validation_score": None if swapped is None else swapped.validation_score,
                "swapped_test_score": None if swapped is None else swapped.test_score,
                "seconds": record.seconds,
                "failure": record.failure or "",
                "key": one.key,
            }
        )
    return pd.DataFrame(rows, columns=COLUMNS + sorted(set(field_names()) - set(COLUMNS)))
