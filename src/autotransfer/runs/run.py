"""A run: a folder, its ledger, the recordings, and the work that is left. Where it is done is a Place's affair."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..errors import UserError
from ..folds import leave_one_subject_out, make_fold
from ..jobs import Job
from ..model.encoders import Encoders, find_factory
from ..recordings import Recordings, absolute, load
from ..settings import Setting
from ..training.packing import pack, resolve_device
from ..training.progress import Progress
from .here import Here
from .ledger import FINISHED, Entry, Ledger
from .options import RunOptions
from .place import DTYPE, Place

Tell = Callable[[str], None]  # says a line to the user


def fingerprint(recordings: Recordings) -> str:
    """Tells whether the data are the ones that a run began with."""
    digest = hashlib.blake2b(digest_size=16)
    for tensor in (recordings.X, recordings.y, recordings.subject):
        digest.update(str(tuple(tensor.shape)).encode())
        for start in range(0, len(tensor), 1024):
            digest.update(tensor[start : start + 1024].contiguous().numpy().tobytes())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """What outcomes may depend on besides the data."""
    found = {"python": platform.python_version()}
    for package in ("autotransfer", "torch", "numpy", "scipy", "scikit-learn", "pandas"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def entry_key(setting: Setting, first: int, second: int, seed: int) -> str:
    """One training: the pair of held-out subjects has no order."""
    return f"{setting.key}-{min(first, second)}-{max(first, second)}-{seed}"


class Run:
    """Open with `create` or `open`; `work` trains whatever the ledger lists and has not finished."""

    def __init__(
        self,
        folder: Path,
        ledger: Ledger,
        recordings: Recordings,
        options: RunOptions,
        encoders: Encoders | None = None,
    ) -> None:
        self.folder, self.ledger, self.recordings, self.options = folder, ledger, recordings, options
        self.encoders = encoders
        self.place: Place = Here()

    @classmethod
    def create(cls, folder: Path, options: RunOptions, encoders: Encoders | None = None) -> Run:
        """Start a run in a new or empty folder; everything that can be wrong is found before anything is written."""
        if (folder / "ledger.sqlite").exists():
            raise UserError(f"{folder} already holds a run; continue it with: autotransfer resume {folder}")
        resolve_device(options.device)
        check_encoder(options, encoders)
        recordings = load(options.source)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            ledger = Ledger(folder / "ledger.sqlite", create=True)
        except OSError as error:
            raise UserError(f"cannot write to {folder} ({error.strerror}); choose another folder") from None
        source = absolute(options.source)  # resume may be called from elsewhere
        ledger.remember(
            options=options.to_dict() | {"source": source},
            fingerprint=fingerprint(recordings),
            versions=versions(),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            command=" ".join(["autotransfer", *sys.argv[1:]]) if sys.argv[0].endswith("autotransfer") else None,
        )
        return cls(folder, ledger, recordings, options, encoders)

    @classmethod
    def open(cls, folder: Path, encoders: Encoders | None = None) -> Run:
        """A run that exists, with the data it began with.

        encoders: the factory again where the run has an encoder of the user's own: code is never imported
        because a folder names it.
        """
        ledger = Ledger(folder / "ledger.sqlite")
        stored = ledger.recall("options")
        if stored is None:
            raise UserError(f"{folder} was interrupted before it began; remove it and run again")
        options = RunOptions.from_dict(stored)
        check_encoder(options, encoders)
        recordings = load(options.source)
        if fingerprint(recordings) != ledger.recall("fingerprint"):
            raise UserError(f"{options.source} has changed since {folder} was begun; restore it or start a new run")
        return cls(folder, ledger, recordings, options, encoders)

    # jobs

    def entry(self, stage: str, setting: Setting, validation: int, test: int, seed: int) -> Entry:
        key = entry_key(setting, validation, test, seed)
        return Entry(key, stage, setting.to_json(), validation, test, seed)

    def folds(self) -> list[tuple[int, int]]:
        """(validation, test) positions of the leave-one-subject-out folds."""
        place = {subject: number for number, subject in enumerate(self.recordings.subjects)}
        folds = leave_one_subject_out(self.recordings)
        return [(place[fold.validation_subject], place[fold.test_subject]) for fold in folds]

    def job(self, entry: Entry) -> Job:
        return job_of(self.recordings, entry)

    def add(self, entries: Iterable[Entry]) -> None:
        self.ledger.add(entries)

    # work

    def work(self, label: str, *, prune_at: int | None = None, shown: bool | None = None) -> None:
        """Train every job that is not finished: what was begun as it was composed, the rest in new populations.

        prune_at: the epoch after which the worse half of a new population's censored members is given up.
        """
        self._pack_waiting(prune_at)
        left = [entry for entry in self.ledger.entries() if entry.status not in FINISHED]
        total = sum(Setting.from_json(entry.setting).max_epochs for entry in left)
        with Progress(total, len(left), shown=shown, label=label) as bar:
            self.place.train(self, bar)

    def _pack_waiting(self, prune_at: int | None) -> None:
        """Compose populations of the jobs that are in none, and store the composition."""
        if self.ledger.open_populations():
            return
        waiting = [entry for entry in self.ledger.entries() if entry.status not in FINISHED]
        jobs = [self.job(entry) for entry in waiting]
        packs = pack(
            self.recordings, jobs, self.options.population, device=self.place.device(self.options.device),
            dtype=DTYPE, encoders=self.encoders, at_least=self.place.workers,
        )  # fmt: skip
        compositions = [[waiting[position].key for position in positions] for positions in packs]
        self.ledger.add_populations(compositions, prune_at)


def job_of(recordings: Recordings, entry: Entry) -> Job:
    fold = make_fold(recordings, entry.validation, entry.test)
    return Job(Setting.from_json(entry.setting), fold, entry.seed)


def check_encoder(options: RunOptions, encoders: Encoders | None) -> None:
    if options.encoder != "eegnet":
        find_factory(options.encoder, encoders)
