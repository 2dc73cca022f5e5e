"""Executors, which train the jobs of a run in this process. `cluster` has an executor for Dask workers."""

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
from ..jobs import CURVES, Job, Outcome, Record
from ..model.encoders import Encoders
from ..recordings import Recordings
from ..training.closed_form import make_population
from ..training.memory import first_line, is_out_of_memory, make_memory_error
from ..training.packing import resolve_device
from ..training.progress import Progress
from ..training.ridge import predict_held_out
from ..training.train import train_population
from ..training.trainer import Trainer
from ..training.windows import prepare_windows, release_windows
from .checkpoint import restore_population, save_checkpoint
from .database import FINISHED, Entry, OpenPopulation, RunDatabase
from .options import RunOptions
from .signals import delay_signals, is_stop_requested, raise_if_stop_requested

DTYPE = torch.float32
PREDICTIONS = "predictions"  # tensor of a finished job: log-probabilities or predicted values of held-out windows
CHECKPOINT_EVERY = 5.0  # seconds between two writes of a checkpoint file
MIN_ELAPSED_SHARE = 0.2  # share of the time of a stage after which its remaining time is estimated


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
    groups = [*groups_of(recordings, folds), []]  # the last group is for regression, without validation subjects
    fold = make_fold(recordings, groups[entry.validation], groups[entry.test])
    return Job(entry.setting, fold, entry.seed)


class Executor(Protocol):
    """Interface of an executor."""

    workers: int  # number of populations that are trained at the same time

    def device(self, name: str) -> torch.device:
        """Return the device whose memory limits a population."""

    def train(self, run: TrainableRun, entries: Sequence[Entry], bar: Progress) -> None:
        """Train the unfinished jobs of a run and store each result at once. entries: all jobs of the run."""


class TimeLimitReached(Exception):
    """Raised if a stage cannot be completed within the time limit."""


class LocalExecutor:
    """Executor that trains one population after another in this process, and updates a checkpoint file."""

    workers = 1
    until = math.inf  # time of the monotonic clock at which training stops, after the checkpoint file is written

    def device(self, name: str) -> torch.device:
        return resolve_device(name)

    def train(self, run: TrainableRun, entries: Sequence[Entry], bar: Progress) -> None:
        by_key = {entry.key: entry for entry in entries}
        device = resolve_device(run.options.device)
        try:
            while populations := run.database.open_populations():
                first = populations[0]
                try:
                    self._train(run, by_key, first, device, bar)
                    continue
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                    reason = first_line(error)
                # Memory is freed after the except block, because the error refers to frames with tensors.
                if device.type == "cuda":
                    torch.cuda.empty_cache()
                split_population(run, first, reason)
                (run.folder / f"population-{first.number}.checkpoint").unlink(missing_ok=True)
        finally:
            release_windows(run.recordings)

    def _train(
        self, run: TrainableRun, by_key: dict[str, Entry], stored: OpenPopulation, device: torch.device, bar: Progress
    ) -> None:
        """Train one population, from its checkpoint file if there is one."""
        path = run.folder / f"population-{stored.number}.checkpoint"
        statuses = run.database.statuses()
        keys = [key for key in stored.keys if statuses[key] not in FINISHED]
        if keys:
            if self._is_late(bar, 0.0):
                raise TimeLimitReached
            all_keys = stored.keys if path.exists() else keys  # the checkpoint file may contain finished jobs
            jobs = {key: make_job(run.recordings, by_key[key], run.options.n_folds) for key in all_keys}
            with delay_signals():
                self._train_members(run, jobs, keys, path, device, bar)
        path.unlink(missing_ok=True)
        run.database.end_population(stored.number)

    def _train_members(
        self, run: TrainableRun, jobs: dict[str, Job], keys: list[str], path: Path, device: torch.device, bar: Progress
    ) -> None:
        population, key_of_job = self._load_population(run, jobs, keys, path, device)
        bar.subtract_finished(population)
        checkpoint_time = epoch_start = time.monotonic()

        def finish_epoch(population: Trainer) -> None:
            nonlocal checkpoint_time, epoch_start
            bar.add_epoch(population)
            epoch_seconds, epoch_start = time.monotonic() - epoch_start, time.monotonic()
            is_late = self._is_late(bar, epoch_seconds)
            is_due = is_late or is_stop_requested() or time.monotonic() - checkpoint_time > CHECKPOINT_EVERY
            if population.jobs and is_due:
                save_checkpoint(path, population, [key_of_job[id(job)] for job in population.jobs])
                if math.isfinite(bar.seconds_left):
                    run.database.store_facts(stage_seconds_left=[bar.seconds_left, time.time()])
                checkpoint_time = time.monotonic()
            if population.jobs and is_late:
                raise TimeLimitReached
            raise_if_stop_requested()

        for outcome in train_population(population, after_epoch=finish_epoch):
            key = key_of_job[id(outcome.job)]
            run.database.finish(key, outcome.record(), serialize_outcome(outcome))
            bar.add_outcome(outcome)

    def _is_late(self, bar: Progress, epoch_seconds: float) -> bool:
        """Return whether the next epoch, or the stage at its current speed, would end after the time limit."""
        seconds_left, spent = self.until - time.monotonic() - epoch_seconds, time.perf_counter() - bar.start
        is_known = math.isfinite(bar.seconds_needed) and spent > MIN_ELAPSED_SHARE * (spent + seconds_left)
        return seconds_left < 0 or (is_known and bar.seconds_needed > seconds_left)

    def _load_population(
        self, run: TrainableRun, jobs: dict[str, Job], keys: list[str], path: Path, device: torch.device
    ) -> tuple[Trainer, dict[int, str]]:
        """Return the population of unfinished jobs, restored if possible, and job keys by the id of each `Job`."""
        windows = prepare_windows(run.recordings, jobs[keys[0]], device=device, dtype=DTYPE)
        restored = restore_population(jobs, windows, path, run.encoders)
        if restored is not None and set(keys) <= set(restored[1]):
            population, restored_keys = restored
            indices = [index for index, key in enumerate(restored_keys) if key in keys]
            population.select(indices)
            keys = [restored_keys[index] for index in indices]
        else:
            run.database.begin(keys)
            population = make_population([jobs[key] for key in keys], windows, run.encoders)
        return population, {id(job): key for job, key in zip(population.jobs, keys, strict=True)}


