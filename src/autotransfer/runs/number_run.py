"""A run with a continuous target: its folder and ledger, with what every candidate predicts for people left out.

One group of people is held out of each training, and nobody validates: a fold has no validation people, and an entry of
the ledger has the number of groups in place of theirs.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor

from ..errors import UserError, shown
from ..files import writable, write_atomically
from ..folds import Fold
from ..jobs import HISTORY, Job, Record
from ..recordings import absolute, load_targets
from ..recordings.targets import Targets
from ..settings import Setting
from ..versions import versions
from .checks import check_entries, check_populations
from .data_facts import Data
from .executor import LOG_PROBS
from .ledger import FINISHED, REMEDY, Entry, Ledger
from .lock import Lock
from .options import RunOptions, resolved
from .preparation import Preparation
from .provenance import changed_column, column_digests, fingerprint
from .regression import NUMBERS, is_regression
from .run import Run, Tell, begin_ledger, check_unused
from .study import NAME, study_text

Floats = NDArray[np.float64]
SOLVED = "closed forms"  # a stage of the ledger
IMMATERIAL = ("source", "device", "at_least")  # options that may differ when a run goes on


class NumberRun(Run):
    """A run that is opened with `begin` or `reopen`."""

    def __init__(self, folder: Path, ledger: Ledger, targets: Targets, options: RunOptions) -> None:
        super().__init__(folder, ledger, options, Preparation(options, targets.recordings))
        self.targets = targets

    @classmethod
    def begin(cls, folder: Path, targets: Targets, options: RunOptions) -> Self:
        """Start a run in a new or empty folder."""
        check_free(folder)
        recordings = targets.recordings
        options = resolved(options, recordings)
        facts: dict[str, Any] = {
            "options": options.to_dict() | {"source": absolute(options.source) if options.source else ""},
            "fingerprint": fingerprint(recordings),
            "columns": column_digests(recordings),
            "data": Data.of(recordings),
            "versions": versions(),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            ledger = begin_ledger(folder / NUMBERS, facts)
            if options.source:  # else it was begun with arrays in Python
                write_atomically(folder / NAME, study_text(options))
        except OSError as error:
            raise UserError(f"cannot write to {folder} ({error.strerror or error}); choose another folder") from None
        return cls(folder, ledger, targets, options)

    @classmethod
    def reopen(cls, folder: Path, targets: Targets | None = None, source: str | None = None) -> Self:
        """A run that exists, with the data it began with: those given, or loaded from where they were, or from `source`
        if they have moved."""
        ledger = Ledger(folder / NUMBERS)
        try:
            stored = ledger.recall("options", dict[str, Any])
            if stored is None:
                raise UserError(f"{folder} does not say what it was asked to do; remove it and run again")
            options = RunOptions.from_dict(stored)
            if source is not None:
                options = replace(options, source=absolute(source))
            if targets is None and not options.source:
                raise UserError(f"{folder} was begun with arrays in Python; go on with the same fit of the regressor")
            if targets is None:
                targets = load_targets(options.source, options.target, **options.cutting)
            if fingerprint(targets.recordings) != ledger.recall("fingerprint", str):
                raise UserError(f"the data are not those that {folder} was begun with; restore them or start a new run")
            if (column := changed_column(ledger.recall("columns", dict[str, str]), targets.recordings)) is not None:
                raise UserError(
                    f"the column {shown(column)} is not as when {folder} was begun; restore it or start a new run"
                )
            ledger.check()
            run = cls(folder, ledger, targets, options)
            check_entries(ledger, ledger.entries(), len(run.groups) + 1, scored=False)
            check_populations(ledger)
            if source is not None:
                ledger.remember(options=stored | {"source": options.source})
        except BaseException:
            ledger.close()
            raise
        return run

    def check_asked(self, options: RunOptions) -> None:
        """Refuse to go on with other options than the run was begun with."""
        asked, stored = resolved(options, self.recordings).to_dict(), self.options.to_dict()
        for name, value in asked.items():
            if name not in IMMATERIAL and value != stored[name]:
                raise UserError(
                    f"{self.folder} holds a run already, with {name} {stored[name]}, not {value}; choose another folder"
                )

    # folds

    def folds(self) -> list[tuple[int, int]]:
        """(nobody, test): positions of groups, of which the first is none."""
        return [(len(self.groups), test) for test in range(len(self.groups))]

    @cached_property
    def each_fold(self) -> list[Fold]:
        """By the position of the group that is held out."""
        subject, folds = self.recordings.subject.numpy(), []
        for group in self.groups:
            held_out = np.isin(subject, group)
            folds.append(Fold(train=np.flatnonzero(~held_out), test=np.flatnonzero(held_out)))
        return folds

    def job(self, entry: Entry) -> Job:
        return Job(entry.setting, self.each_fold[entry.test], entry.seed)

    def entries_of(self, stage: str, setting: Setting, seeds: Sequence[int]) -> list[Entry]:
        return [self.entry(stage, setting, *fold, seed) for seed in seeds for fold in self.folds()]

    # what is predicted for people left out

    def closed_form_predictions(self, setting: Setting, solve: Callable[[Fold], Floats]) -> Floats:
        """(S, N) predictions of a closed form with each strength, every window by a training without its person. Kept
        fold by fold; solve: what a fold gives for its test rows (S, n), where it is not there yet."""
        entries = self.entries_of(SOLVED, setting, [0])
        self.add(entries)
        known, parts = self.ledger.statuses(), []
        for entry, fold in zip(entries, self.each_fold, strict=True):
            if known[entry.key] in FINISHED:
                parts.append(self._predicted(entry, fold).numpy())
                continue
            start = time.perf_counter()
            parts.append(solve(fold))
            predicted = torch.from_numpy(np.ascontiguousarray(parts[-1].T))
            self.ledger.finish(entry.key, _solved_record(time.perf_counter() - start), save({LOG_PROBS: predicted}))
        return self._by_window(parts)

    def _by_window(self, parts: Sequence[Floats]) -> Floats:
        predicted = np.empty((len(parts[0]), len(self.targets.values)))
        for fold, part in zip(self.each_fold, parts, strict=True):
            predicted[:, fold.test] = part
        return predicted

    def _predicted(self, entry: Entry, fold: Fold) -> Tensor:
        """(S, n) of the test rows, as they were stored."""
        tensors = self.weights(entry.key)
        stored = tensors.get(LOG_PROBS)
        if stored is None or stored.ndim != 2 or len(stored) != len(fold.test) or not bool(stored.isfinite().all()):
            raise UserError(f"the ledger {self.ledger.path} has damaged predictions (key {entry.key!r}); {REMEDY}")
        return stored.T


def check_free(folder: Path) -> None:
    """Refuse a folder that holds a run, or that cannot be written to, before any work is done for it."""
    check_unused(folder)
    home = next(path for path in (folder, *folder.absolute().parents) if os.path.exists(path))
    if not home.is_dir():
        raise UserError(f"{home} is a file; choose another folder")
    if not writable(home):
        raise UserError(f"cannot write to {home}; make it writable or choose another folder")


def is_complete(folder: Path) -> bool:
    """Whether the ledger in a folder says that nothing is left to do; a damaged or missing one does not."""
    if not (folder / NUMBERS).exists():
        return False
    try:
        with closing(Ledger(folder / NUMBERS, read_only=True)) as ledger:
            return bool(ledger.recall("complete", bool))
    except UserError:  # damaged: for whoever goes on with it to mend
        return False


def check_open(folder: Path) -> None:
    """Refuse a folder that holds another run, or a finished one, before any work is done for it."""
    if not is_regression(folder):
        check_free(folder)
    elif is_complete(folder):
        raise UserError(f"{folder} holds a run already; choose another folder")


@contextmanager
def open_or_begin(folder: Path, targets: Targets, options: RunOptions, tell: Tell | None = None) -> Iterator[NumberRun]:
    """A run in a folder, with its lock: the one that was begun there with the same data and options, or a new one."""
    fresh = not is_regression(folder)
    run = NumberRun.begin(folder, targets, options) if fresh else None
    with Lock(folder):
        if run is None:
            run = NumberRun.reopen(folder, targets)
        with closing(run.ledger):
            if not fresh:
                run.check_asked(options)
            yield run


def _solved_record(seconds: float) -> Record:
    """Of a closed form, which has neither scores of classes nor epochs."""
    nothing = np.zeros((1, 1), dtype=np.int64)
    return Record(
        best_epoch=1, epochs=1, validation_score=math.nan, test_score=math.nan, validation_confusion=nothing,
        test_confusion=nothing, history={name: [] for name in HISTORY}, seconds=seconds, population=1,
    )  # fmt: skip
