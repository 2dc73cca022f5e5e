"""Executors train the jobs of a run: in this process here, on Dask workers in `cluster`."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
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
from .signals import delay_signals, is_stop_requested, raise_if_stop_requested

DTYPE = torch.float32
PREDICTIONS = "predictions"  # tensor of a finished job: log-probabilities, or numbers, of held-out windows
CHECKPOINT_EVERY = 5.0  # seconds between checkpoints: a kill loses at most as much training
PACE_KNOWN_AFTER = 0.2  # share of a stage's time, after which its remaining time is estimated


class TrainableRun(Protocol):
    """Interface of a run for an executor."""

    folder: Path
    database: RunDatabase
    options: RunOptions
    encoders: Encoders | None

    @property
    def recordings(self) -> Recordings: ...


def make_job(recordings: Recordings, entry: Entry, folds: int | None = None) -> Job:
    """Return the job of a database entry."""
    groups = [*groups_of(recordings, folds), []]  # the last group is empty: regression has no validation subjects
    fold = make_fold(recordings, groups[entry.validation], groups[entry.test])
    return Job(entry.setting, fold, entry.seed)


class Executor(Protocol):
    """Interface of an executor."""

    workers: int  # number of populations that are trained at a time

    def device(self, name: str) -> torch.device:
        """Return the device whose memory limits a population."""

    def train(self, run: TrainableRun, entries: Sequence[Entry], bar: Progress) -> None:
        """Train the unfinished jobs of a run and store each result at once. entries: all jobs of the run."""


class TimeLimitReached(Exception):
    """Raised if a stage cannot be completed within the time limit."""


class LocalExecutor:
    """Executor in this process: trains one population after another, with a checkpoint every few seconds."""

    workers = 1
    until = math.inf  # time of the monotonic clock at which training stops with a checkpoint

    def device(self, name: str) -> torch.device:
        return resolve_device(name)

    def train(self, run: TrainableRun, entries: Sequence[Entry], bar: Progress) -> None:
        known = {entry.key: entry for entry in entries}
        device = resolve_device(run.options.device)
        try:
            while populations := run.database.open_populations():
                first = populations[0]
                try:
                    self._train(run, known, first, device, bar)
                    continue
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                    reason = first_line(error)
                # Memory is freed only here, where nothing refers to the error and its frames.
                if device.type == "cuda":
                    torch.cuda.empty_cache()
                split_population(run, first, reason)
                (run.folder / f"population-{first.number}.checkpoint").unlink(missing_ok=True)
        finally:
            release_windows(run.recordings)

    def _train(
        self, run: TrainableRun, known: dict[str, Entry], listed: OpenPopulation, device: torch.device, bar: Progress
    ) -> None:
        """Train one population, from its checkpoint if it has one."""
        path = run.folder / f"population-{listed.number}.checkpoint"
        statuses = run.database.statuses()
        todo = [key for key in listed.keys if statuses[key] not in FINISHED]
        if todo:
            if time.monotonic() > self.until:
                raise TimeLimitReached
            in_checkpoint = listed.keys if path.exists() else todo  # some may have finished since
            jobs = {key: make_job(run.recordings, known[key], run.options.n_folds) for key in in_checkpoint}
            with delay_signals():
                self._train_members(run, jobs, todo, path, device, bar)
        path.unlink(missing_ok=True)
        run.database.end_population(listed.number)

    def _train_members(
        self, run: TrainableRun, jobs: dict[str, Job], todo: list[str], path: Path, device: torch.device, bar: Progress
    ) -> None:
        population, members = self._population(run, jobs, todo, path, device)
        bar.subtract_finished(population)
        last = time.monotonic()

        def after_epoch(population: Trainer) -> None:
            nonlocal last
            bar.add_epoch(population)
            is_late = self._is_late(bar)
            due = is_late or is_stop_requested() or time.monotonic() - last > CHECKPOINT_EVERY
            if population.jobs and due:
                save_checkpoint(path, population, [members[id(job)] for job in population.jobs])
                if math.isfinite(bar.seconds_left):
                    run.database.store_facts(stage_seconds_left=[bar.seconds_left, time.time()])
                last = time.monotonic()
            if population.jobs and is_late:
                raise TimeLimitReached
            raise_if_stop_requested()

        for outcome in train_population(population, after_epoch=after_epoch):
            key = members[id(outcome.job)]
            run.database.finish(key, outcome.record(), tensors_of(outcome))
            bar.add_outcome(outcome)

    def _is_late(self, bar: Progress) -> bool:
        """Return whether time is over, or the stage's finished fits show that the time left does not suffice."""
        seconds_left, spent = self.until - time.monotonic(), time.perf_counter() - bar.start
        is_known = math.isfinite(bar.seconds_needed) and spent > PACE_KNOWN_AFTER * (spent + seconds_left)
        return seconds_left < 0 or (is_known and bar.seconds_needed > seconds_left)

    def _population(
        self, run: TrainableRun, jobs: dict[str, Job], todo: list[str], path: Path, device: torch.device
    ) -> tuple[Trainer, dict[int, str]]:
        """Return the population of the jobs to do, restored if possible, and the key of each by the id of its Job."""
        windows = prepare_windows(run.recordings, jobs[todo[0]], device=device, dtype=DTYPE)
        restored = restore(jobs, windows, path, run.encoders)
        if restored is not None and set(todo) <= set(restored[1]):
            population, keys = restored
            unfinished = [place for place, key in enumerate(keys) if key in todo]
            population.select(unfinished)
            keys = [keys[place] for place in unfinished]
        else:
            run.database.begin(todo)
            population = make_population([jobs[key] for key in todo], windows, run.encoders)
            keys = todo
        return population, {id(job): key for job, key in zip(population.jobs, keys, strict=True)}


