"""A run: a folder, its ledger, the recordings, and the jobs that are left, which an Executor trains."""

from __future__ import annotations

import errno
import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from ..errors import UserError, shown, users_line
from ..files import sync_folder, writable, write_atomically
from ..folds import (
    groups_of,
    held_out_groups,
    in_units,
    make_fold,
    scorable,
    whole_people,
)
from ..jobs import Job
from ..model.braindecode_models import PREFIX
from ..model.encoders import Encoders
from ..recordings import Recordings, absolute, load
from ..recordings.concerns import concerns
from ..settings import SUBJECT, Setting
from ..training.packing import pack
from ..training.progress import Progress
from ..versions import versions
from .checks import check_entries, check_populations, entry_key
from .data_facts import Data
from .executor import DTYPE, LOG_PROBS, Executor, LocalExecutor
from .ledger import FINISHED, REMEDY, Entry, Ledger
from .lock import in_use, no_run, remove_database
from .options import RunOptions
from .preparation import Preparation, check_encoder, prepare
from .provenance import changed_column, column_digests, fingerprint
from .regression import CHOICE, NUMBERS
from .study import NAME, study_text

WRITTEN = ("results.csv", "report.html", "model")  # that others may have files of the same name

Tell = Callable[[str], None]  # says a line to the user
Scores = dict[str, float]


