"""Run: a folder with a database of jobs, the recordings, and an executor that trains unfinished jobs."""

from __future__ import annotations

import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
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

from ..errors import UserError, shown, user_stacklevel
from ..files import is_writable, sync_folder, write_atomically
from ..folds import held_out_groups, scorable_subjects, use_units, use_whole_subjects
from ..jobs import Job
from ..model.encoders import Encoders
from ..recordings import Recordings, make_absolute
from ..recordings.concerns import Study, find_concerns
from ..training.packing import pack
from ..training.progress import Progress
from ..versions import versions
from .data_facts import Data, column_digests, find_changed_column, fingerprint
from .database import FINISHED, REMEDY, Entry, RunDatabase, check_entries
from .executor import DTYPE, PREDICTIONS, Executor, LocalExecutor, RegressionExecutor, make_job
from .lock import in_use, no_run_error, remove_database
from .options import RunOptions
from .preparation import Preparation, check_encoder
from .study import NAME, study_text

RESERVED_NAMES = ("results.csv", "report.html", "model")  # files of a run that would replace a user's files

Tell = Callable[[str], None]  # prints one line for the user
Scores = dict[str, float]


class Run:
    """Run in a folder. `start` creates a run, `open` opens an existing one, `train` trains unfinished jobs."""

    def __init__(
        self,
        folder: Path,
        database: RunDatabase,
        options: RunOptions,
        prepared: Preparation | Callable[[], Preparation],
        encoders: Encoders | None = None,
    ) -> None:
        self.folder, self.database, self.options, self._prepared = folder, database, options, prepared
        self.encoders = encoders
        self.executor: Executor = RegressionExecutor() if options.task.is_numeric else LocalExecutor()

    @property
    def prepared(self) -> Preparation:
        """Return options and recordings, loaded at first use if the run was opened with `lazy`."""
        if not isinstance(self._prepared, Preparation):
            self._prepared = self._prepared()
        return self._prepared

    @property
    def recordings(self) -> Recordings:
        return self.prepared.recordings

    @property
    def data(self) -> Data:
        """Return the facts about the recordings that the run database holds."""
        return self.database.require_fact("data", Data)

    @classmethod
    def start(cls, folder: Path, prepared: Preparation) -> Run:
        """Create a run in a folder that `check_unused` has accepted."""
        options, recordings = prepared.options, prepared.recordings
        source = (
            make_absolute(options.source) if options.source else ""
        )  # `resume` may be called in another working directory
        facts: dict[str, Any] = {
            "options": replace(options, source=source),
            "fingerprint": fingerprint(recordings),
            "columns": column_digests(recordings),
            "data": Data.from_recordings(recordings),
            "versions": [versions()],
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            database = create_run_database(folder / "run.sqlite", facts)
            if source:  # arrays in Python have no source
                write_atomically(folder / NAME, study_text(options))
        except OSError as error:
            raise UserError(f"cannot write to {folder} ({error.strerror}); choose another folder") from None
        return cls(folder, database, options, prepared, prepared.encoders)

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
        """Open a run with the recordings it was started with, checked by their digests.

        recordings: loaded from the stored source if None, or from `source` if the files have moved. encoders: factory
        of a user's own encoder, because code is never imported on the word of a folder. lazy: recordings are loaded at
        first use. read_only: nothing is written to the run database.
        """
        database = RunDatabase(folder / "run.sqlite", read_only=read_only)
        try:
            options = database.require_fact("options", RunOptions)
            options = options if source is None else replace(options, source=make_absolute(source))
            check_encoder(options, encoders)

            def find() -> Preparation:
                loaded = _load_again(folder, options) if recordings is None else recordings
                loaded = use_units(loaded.for_target(options.target), options.hold_out)
                check_same_data(database, options, loaded)
                return Preparation(options, loaded, encoders)

            run = cls(folder, database, options, find, encoders)
            if not lazy:
                database.check()
            if not lazy or source is not None:
                _ = run.prepared
            check_entries(database, database.entries(hidden=True), len(run.groups))
            if source is not None and not read_only:
                database.store_facts(options=options)
        except BaseException:
            database.close()
            raise
        return run

    def warn_of_recordings(self) -> None:
        """Warn about suspicious properties of the recordings."""
        for line in find_concerns(Study.from_raw(use_whole_subjects(self.recordings).raw())):
            warnings.warn(line, stacklevel=user_stacklevel())

    @cached_property
    def groups(self) -> list[list[int]]:
        """Return groups of subjects that are held out together, as positions in recordings.subjects."""
        return held_out_groups(len(self.data.subjects), self.data.units, self.options.n_folds)

    def average_units(self, scores: Scores) -> Scores:
        """Return scores by whole subject: the mean over units if sessions or values of a column are held out."""
        return scores if self.data.units is None else self.data.units.average_by_person(scores)

    def folds(self) -> list[tuple[int, int]]:
        """Return (validation, test) positions of groups: each group tests once, and the one before it validates.

        Regression has no validation group; its position is the number of groups.
        """
        n = len(self.groups)
        if self.options.task.is_numeric:
            return [(n, test) for test in range(n)]
        return [((test - 1) % n, test) for test in range(n)]

    def search_fold(self) -> tuple[int, int]:
        """Return the first fold whose validation group can be scored; a search compares settings on it."""
        known = set(scorable_subjects(self.recordings))
        return next(fold for fold in self.folds() if known & set(self.groups[fold[0]]))

    def job(self, entry: Entry) -> Job:
        return make_job(self.recordings, entry, self.options.n_folds)

    def weights(self, key: str) -> dict[str, Tensor]:
        """Return the stored tensors of a finished job: best.*, final.* and predictions."""
        try:
            return load_tensors(self.database.tensors(key))
        except (SafetensorError, TypeError, ValueError):
            raise UserError(f"{self.database.path} has a job without weights (key {key!r}); {REMEDY}") from None

    def held_out_log_probs(self, entry: Entry) -> Tensor:
        """Return log-probabilities (n, C) of a finished job's validation windows, then of its test windows."""
        who = self.recordings.subject.numpy()
        n = int(np.isin(who, self.groups[entry.validation] + self.groups[entry.test]).sum())
        return self.stored_predictions(entry.key, (n, self.recordings.n_classes))

    def stored_predictions(self, key: str, shape: tuple[int, int]) -> Tensor:
        """Return the stored predictions of a finished job; raise unless they are finite numbers of this shape."""
        stored = self.weights(key).get(PREDICTIONS)
        if stored is None or stored.shape != shape or not stored.isfinite().all():
            raise UserError(f"{self.database.path} has damaged predictions (key {key!r}); {REMEDY}")
        return stored

    def train(
        self, *, progress: bool | None = None, label: str | None = None, counted: Sequence[Entry] | None = None
    ) -> None:
        """Train all unfinished jobs: stored populations as they are composed, other jobs in new populations.

        label: title of the progress bar. counted: jobs that the progress bar counts; default: all jobs
        """
        self.database.store_facts(stage_seconds_left=[])  # forgets the estimate of an earlier stage
        self._note_versions()
        known = self.database.entries(records=False)
        left = [entry for entry in known if entry.status not in FINISHED]
        self._pack_waiting(left)
        total = sum(entry.setting.max_epochs for entry in left)
        keys = None if counted is None else {entry.key for entry in counted}
        counts = Counter(entry.status for entry in known if keys is None or entry.key in keys)
        label = self.database.stage_words() if label is None else label
        deadline = self.executor.until if isinstance(self.executor, LocalExecutor) else math.inf
        with Progress(
            total, counts.total(), visible=progress, label=label, earlier=(counts["done"], counts["failed"]),
            deadline=deadline,
        ) as bar:  # fmt: skip
            self.executor.train(self, known, bar)

    def _note_versions(self) -> None:
        """Store the versions that fits are made with from now on; warn if earlier fits were made with others."""
        known, now = self.database.require_fact("versions", list[dict[str, str]]), versions()
        if now not in known:
            before = known[-1]
            changed = [f"{name} {before.get(name)} → {now[name]}" for name in now if before.get(name) != now[name]]
            if self.database.counts().get("done"):
                warnings.warn(
                    f"earlier fits were made with other versions ({', '.join(changed)}); the results combine both",
                    stacklevel=user_stacklevel(),
                )
            known = [*known, now]
            self.database.store_facts(versions=known)
        self.database.versions = known.index(now)

    def _pack_waiting(self, unfinished: Sequence[Entry]) -> None:
        """Compose populations of unfinished jobs that are in none, and store the composition."""
        if self.options.task.is_numeric:
            return
        placed = {key for population in self.database.open_populations() for key in population.keys}
        waiting = [entry for entry in unfinished if entry.key not in placed]
        if not waiting:
            return
        jobs = [self.job(entry) for entry in waiting]
        packs = pack(
            self.recordings, jobs, "auto", device=self.executor.device(self.options.device),
            dtype=DTYPE, encoders=self.encoders, workers=self.executor.workers,
        )  # fmt: skip
        compositions = [[waiting[position].key for position in positions] for positions in packs]
        self.database.add_populations(compositions)


def _load_again(folder: Path, options: RunOptions) -> Recordings:
    """Load the recordings of a run from the stored source."""
    source = options.source
    if os.path.isabs(source) and not any(os.path.exists(path) for path in (source, source.partition("?")[0])):
        raise UserError(f"{source}, the data of {folder}, does not exist; if it was moved, give --data FILE")
    return options.load()


def check_same_data(database: RunDatabase, options: RunOptions, recordings: Recordings) -> None:
    """Raise unless the recordings are equal to those that a run was started with."""
    folder, where = database.path.parent, ""
    same = fingerprint(recordings) == database.require_fact("fingerprint", str)
    if (
        same
        and (column := find_changed_column(database.require_fact("columns", dict[str, str]), recordings)) is not None
    ):
        same, where = False, f" in the column {shown(column)}"
    if not same or database.require_fact("data", Data) != Data.from_recordings(recordings):
        raise UserError(
            f"{options.source or 'the data'} differs{where} from the data that {folder} was started with; "
            "restore it, give --data FILE, or start a new run"
        )


def _folder_taken(folder: Path) -> UserError:
    remedy = "choose another folder" if in_use(folder) else f"continue it with: autotransfer resume {folder}"
    return UserError(f"{folder} already holds a run{', which is being trained' * in_use(folder)}; {remedy}")


def create_run_database(path: Path, facts: dict[str, Any]) -> RunDatabase:
    """Create a run database that is never seen without these facts: it is written under another name, then linked."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    remove_database(part)
    try:
        with closing(RunDatabase(part, create=True)) as fresh:
            fresh.store_facts(**facts)
            fresh.empty_log()  # the log is a file of its own, which is not linked
        try:
            os.link(part, path)  # unlike a rename, it does not replace the database of another process
        except FileExistsError:
            raise _folder_taken(path.parent) from None
        except OSError:  # the file system has no links
            part.replace(path)
    finally:
        remove_database(part)
    sync_folder(path.parent)
    return RunDatabase(path)


def is_run(folder: Path) -> bool:
    """Return whether a folder holds a run."""
    return (folder / "run.sqlite").exists()


def holds_run(folder: Path) -> bool:
    """Return whether a folder holds a run or its result."""
    return is_run(folder) or (folder / "choice.json").exists()


def check_unused(folder: Path) -> None:
    """Raise if a folder cannot be written to, or if a run would replace a run, a model or a user's file in it."""
    try:
        str(folder.absolute()).encode()
    except UnicodeEncodeError:
        raise UserError(f"the folder {shown(str(folder), 400)} is not named in UTF-8; choose another folder") from None
    if is_run(folder):
        raise _folder_taken(folder)
    if holds_run(folder) or (folder / "model" / "model.json").exists():
        raise UserError(f"{folder} already holds a run or a model; choose another folder")
    for path in (folder / name for name in RESERVED_NAMES):
        if os.path.lexists(path) and not (path.is_dir() and not path.is_symlink() and not any(path.iterdir())):
            raise UserError(f"{folder} already holds {path.name}; choose another folder")
    home = next(path for path in (folder, *folder.absolute().parents) if os.path.exists(path))
    if not home.is_dir() or not is_writable(home):
        raise UserError(f"cannot write to {folder} ({home} is a file or protected); choose another folder")


def check_is_run(folder: Path) -> None:
    """Raise unless the folder holds a run."""
    if folder.is_file():
        raise UserError(f"{folder} is a file; give the folder of a run")
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; start a run with: autotransfer run DATA --out {folder}")
    if not is_run(folder):
        raise no_run_error(folder)