class RegressionExecutor(LocalExecutor):
    """Executor of linear models of a continuous target: fits one job after another."""

    def train(self, run: TrainableRun, entries: Sequence[Entry], bar: Progress) -> None:
        nothing = np.zeros((1, 1), dtype=np.int64)
        for entry in entries:
            if entry.status in FINISHED:
                continue
            start, fold = time.perf_counter(), make_job(run.recordings, entry, run.options.n_folds).fold
            predicted = torch.from_numpy(np.ascontiguousarray(predict_held_out(run.recordings, entry.setting, fold).T))
            record = Record(  # a record without class scores and learning curves
                best_epoch=1, epochs=1, validation_score=math.nan, test_score=math.nan, validation_confusion=nothing,
                test_confusion=nothing, history={name: [] for name in HISTORY}, seconds=time.perf_counter() - start,
                population=1,
            )  # fmt: skip
            run.database.finish(entry.key, record, save({PREDICTIONS: predicted}))
            bar.add_results([entry.setting.max_epochs], [False])
            raise_if_stop_requested()


def split_population(run: TrainableRun, population: OpenPopulation, reason: str) -> None:
    """Replace a population that did not fit into memory by its halves; raise if a single member did not fit."""
    statuses = run.database.statuses()
    todo = [key for key in population.keys if statuses[key] not in FINISHED]
    if len(todo) < 2:
        raise make_memory_error(reason)
    run.database.halve_population(population.number, todo[: len(todo) // 2], todo[len(todo) // 2 :])


def tensors_of(outcome: Outcome) -> bytes:
    """Return weights of both snapshots and the last epoch, and held-out log-probabilities, as safetensors bytes."""
    states = {"best": outcome.state, "final": outcome.final_state}
    if outcome.swapped is not None:
        states["swapped"] = outcome.swapped.state
    tensors = {f"{kind}.{name}": t.contiguous() for kind, state in states.items() for name, t in state.items()}
    return save(tensors | {PREDICTIONS: outcome.held_out_log_probs.contiguous()})
