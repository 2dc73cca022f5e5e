"""Finished fits of a run, and the table results.csv with one row per fit and test subject."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from ..folds import held_out_groups, name_of
from ..jobs import Record
from ..settings import Setting, field_names
from .data_facts import Data
from .database import FINISHED, Entry, RunDatabase, check_entries
from .options import RunOptions

COLUMNS = [
    "stage", "setting", "method", "mode", "strength", "estimator", "length_scale", "regularization", "standardize",
    "fold", "validation_subject", "test_subject", "seed", "best_epoch", "epochs", "validation_score", "test_score",
    "swapped_best_epoch", "swapped_validation_score", "swapped_test_score", "seconds", "failure", "key",
]  # fmt: skip

MEASURED = ("best_epoch", "validation_score", "test_score")  # columns that also exist with the prefix swapped_


@dataclass(frozen=True)
class FinishedFit:
    """Finished job: setting, held-out subjects and record."""

    stage: str  # "search", "folds", "sessions" (centered models for online sessions), "nested" or "baselines"
    name: str  # name of the setting, unique in the run
    setting: Setting
    fold: int  # index of the group of test subjects
    validation_subject: Hashable  # a name, or a tuple of names
    test_subject: Hashable
    seed: int
    key: str
    record: Record

    @property
    def failed(self) -> bool:
        return self.record.failure is not None

    @property
    def scores(self) -> dict[str, float]:
        """Return test scores by subject."""
        subjects, scores = _as_names(self.test_subject), self.record.test_scores
        values = [scores[index] for index in sorted(scores, key=int)]  # in the order of the group
        return dict(zip(subjects, values or [self.record.test_score] * len(subjects), strict=True))

    @property
    def held_out(self) -> tuple[str, ...]:
        """Return the names of all held-out subjects."""
        return (*_as_names(self.validation_subject), *_as_names(self.test_subject))


def _as_names(subject: Hashable) -> tuple[str, ...]:
    """Return a tuple of names from one name or several."""
    return tuple(map(str, subject)) if isinstance(subject, tuple) else (str(subject),)


def finished_fits(
    entries: Sequence[Entry],
    subjects: Sequence[Hashable],
    name_of_setting: Callable[[Setting], str],
    groups: Sequence[Sequence[int]],
) -> list[FinishedFit]:
    """Return the finished jobs of a run. groups: indices of subjects that are held out together."""
    name_of_setting = cache(name_of_setting)  # a setting is trained many times

    def group_name(group: int) -> Hashable:
        names = tuple(subjects[index] for index in groups[group]) if group < len(groups) else ("",)
        return names[0] if len(names) == 1 else names

    return [
        FinishedFit(
            entry.stage, name_of_setting(entry.setting), entry.setting, entry.test, group_name(entry.validation),
            group_name(entry.test), entry.seed, entry.key, entry.record,
        )
        for entry in entries
        if entry.status in FINISHED and entry.record is not None
    ]  # fmt: skip


def results_table(fits: Sequence[FinishedFit]) -> pd.DataFrame:
    """Return one row per fit and test subject. Columns swapped_* are for exchanged validation and test subjects."""
    rows: list[dict[str, Any]] = []
    for fit in fits:
        record, swapped = fit.record, fit.record.swapped
        is_single = len(fit.scores) == 1
        rows += [
            fit.setting.as_row()
            | {
                "stage": fit.stage,
                "setting": fit.name,
                "fold": fit.fold,
                "validation_subject": fit.validation_subject if is_single else name_of(fit.validation_subject),
                "test_subject": fit.test_subject if is_single else subject,
                "seed": fit.seed,
                "epochs": record.epochs,
                **{name: getattr(record, name) for name in MEASURED},
                **{f"swapped_{name}": getattr(swapped, name, None) for name in MEASURED},
                "test_score": score,
                "seconds": record.seconds / len(fit.scores),
                "failure": record.failure or "",
                "key": fit.key,
            }
            for subject, score in fit.scores.items()
        ]
    return pd.DataFrame(rows, columns=COLUMNS + sorted(set(field_names()) - set(COLUMNS)))


@dataclass(frozen=True)
class RunResults:
    """Options, data facts and finished fits of a run, read without its recordings or weights."""

    is_complete: bool
    options: RunOptions
    data: Data
    fits: list[FinishedFit]


def read_fits(folder: Path, excluded_keys: Collection[str] = ()) -> RunResults:
    """Return the finished fits of a run, which may be running. excluded_keys: keys of fits to leave out."""
    with closing(RunDatabase(folder / "run.sqlite", read_only=True)) as database:
        options, data = database.require_fact("options", RunOptions), database.require_fact("data", Data)
        entries = [
            replace(entry, record=database.record(entry.key)) if entry.status in FINISHED else entry
            for entry in database.entries(records=False)
            if entry.key not in excluded_keys
        ]
        groups = held_out_groups(len(data.subjects), data.units, options.n_folds)
        check_entries(database, entries, len(groups))
        is_complete = bool(database.load_fact("complete", bool))
        fits = finished_fits(entries, data.subjects, options.name_of, groups)
        return RunResults(is_complete, options, data, fits)
