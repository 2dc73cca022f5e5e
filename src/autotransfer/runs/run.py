"""Run: a folder with a database of jobs, the recordings, and an executor that trains unfinished jobs."""

from __future__ import annotations

import math
import os
import time
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
from .lock import is_in_use, no_run_error, remove_database
from .options import RunOptions
from .preparation import Preparation, check_encoder
from .study import STUDY_FILE, study_text

PROBE_SECONDS = 15.0  # time limit for measuring leakage in a report
# Files of a run, which must not exist when it starts.
RESERVED_NAMES = ("results.csv", "scores.csv", "report.html", "model")

Tell = Callable[[str], None]  # function that prints one line for the user
Scores = dict[str, float]


class Run:
    """Run in a folder. `start` creates a run, `open` opens an existing run, `train` trains unfinished jobs."""

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
        self.start_time = time.monotonic()  # time of the monotonic clock from which the time limit counts
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
        """Return the facts about the recordings that are stored in the run database."""
        return self.database.require_fact("data", Data)

    @classmethod
    def start(cls, folder: Path, prepared: Preparation) -> Run:
        """Create a run in a folder that `check_unused` has accepted."""
        options, recordings = prepared.options, prepared.recordings
        # `resume` may be called in another working directory.
        source = make_absolute(options.source) if options.source else ""
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
                write_atomically(folder / STUDY_FILE, study_text(options))
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
        """Open a run. Its recordings are checked by their digests.

        recordings: if None, recordings are loaded from `source`, or from the stored source. encoders: factories of
        custom encoders; code is never imported by names in the folder. lazy: whether recordings are loaded at first
        use. read_only: whether the run database is opened without write access.
        """
        database = RunDatabase(folder / "run.sqlite", read_only=read_only)
        try:
            options = database.require_fact("options", RunOptions)
            options = options if source is None else replace(options, source=make_absolute(source))
            check_encoder(options, encoders)

            def load() -> Preparation:
                loaded = _load_source(folder, options) if recordings is None else recordings
                loaded = use_units(loaded.for_target(options.target), options.hold_out)
                check_same_data(database, options if recordings is None else replace(options, source=""), loaded)
                return Preparation(options, loaded, encoders)

            run = cls(folder, database, options, load, encoders)
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
        """Return groups of subjects that are held out together, as indices into recordings.subjects."""
        return held_out_groups(len(self.data.subjects), self.data.units, self.options.n_folds)

    def average_units(self, scores: Scores) -> Scores:
        """Return scores by subject from scores by held-out unit (a subject, a session, or a value of a column)."""
        return scores if self.data.units is None else self.data.units.average_by_subject(scores)

    def folds(self) -> list[tuple[int, int]]:
        """Return pairs of group indices (validation, test). Each group is the test group of one fold.

        In regression, the validation index is the number of groups, because there is no validation group.
        """
        n = len(self.groups)
        if self.options.task.is_numeric:
            return [(n, test) for test in range(n)]
        return [((test - 1) % n, test) for test in range(n)]

    def search_fold(self) -> tuple[int, int]:
        """Return the fold of a search of settings: the first fold whose validation group can be scored."""
        scorable = set(scorable_subjects(self.recordings))
        return next(fold for fold in self.folds() if scorable & set(self.groups[fold[0]]))

    def job(self, entry: Entry) -> Job:
        return make_job(self.recordings, entry, self.options.n_folds)

    def weights(self, key: str) -> dict[str, Tensor]:
        """Return the stored tensors of a finished job: best.*, final.*, swapped.* and predictions."""
        try:
            return load_tensors(self.database.tensors(key))
        except (SafetensorError, TypeError, ValueError):
            raise UserError(f"{self.database.path} has a job without weights (key {key!r}); {REMEDY}") from None

    def held_out_log_probs(self, entry: Entry) -> Tensor:
        """Return log-probabilities (n, C) of a finished job's validation windows, then of its test windows."""
        subjects = self.groups[entry.validation] + self.groups[entry.test]
        n = int(np.isin(self.recordings.subject.numpy(), subjects).sum())
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
        """Train all unfinished jobs, in their stored populations or, if they have none, in new populations.

        label: title of the progress bar. counted: jobs that the progress bar counts; default: all jobs.
        """
        self.database.store_facts(stage_seconds_left=[])  # removes the estimate of an earlier stage
        self._store_versions()
        entries = self.database.entries(records=False)
        unfinished = [entry for entry in entries if entry.status not in FINISHED]
        self._pack_waiting(unfinished)
        total = sum(entry.setting.max_epochs for entry in unfinished)
        keys = None if counted is None else {entry.key for entry in counted}
        counts = Counter(entry.status for entry in entries if keys is None or entry.key in keys)
        label = self.database.stage_words() if label is None else label
        deadline = self.executor.until if isinstance(self.executor, LocalExecutor) else math.inf
        with Progress(
            total, counts.total(), visible=progress, label=label, earlier=(counts["done"], counts["failed"]),
            deadline=deadline,
        ) as bar:  # fmt: skip
            self.executor.train(self, entries, bar)

    def _store_versions(self) -> None:
        """Store the package versions of the next fits, and warn if earlier fits have other versions."""
        stored, current = self.database.require_fact("versions", list[dict[str, str]]), versions()
        if current not in stored:
            last = stored[-1]
            changed = [f"{name} {last.get(name)} → {new}" for name, new in current.items() if last.get(name) != new]
            if self.database.counts().get("done"):
                warnings.warn(
                    f"earlier fits were made with other versions ({', '.join(changed)}); the results combine both",
                    stacklevel=user_stacklevel(),
                )
            stored = [*stored, current]
            self.database.store_facts(versions=stored)
        self.database.version_index = stored.index(current)

    def _pack_waiting(self, unfinished: Sequence[Entry]) -> None:
        """Store new populations of the unfinished jobs that are in no population."""
        if self.options.task.is_numeric:
            return
        packed = {key for population in self.database.open_populations() for key in population.keys}
        waiting = [entry for entry in unfinished if entry.key not in packed]
        if not waiting:
            return
        jobs = [self.job(entry) for entry in waiting]
        packs = pack(
            self.recordings, jobs, "auto", device=self.executor.device(self.options.device),
            dtype=DTYPE, encoders=self.encoders, workers=self.executor.workers,
        )  # fmt: skip
        self.database.add_populations([[waiting[index].key for index in indices] for indices in packs])