class Run:
    """Open with `create` or `open`; `work` trains whatever the ledger lists and has not finished."""

    def __init__(
        self,
        folder: Path,
        ledger: Ledger,
        options: RunOptions,
        prepared: Preparation | Callable[[], Preparation],
        encoders: Encoders | None = None,
    ) -> None:
        self.folder, self.ledger, self.options, self._prepared = folder, ledger, options, prepared
        self.encoders = encoders
        self.executor: Executor = LocalExecutor()

    @property
    def prepared(self) -> Preparation:
        """Options with recordings, which are loaded at first use if the run was opened without them."""
        if not isinstance(self._prepared, Preparation):
            self._prepared = self._prepared()
        return self._prepared

    @property
    def recordings(self) -> Recordings:
        return self.prepared.recordings

    @property
    def data(self) -> Data:
        """What the ledger says of the recordings."""
        return self.ledger.recall("data", Data) or Data.of(self.recordings)

    @classmethod
    def create(
        cls,
        folder: Path,
        options: RunOptions,
        encoders: Encoders | None = None,
        recordings: Recordings | None = None,
    ) -> Run:
        """Start a run in a new or empty folder; everything that can be wrong is found before anything is written.

        recordings: where they are in memory already; otherwise they are loaded from `options.source`.
        """
        check_unused(folder)
        return cls.start(folder, prepare(options, encoders, recordings))

    @classmethod
    def start(cls, folder: Path, prepared: Preparation) -> Run:
        """The same where everything was looked at before."""
        options, recordings = prepared.options, prepared.recordings
        for line in concerns(whole_people(recordings).raw()):
            warnings.warn(line, stacklevel=users_line())
        windows = fingerprint(recordings)
        facts: dict[str, Any] = {
            "options": options.to_dict() | {"source": absolute(options.source)},  # resume may be called from elsewhere
            "fingerprint": windows if options.nuisance == SUBJECT else fingerprint(recordings, options.nuisance),
            "windows": windows,
            "columns": column_digests(recordings),
            "data": Data.of(recordings),
            "versions": versions(*["braindecode"] * options.encoder.startswith(PREFIX)),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not writable(folder):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            ledger = begin_ledger(folder / "ledger.sqlite", facts)
            write_atomically(folder / NAME, study_text(options))
        except OSError as error:
            raise UserError(f"cannot write to {folder} ({error.strerror}); choose another folder") from None
        return cls(folder, ledger, options, prepared, prepared.encoders)

    @classmethod
    def open(
        cls,
        folder: Path,
        encoders: Encoders | None = None,
        recordings: Recordings | None = None,
        *,
        source: str | None = None,
        lazy: bool = False,
        read_only: bool = False,
    ) -> Run:
        """A run that exists, with the data it began with: those given, or loaded from where they were, or from `source`
        if they have moved.

        encoders: the factory again where the run has an encoder of the user's own: code is never imported
        because a folder names it. lazy: the data are loaded when they are first needed; a report may never need them.
        read_only: nothing is written to the ledger, not even where the data are now.
        """
        ledger = Ledger(folder / "ledger.sqlite", read_only=read_only)
        try:
            stored = ledger.recall("options", dict[str, Any])
            if stored is None:
                raise UserError(f"{folder} does not say what it was asked to do; remove it and run again")
            options = RunOptions.from_dict(stored)
            check_encoder(options, encoders)
            if source is not None:
                options = replace(options, source=absolute(source))
            known, noted = ledger.recall("fingerprint", str), ledger.recall("data", Data)
            columns = ledger.recall("columns", dict[str, str])

            def find() -> Preparation:
                loaded = _load_again(folder, options) if recordings is None else recordings
                loaded = in_units(loaded, options.hold_out)
                if fingerprint(loaded, options.nuisance) != known:
                    raise _changed(folder, options.source, moved=source is not None)
                if (column := changed_column(columns, loaded)) is not None:
                    raise _changed(folder, options.source, moved=source is not None, column=column)
                if (noted or Data.of(loaded)) != Data.of(loaded):
                    raise UserError(f"the ledger {ledger.path} tells other data than {options.source} has; {REMEDY}")
                return Preparation(options, loaded, encoders)

            run = cls(folder, ledger, options, find, encoders)
            if not lazy:
                ledger.check()
            if not lazy or source is not None:
                _ = run.prepared
            check_entries(ledger, ledger.entries(), len(run.groups))
            check_populations(ledger)
            if source is not None and not read_only:
                ledger.remember(options=stored | {"source": options.source})
        except BaseException:
            ledger.close()
            raise
        return run

    # jobs

    def entry(self, stage: str, setting: Setting, validation: int, test: int, seed: int) -> Entry:
        key = entry_key(setting, validation, test, seed)
        return Entry(key, stage, setting, validation, test, seed)

    @cached_property
    def groups(self) -> list[list[int]]:
        """Who are held out together: positions in recordings.subjects. Everybody alone, unless --folds or
        --hold-out say otherwise."""
        return held_out_groups(len(self.data.subjects), self.data.units, self.options.n_folds)

    def by_person(self, scores: Scores) -> Scores:
        """Scores by person: where parts of people are held out, the mean over each person's parts."""
        return scores if self.data.units is None else self.data.units.by_person(scores)

    def folds(self) -> list[tuple[int, int]]:
        """(validation, test) positions of the groups: each tests once, and the one before it validates."""
        n = len(self.groups)
        return [((test - 1) % n, test) for test in range(n)]

    def scored_split(self) -> tuple[int, int]:
        """The fold that a search compares settings on: the first with a validation subject who can be scored."""
        known = set(scorable(self.recordings))
        return next(fold for fold in self.folds() if known & set(self.groups[fold[0]]))

    def job(self, entry: Entry) -> Job:
        return job_of(self.recordings, entry, self.options.n_folds)

    def weights(self, key: str) -> dict[str, Tensor]:
        """What a finished job has left: best.* and final.*"""
        try:
            return load_tensors(self.ledger.tensors(key))
        except (SafetensorError, TypeError, ValueError):
            raise UserError(
                f"the ledger {self.ledger.path} has a job without weights (key {key!r}); {REMEDY}"
            ) from None

    def held_out_log_probs(self, entry: Entry) -> Tensor:
        """Log-probabilities (n, C) of the rows that a finished job held out: validation rows, then test rows."""
        who, tensors = self.recordings.subject.numpy(), self.weights(entry.key)
        n = int(np.isin(who, self.groups[entry.validation] + self.groups[entry.test]).sum())
        if LOG_PROBS not in tensors:
            raise UserError(f"{self.folder} was trained by an earlier version; start a new run")
        log_probs = tensors[LOG_PROBS]
        if log_probs.shape != (n, self.recordings.n_classes) or not bool(log_probs.isfinite().all()):
            raise UserError(f"the ledger {self.ledger.path} has damaged predictions (key {entry.key!r}); {REMEDY}")
        return log_probs

    def add(self, entries: Iterable[Entry]) -> None:
        self.ledger.add(entries)

    def drop(self, keys: Sequence[str], *, finished: bool = False) -> None:
        """Delete unfinished jobs, or with `finished` all of them, and their checkpoints."""
        for number in self.ledger.drop(keys, finished=finished):
            (self.folder / f"population-{number}.checkpoint").unlink(missing_ok=True)

    # work

    def work(
        self, *, prune_at: int | None = None, shown: bool | None = None, label: str | None = None,
        expected: float | None = None, counted: Sequence[Entry] | None = None,
    ) -> None:  # fmt: skip
        """Train every job that is not finished: what was begun as it was composed, the rest in new populations.

        prune_at: the epoch after which the worse half of a new population's censored members is given up. label: what
        progress calls it. expected: seconds that it is planned to take. counted: the jobs that progress counts,
        finished or not; default: all that are known.
        """
        self.ledger.remember(pulse=[])  # that of an earlier stage
        self._pack_waiting(prune_at)
        self.delete_ended_checkpoints()
        known = self.ledger.entries(records=False)
        left = [entry for entry in known if entry.status not in FINISHED]
        total = sum(entry.setting.max_epochs for entry in left)
        keys = None if counted is None else {entry.key for entry in counted}
        counts = Counter(entry.status for entry in known if keys is None or entry.key in keys)
        label = self.ledger.stage_words() if label is None else label
        until = self.executor.until if isinstance(self.executor, LocalExecutor) else math.inf
        with Progress(
            total, counts.total(), shown=shown, label=label, before=(counts["done"], counts["failed"]),
            expected=expected, until=until,
        ) as bar:  # fmt: skip
            self.executor.train(self, bar)

    def delete_ended_checkpoints(self) -> None:
        """Delete checkpoints of populations whose jobs are finished: what a process leaves that is killed at that
        moment, or meets a full disk."""
        statuses = self.ledger.statuses()
        needed = {
            f"population-{population.number}.checkpoint"
            for population in self.ledger.open_populations()
            if any(statuses.get(key) not in FINISHED for key in population.keys)
        }
        for path in self.folder.glob("population-*.checkpoint"):
            if path.name not in needed:
                path.unlink(missing_ok=True)

    def _pack_waiting(self, prune_at: int | None) -> None:
        """Compose populations of the jobs that are in none, and store the composition."""
        placed = {key for population in self.ledger.open_populations() for key in population.keys}
        entries = self.ledger.entries(records=False)
        waiting = [entry for entry in entries if entry.status not in FINISHED and entry.key not in placed]
        if not waiting:
            return
        jobs = [self.job(entry) for entry in waiting]
        packs = pack(
            self.recordings, jobs, "auto", device=self.executor.device(self.options.device),
            dtype=DTYPE, encoders=self.encoders, at_least=self.executor.workers,
        )  # fmt: skip
        compositions = [[waiting[position].key for position in positions] for positions in packs]
        self.ledger.add_populations(compositions, prune_at)


def _load_again(folder: Path, options: RunOptions) -> Recordings:
    """The data of a run, which may have moved since."""
    source = options.source
    if os.path.isabs(source) and not any(os.path.exists(path) for path in (source, source.partition("?")[0])):
        raise UserError(f"{source}, the data of {folder}, is not there any more; if it has moved, give --data FILE")
    return load(source, **options.cutting)


def _changed(folder: Path, source: str, *, moved: bool, column: str | None = None) -> UserError:
    where = "" if column is None else f" in the column {shown(column)}"
    if moved:
        return UserError(f"{source} does not hold the data that {folder} was begun with{where}; give another --data")
    return UserError(f"{source} has changed since {folder} was begun{where}; restore it or start a new run")


def _taken(folder: Path) -> UserError:
    if in_use(folder):
        return UserError(
            f"{folder} already holds a run, which is at work: autotransfer status {folder} says how far it is; choose "
            "another folder for another run"
        )
    return UserError(f"{folder} already holds a run; continue it with: autotransfer resume {folder}")


def begin_ledger(path: Path, facts: dict[str, Any]) -> Ledger:
    """A new ledger that holds the facts from the start: written under another name, then linked."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    remove_database(part)
    try:
        with closing(Ledger(part, create=True)) as fresh:
            fresh.remember(**facts)
            fresh.empty_log()  # which is not linked
        try:
            os.link(part, path)  # unlike a rename it does not replace what another process has begun
        except FileExistsError:
            raise _taken(path.parent) from None
        except OSError:
            part.replace(path)  # a file system without links
    finally:
        remove_database(part)
    sync_folder(path.parent)
    return Ledger(path)


def job_of(recordings: Recordings, entry: Entry, folds: int | None = None) -> Job:
    groups = groups_of(recordings, folds)
    fold = make_fold(recordings, groups[entry.validation], groups[entry.test])
    return Job(entry.setting, fold, entry.seed)


def is_run(folder: Path) -> bool:
    """Return whether a folder holds a run that predicts classes."""
    return (folder / "ledger.sqlite").exists()


def holds_run(folder: Path) -> bool:
    """Whether there is a run of any kind: one with a continuous target has another ledger."""
    return is_run(folder) or any((folder / name).exists() for name in (NUMBERS, CHOICE))


def check_unused(folder: Path) -> None:
    """Refuse a folder in which a run would replace another one, the model of a person, or a file of the user's."""
    if is_run(folder):
        raise _taken(folder)
    if holds_run(folder) or (folder / "model" / "model.json").exists():
        raise UserError(f"{folder} already holds a run or a model, which would be replaced; choose another folder")
    for path in (folder / name for name in WRITTEN):
        if os.path.lexists(path) and not (path.is_dir() and not path.is_symlink() and not any(path.iterdir())):
            raise UserError(f"{folder} holds {path.name}, which a run would replace; choose another folder")


def check_is_run(folder: Path) -> None:
    """Raise unless the folder holds a run."""
    if folder.is_file():
        raise UserError(f"{folder} is a file; give the folder of a run")
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; start a run with: autotransfer run DATA --out {folder}")
    if not is_run(folder):
        raise no_run(folder)
