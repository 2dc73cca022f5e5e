"""results.csv: one tidy row per finished job, and the typed record behind each row."""

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

MEASURED = ("best_epoch", "validation_score", "test_score")  # also with validation and test exchanged


@dataclass(frozen=True)
class FinishedFit:
    """Finished job: a setting, the subjects that were held out, and its record."""

    stage: str  # "search", "folds", "sessions" (which are no candidates), "nested" or "baselines"
    name: str  # of the setting, unique in the run
    setting: Setting
    fold: int  # the position of the test subject or, with --folds, of the group
    validation_subject: Hashable  # or a tuple of several
    test_subject: Hashable
    seed: int
    key: str
    record: Record

    @property
    def failed(self) -> bool:
        return self.record.failure is not None

    @property
    def scores(self) -> dict[str, float]:
        """Return test scores by name of a subject."""
        people, scores = _names(self.test_subject), self.record.test_scores
        values = [scores[place] for place in sorted(scores, key=int)]  # as groups are listed
        return dict(zip(people, values or [self.record.test_score] * len(people), strict=True))

    @property
    def held_out(self) -> tuple[str, ...]:
        """Return the names of all subjects that were not trained on."""
        return (*_names(self.validation_subject), *_names(self.test_subject))


def _names(subject: Hashable) -> tuple[str, ...]:
    """Return the names of one subject, or of several."""
    return tuple(map(str, subject)) if isinstance(subject, tuple) else (str(subject),)


def finished_fits(
    entries: Sequence[Entry],
    subjects: Sequence[Hashable],
    called: Callable[[Setting], str],
    groups: Sequence[Sequence[int]],
) -> list[FinishedFit]:
    """Return finished jobs, with settings named by the run. groups: subjects held out together"""
    called = cache(called)  # a setting is trained many times

    def named(group: int) -> Hashable:
        names = tuple(subjects[person] for person in groups[group]) if group < len(groups) else ("",)  # nobody
        return names[0] if len(names) == 1 else names

    return [
        FinishedFit(
            entry.stage, called(entry.setting), entry.setting, entry.test, named(entry.validation),
            named(entry.test), entry.seed, entry.key, entry.record,
        )
        for entry in entries
        if entry.status in FINISHED and entry.record is not None
    ]  # fmt: skip


def results_table(fits: Sequence[FinishedFit]) -> pd.DataFrame:
    """Return a row for each job or, if several people are tested together, for each of them. The swapped_ columns are
    the same fit with validation and test subjects exchanged."""
    rows: list[dict[str, Any]] = []
    for training in fits:
        record, swapped = training.record, training.record.swapped
        alone = len(training.scores) == 1
        rows += [
            training.setting.as_row()
            | {
                "stage": training.stage,
                "setting": training.name,
                "fold": training.fold,
                "validation_subject": training.validation_subject if alone else name_of(training.validation_subject),
                "test_subject": training.test_subject if alone else subject,
                "seed": training.seed,
                "epochs": record.epochs,
                **{name: getattr(record, name) for name in MEASURED},
                **{f"swapped_{name}": getattr(swapped, name, None) for name in MEASURED},
                "test_score": score,
                "seconds": record.seconds / len(training.scores),
                "failure": record.failure or "",
                "key": training.key,
            }
            for subject, score in training.scores.items()
        ]
    return pd.DataFrame(rows, columns=COLUMNS + sorted(set(field_names()) - set(COLUMNS)))


@dataclass(frozen=True)
class RunResults:
    """State of a run at one moment, read without its recordings or weights."""

    complete: bool
    options: RunOptions
    data: Data
    fits: list[FinishedFit]


def read_fits(folder: Path, known: Collection[str] = ()) -> RunResults:
    """Return the finished fits of a run, which another process may be writing. known: keys of those to leave
    out."""
    with closing(RunDatabase(folder / "run.sqlite", read_only=True)) as database:
        options, data = database.require("options", RunOptions), database.require("data", Data)
        entries = [
            replace(entry, record=database.record(entry.key)) if entry.status in FINISHED else entry
            for entry in database.entries(records=False)
            if entry.key not in known
        ]
        groups = held_out_groups(len(data.subjects), data.units, options.n_folds)
        check_entries(database, entries, len(groups))
        complete = bool(database.recall("complete", bool))
        return RunResults(complete, options, data, finished_fits(entries, data.subjects, options.name_of, groups))