def _load_source(folder: Path, options: RunOptions) -> Recordings:
    """Load the recordings of a run from the stored source."""
    source = options.source
    if os.path.isabs(source) and not any(os.path.exists(path) for path in (source, source.partition("?")[0])):
        raise UserError(f"{source}, the data of {folder}, does not exist; if it was moved, give --data FILE")
    return options.load()


def check_same_data(database: RunDatabase, options: RunOptions, recordings: Recordings) -> None:
    """Raise unless the recordings are equal to the recordings of a run."""
    is_same = fingerprint(recordings) == database.require_fact("fingerprint", str)
    column: str | None = None
    if is_same:
        column = find_changed_column(database.require_fact("columns", dict[str, str]), recordings)
    if not is_same or column is not None or database.require_fact("data", Data) != Data.from_recordings(recordings):
        location = "" if column is None else f" in the column {shown(column)}"
        raise UserError(
            f"{options.source or 'the input'} differs{location} from the data of {database.path.parent}; "
            f"restore it, {'give --data FILE, ' * bool(options.source)}or start a new run in another folder"
        )


def _make_folder_error(folder: Path) -> UserError:
    remedy = "choose another folder" if is_in_use(folder) else f"continue it with: autotransfer resume {folder}"
    return UserError(f"{folder} already holds a run{', which is being trained' * is_in_use(folder)}; {remedy}")


def create_run_database(path: Path, facts: dict[str, Any]) -> RunDatabase:
    """Create a run database under a temporary name, write the facts, and give the database its name."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    remove_database(part)
    try:
        with closing(RunDatabase(part, create=True)) as database:
            database.store_facts(**facts)
            database.flush_log()  # the log is a separate file, which is not linked
        try:
            os.link(part, path)  # unlike a rename, it does not replace the database of another process
        except FileExistsError:
            raise _make_folder_error(path.parent) from None
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
        raise _make_folder_error(folder)
    if holds_run(folder) or (folder / "model" / "model.json").exists():
        raise UserError(f"{folder} already holds a run or a model; choose another folder")
    for path in (folder / name for name in RESERVED_NAMES):
        if os.path.lexists(path) and not (path.is_dir() and not path.is_symlink() and not any(path.iterdir())):
            raise UserError(f"{folder} already holds {path.name}; choose another folder")
    parent = next(path for path in (folder, *folder.absolute().parents) if os.path.exists(path))
    if not parent.is_dir() or not is_writable(parent):
        raise UserError(f"cannot write to {folder} ({parent} is a file or protected); choose another folder")


def check_is_run(folder: Path) -> None:
    """Raise unless the folder holds a run."""
    if folder.is_file():
        raise UserError(f"{folder} is a file; give the folder of a run")
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; start a run with: autotransfer run DATA --out {folder}")
    if not is_run(folder):
        raise no_run_error(folder)
