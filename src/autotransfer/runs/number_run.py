"""A run with a continuous target: its folder and ledger, with what every candidate predicts for people left out.

One group of people is held out of each training, and nobody validates: a fold has no validation people, and an entry of
the ledger has the number of groups in place of theirs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor

from ..errors import UserError
from ..folds import Fold
from ..jobs import HISTORY, Job, Record
from ..recordings import Recordings
from ..settings import Setting
from .executor import LOG_PROBS
from .ledger import FINISHED, REMEDY, Entry, Ledger, check_entries
from .options import RunOptions, resolved
from .preparation import Preparation
from .regression import NUMBERS
from .run import Run, begin_folder, check_same_data, stored_options

Floats = NDArray[np.float64]
SOLVED = "closed forms"  # a stage of the ledger


class NumberRun(Run):
    """A run that is opened with `begin` or `reopen`."""

    def __init__(self, folder: Path, ledger: Ledger, recordings: Recordings, options: RunOptions) -> None:
        super().__init__(folder, ledger, options, Preparation(options, recordings))

    @classmethod
    def begin(cls, folder: Path, recordings: Recordings, options: RunOptions) -> Self:
        """Start a run in a folder that was checked with `check_unused`."""
        options = resolved(options, recordings)
        return cls(folder, begin_folder(folder, NUMBERS, options, recordings), recordings, options)

    @classmethod
    def reopen(cls, folder: Path, source: str | None = None) -> Self:
        """Open a run with the data it began with. source: where they are, if they have moved."""
        ledger = Ledger(folder / NUMBERS)
        try:
            ledger.check()
            options = stored_options(ledger, source)
            if not options.source:
                raise UserError(f"{folder} was begun with arrays in Python; delete it and fit again")
            recordings = options.load()
            check_same_data(ledger, options, recordings)
            run = cls(folder, ledger, recordings, options)
            check_entries(ledger, ledger.entries(), len(run.groups) + 1, scored=False)
            if source is not None:
                ledger.remember(options=options)
        except BaseException:
            ledger.close()
            raise
        return run

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
        predicted = np.empty((len(parts[0]), self.recordings.n_trials))
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


def is_complete(folder: Path) -> bool:
    """Return whether nothing is left to do in a folder."""
    with closing(Ledger(folder / NUMBERS, read_only=True)) as ledger:
        return bool(ledger.recall("complete", bool))


def _solved_record(seconds: float) -> Record:
    """Of a closed form, which has neither scores of classes nor epochs."""
    nothing = np.zeros((1, 1), dtype=np.int64)
    return Record(
        best_epoch=1, epochs=1, validation_score=math.nan, test_score=math.nan, validation_confusion=nothing,
        test_confusion=nothing, history={name: [] for name in HISTORY}, seconds=seconds, population=1,
    )  # fmt: skip
