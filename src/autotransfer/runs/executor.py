"""Where populations are trained: `LocalExecutor` in this process; `Cluster`, elsewhere, on Dask's workers."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from safetensors.torch import save

from ..folds import groups_of, make_fold
from ..jobs import HISTORY, Job, Outcome, Record
from ..model.encoders import Encoders
from ..recordings import Recordings
from ..training.closed_form import make_population
from ..training.memory import first_line, is_out_of_memory, make_memory_error
from ..training.packing import resolve_device
from ..training.progress import Progress
from ..training.ridge import predict_held_out
from ..training.train import run as train_population
from ..training.trainer import Trainer
from ..training.windows import prepare_windows, release_windows
from .checkpoint import restore, save_checkpoint
from .database import FINISHED, Entry, OpenPopulation, RunDatabase
from .options import RunOptions
from .signals import is_stop_requested, raise_if_stop_requested, signals_wait

DTYPE = torch.float32
LOG_PROBS = "said"  # the name of log-probabilities among the tensors of a job
CHECKPOINT_EVERY = 5.0  # seconds of training that a kill may cost


class Work(Protocol):
    """Interface of a run for an executor."""

    folder: Path
    database: RunDatabase
    options: RunOptions
    encoders: Encoders | None

    @property
    def recordings(self) -> Recordings: ...


def make_job(recordings: Recordings, entry: Entry, folds: int | None = None) -> Job:
    """Return the job of an entry on the recordings of its run."""
    groups = [*groups_of(recordings, folds), []]  # the last one is nobody
    fold = make_fold(recordings, groups[entry.validation], groups[entry.test])
    return Job(entry.setting, fold, entry.seed)


class Executor(Protocol):
    workers: int  # how many populations it trains at a time

    def device(self, asked: str) -> torch.device:
        """Return the device whose memory limits a population."""

    def train(self, run: Work, bar: Progress) -> None:
        """Train every population of the database that has not ended, and note each job the moment it is finished."""


PROBE = 0.2  # share of the time left for a stage, after which its pace is believed


class TimeLimitReached(Exception):
    """Exception of a stage that cannot be completed in time."""


class LocalExecutor:
    """Executor in this process: one population after another, each checkpointed every few seconds."""

    workers = 1
    until = math.inf  # of the monotonic clock: training stops there, and keeps what it has

    def device(self, asked: str) -> torch.device:
        return resolve_device(asked)

    def train(self, run: Work, bar: Progress) -> None:
        device = resolve_device(run.options.device)
        try:
            while populations := run.database.open_populations():
                first = populations[0]
                try:
                    self._train(run, first, device, bar)
                    continue
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                    reason = first_line(error)
                # Only here, where nothing refers to the error and to the frames that it holds, is their memory free.
                if device.type == "cuda":
                    torch.cuda.empty_cache()
                train_halves(run, first, reason)
                (run.folder / f"population-{first.number}.checkpoint").unlink(missing_ok=True)
        finally:
            release_windows(run.recordings)

    def _train(self, run: Work, open_population: OpenPopulation, device: torch.device, bar: Progress) -> None:
        """Train one population, from its checkpoint if it has one."""
        path = run.folder / f"population-{open_population.number}.checkpoint"
        known = {entry.key: entry for entry in run.database.entries(records=False)}
        todo = [key for key in open_population.keys if known[key].status not in FINISHED]
        if todo:
            if time.monotonic() > self.until:
                raise TimeLimitReached
            with signals_wait():
                self._train_members(run, todo, known, path, device, bar)
        path.unlink(missing_ok=True)
        run.database.end_population(open_population.number)

    def _train_members(
        self, run: Work, todo: list[str], known: dict[str, Entry], path: Path, device: torch.device, bar: Progress
    ) -> None:
        population, members = self._population(run, todo, known, path, device)
        bar.subtract_finished(population)
        last = time.monotonic()

        def after_epoch(population: Trainer) -> None:
            nonlocal last
            bar.add_epoch(population)
            over = self._is_late(bar)
            due = over or is_stop_requested() or time.monotonic() - last > CHECKPOINT_EVERY
            if population.jobs and due:
                save_checkpoint(path, population, [members[id(job)] for job in population.jobs])
                if math.isfinite(bar.seconds_left):
                    run.database.remember(stage_seconds_left=[bar.seconds_left, time.time()])
                last = time.monotonic()
            if population.jobs and over:
                raise TimeLimitReached
            raise_if_stop_requested()

        for outcome in train_population(population, after_epoch=after_epoch):
            key = members[id(outcome.job)]
            run.database.finish(key, outcome.record(), tensors_of(outcome))
            bar.add_outcome(outcome)

    def _is_late(self, bar: Progress) -> bool:
        """Return whether time is over, or finished fits of the stage say that it needs more than is left."""
        seconds_left, spent = self.until - time.monotonic(), time.perf_counter() - bar.start
        is_known = math.isfinite(bar.seconds_needed) and spent > PROBE * (spent + seconds_left)
        return seconds_left < 0 or (is_known and bar.seconds_needed > seconds_left)

    def _population(
        self, run: Work, todo: list[str], known: dict[str, Entry], path: Path, device: torch.device
    ) -> tuple[Trainer, dict[int, str]]:
        """Return the population of these jobs, and the key of each by the identity of its Job."""
        folds = run.options.n_folds
        jobs = {key: make_job(run.recordings, known[key], folds) for key in todo}
        windows = prepare_windows(run.recordings, jobs[todo[0]], device=device, dtype=DTYPE)
        everyone = jobs | {
            key: make_job(run.recordings, entry, folds)
            for key, entry in known.items()
            if entry.status in FINISHED and path.exists()
        }
        restored = restore(everyone, windows, path, run.encoders)
        if restored is not None and set(todo) <= set(restored[1]):
            population, keys = restored
            alive = [place for place, key in enumerate(keys) if key in jobs]  # others ended after the checkpoint
            population.select(alive)
            keys = [keys[place] for place in alive]
        else:
            run.database.begin(todo)
            population = make_population([jobs[key] for key in todo], windows, run.encoders)
            keys = todo
        return population, {id(job): key for job, key in zip(population.jobs, keys, strict=True)}


class RegressionExecutor(LocalExecutor):
    """Executor of fits without steps: one job after another."""

    def train(self, run: Work, bar: Progress) -> None:
        nothing = np.zeros((1, 1), dtype=np.int64)
        for entry in run.database.entries(records=False):
            if entry.status in FINISHED:
                continue
            start, fold = time.perf_counter(), make_job(run.recordings, entry, run.options.n_folds).fold
            predicted = torch.from_numpy(np.ascontiguousarray(predict_held_out(run.recordings, entry.setting, fold).T))
            record = Record(  # without scores of classes, and without epochs
                best_epoch=1, epochs=1, validation_score=math.nan, test_score=math.nan, validation_confusion=nothing,
                test_confusion=nothing, history={name: [] for name in HISTORY}, seconds=time.perf_counter() - start,
                population=1,
            )  # fmt: skip
            run.database.finish(entry.key, record, save({LOG_PROBS: predicted}))
            bar.add_results([entry.setting.max_epochs], [False])
            raise_if_stop_requested()


def train_halves(run: Work, population: OpenPopulation, reason: str) -> None:
    """Train the halves of a population that did not fit into memory; a single member that does not is an error."""
    statuses = run.database.statuses()
    todo = [key for key in population.keys if statuses[key] not in FINISHED]
    if len(todo) < 2:
        raise make_memory_error(reason)
    run.database.halve_population(population.number, todo[: len(todo) // 2], todo[len(todo) // 2 :])


def tensors_of(outcome: Outcome) -> bytes:
    """Return weights of both snapshots and of the last epoch, with log-probabilities of the held-out rows, as
    safetensors."""
    states = {"best": outcome.state, "final": outcome.final_state}
    if outcome.swapped is not None:
        states["swapped"] = outcome.swapped.state
    tensors = {f"{kind}.{name}": t.contiguous() for kind, state in states.items() for name, t in state.items()}
    return save(tensors | {LOG_PROBS: outcome.held_out_log_probs.contiguous()})