class RegressionExecutor(LocalExecutor):
    """Executor that fits linear models of a continuous target, one job after another."""

    def train(self, run: TrainableRun, entries: Sequence[Entry], bar: Progress) -> None:
        no_confusion = np.zeros((1, 1), dtype=np.int64)
        for entry in entries:
            if entry.status in FINISHED:
                continue
            start, fold = time.perf_counter(), make_job(run.recordings, entry, run.options.n_folds).fold
            predictions = predict_held_out(run.recordings, entry.setting, fold).T
            record = Record(  # a record without class scores and learning curves
                best_epoch=1, epochs=1, validation_score=math.nan, test_score=math.nan, population=1,
                validation_confusion=no_confusion, test_confusion=no_confusion,
                history={name: [] for name in CURVES}, seconds=time.perf_counter() - start,
            )  # fmt: skip
            tensors = {PREDICTIONS: torch.from_numpy(np.ascontiguousarray(predictions))}
            run.database.finish(entry.key, record, save(tensors))
            bar.add_results([entry.setting.max_epochs], [False])
            raise_if_stop_requested()


def split_population(run: TrainableRun, population: OpenPopulation, reason: str) -> None:
    """Replace a population that did not fit into memory by its halves; raise if a single member did not fit."""
    statuses = run.database.statuses()
    keys = [key for key in population.keys if statuses[key] not in FINISHED]
    if len(keys) < 2:
        raise make_memory_error(reason)
    run.database.halve_population(population.number, keys[: len(keys) // 2], keys[len(keys) // 2 :])


def serialize_outcome(outcome: Outcome) -> bytes:
    """Return weights of both checkpoints and the last epoch, and held-out log-probabilities, as safetensors bytes."""
    states = {"best": outcome.state, "final": outcome.final_state}
    if outcome.swapped is not None:
        states["swapped"] = outcome.swapped.state
    tensors = {f"{prefix}.{name}": t.contiguous() for prefix, state in states.items() for name, t in state.items()}
    return save(tensors | {PREDICTIONS: outcome.held_out_log_probs.contiguous()})
