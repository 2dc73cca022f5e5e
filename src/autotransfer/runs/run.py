"""A run: a folder, its ledger, the recordings, and the work that is left."""

from __future__ import annotations

import hashlib
import platform
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from ..errors import UserError
from ..folds import leave_one_subject_out, make_fold
from ..jobs import Job, Outcome
from ..model.encoders import Encoders, find_factory
from ..recordings import Recordings, load
from ..settings import Setting
from ..training.evaluation import HISTORY
from ..training.gather import Windows
from ..training.packing import pack, resolve_device
from ..training.population import Population
from ..training.progress import Progress
from ..training.train import run as train_population
from ..training.train import windows_for
from .checkpoint import restore, save_checkpoint
from .ledger import FINISHED, Entry, Ledger
from .options import RunOptions

CHECKPOINT_EVERY = 5.0  # seconds of training that a kill may cost
DTYPE = torch.float32
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
        self._prepared: dict[tuple[str, int], Windows] = {}

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
        source = options.source
        if Path(source).exists():
            source = str(Path(source).resolve())  # resume may be called from elsewhere
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
        fold = make_fold(self.recordings, entry.validation, entry.test)
        return Job(Setting.from_json(entry.setting), fold, entry.seed)

    def add(self, entries: Iterable[Entry]) -> None:
        self.ledger.add(entries)

    # work

    def work(self, label: str, *, prune_at: int | None = None, shown: bool | None = None) -> None:
        """Train every job that is not finished: what was begun as it was composed, the rest in new populations.

        prune_at: the epoch after which the worse half of a new population's censored members is given up.
        """
        device = resolve_device(self.options.device)
        self._pack_waiting(device, prune_at)
        left = [entry for entry in self.ledger.entries() if entry.status not in FINISHED]
        total = sum(Setting.from_json(entry.setting).max_epochs for entry in left)
        with Progress(total, len(left), shown=shown, label=label) as bar:
            while (found := self.ledger.open_population()) is not None:
                self._train(*found, device, bar)

    def _pack_waiting(self, device: torch.device, prune_at: int | None) -> None:
        """Compose populations of the jobs that are in none, and store the composition."""
        if self.ledger.open_population() is not None:
            return
        waiting = [entry for entry in self.ledger.entries() if entry.status not in FINISHED]
        jobs = [self.job(entry) for entry in waiting]
        packs = pack(self.recordings, jobs, self.options.population, device=device, dtype=DTYPE, encoders=self.encoders)
        compositions = [[waiting[position].key for position in positions] for positions in packs]
        self.ledger.add_populations(compositions, prune_at)

    def _train(self, number: int, keys: list[str], prune_at: int | None, device: torch.device, bar: Progress) -> None:
        """One population, from its checkpoint if it has one."""
        path = self.folder / f"population-{number}.checkpoint"
        known = {entry.key: entry for entry in self.ledger.entries()}
        todo = [key for key in keys if known[key].status not in FINISHED]
        if todo:
            population, members = self._population(todo, known, path, device)
            last = time.monotonic()

            def after_epoch(population: Population) -> None:
                nonlocal last
                bar.epoch(population)
                if population.jobs and time.monotonic() - last > CHECKPOINT_EVERY:
                    save_checkpoint(path, population, [members[id(job)] for job in population.jobs])
                    last = time.monotonic()

            def give_up(population: Population) -> list[int]:
                if population.epoch != prune_at:
                    return []
                pruned = self._pruned(number, population, [members[id(job)] for job in population.jobs])
                return [place for place, job in enumerate(population.jobs) if members[id(job)] in pruned]

            for outcome in train_population(population, give_up=give_up, after_epoch=after_epoch):
                key = members[id(outcome.job)]
                pruned = key in self.ledger.recall(f"pruned {number}", [])
                self.ledger.finish(key, record_of(outcome) | {"pruned": pruned}, tensors_of(outcome))
                bar.finished(outcome)
        self.ledger.end_population(number)
        path.unlink(missing_ok=True)

    def _pruned(self, number: int, population: Population, keys: list[str]) -> list[str]:
        """Members to give up now. Decided once and noted first, so that a kill cannot prune twice."""
        decided: list[str] | None = self.ledger.recall(f"pruned {number}")
        if decided is None:
            scores = population.snapshots.history[:, population.epoch - 1].tolist()
            column = [HISTORY.index(f"score_{population.side(member)}") for member in range(len(keys))]
            censored = [m for m, job in enumerate(population.jobs) if job.setting.method is not None]
            censored.sort(key=lambda member: (scores[member][column[member]], keys[member]))
            decided = [keys[member] for member in censored[: len(censored) // 2]]
            self.ledger.remember(**{f"pruned {number}": decided})
        return decided

    def _population(
        self, todo: list[str], known: dict[str, Entry], path: Path, device: torch.device
    ) -> tuple[Population, dict[int, str]]:
        """The population of these jobs, and the key of each by the identity of its Job."""
        jobs = {key: self.job(known[key]) for key in todo}
        windows = windows_for(self.recordings, jobs[todo[0]], self._prepared, device=device, dtype=DTYPE)
        everyone = jobs | {
            key: self.job(entry) for key, entry in known.items() if entry.status in FINISHED and path.exists()
        }
        restored = restore(self.recordings, everyone, windows, DTYPE, path, self.encoders)
        if restored is not None and set(todo) <= set(restored[1]):
            population, keys = restored
            alive = [place for place, key in enumerate(keys) if key in jobs]  # others ended after the checkpoint
            population.select(alive)
            keys = [keys[place] for place in alive]
        else:
            self.ledger.begin(todo)
            population = Population(self.recordings, [jobs[key] for key in todo], windows, DTYPE, self.encoders)
            keys = todo
        return population, {id(job): key for job, key in zip(population.jobs, keys, strict=True)}


def check_encoder(options: RunOptions, encoders: Encoders | None) -> None:
    if options.encoder != "eegnet":
        find_factory(options.encoder, encoders)


def record_of(outcome: Outcome) -> dict[str, Any]:
    """What the ledger keeps of an outcome as JSON; `swapped` holds the twin's."""
    record = {
        "best_epoch": outcome.best_epoch,
        "epochs": outcome.epochs,
        "validation_score": outcome.validation_score,
        "test_score": outcome.test_score,
        "validation_confusion": outcome.validation_confusion.tolist(),
        "test_confusion": outcome.test_confusion.tolist(),
        "history": outcome.history,
        "seconds": outcome.seconds,
        "population": outcome.population,
        "failure": outcome.failure,
    }
    if outcome.swapped is not None:
        record["swapped"] = record_of(outcome.swapped)
    return record


def tensors_of(outcome: Outcome) -> bytes:
    """Weights of both snapshots and of the last epoch, as safetensors."""
    states = {"best": outcome.state, "final": outcome.final_state}
    if outcome.swapped is not None:
        states["swapped"] = outcome.swapped.state
    return save({f"{kind}.{name}": t.contiguous() for kind, state in states.items() for name, t in state.items()})
