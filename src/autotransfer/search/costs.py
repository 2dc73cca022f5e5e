"""How long trainings take on this machine: a few steps of every network are timed, not whole epochs, so that it takes
seconds. Every estimate of time rests on this."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..folds import Fold, Rows, groups_of, leave_groups_out
from ..jobs import Job
from ..machine import waited
from ..model.encoders import Encoders
from ..model.solved import SolvedOptions
from ..recordings import Recordings
from ..runs.executor import DTYPE
from ..runs.options import RunOptions
from ..settings import Setting
from ..training.allocator import memory_kept
from ..training.batches import n_batches
from ..training.closed_form import population_of
from ..training.packing import member_bytes, pack, resolve_device
from ..training.trainer import Trainer
from ..training.windows import release, windows_for
from .kinds import NetworkSpec, candidates_of, network_spec

TIMED_MEMBERS = 10  # trained in one stack at most, as in a run: alone each would take longer
TIMED_STEPS = 2
TIMED_EPOCHS = 3  # the first includes the work that is done once; of the others the fastest counts
TIMED_ROWS = (128, 1024)  # windows of a fold that a closed form is solved on: few, and more where that is quick
QUICK = 0.1  # seconds; closed forms that take longer are timed on twice the few windows
PENALTY = 1.4  # times longer with a penalty than without
WRITING = 0.01  # seconds for each training in the ledger


@dataclass(frozen=True)
class Speed:
    """Seconds that one training of a network takes on this machine, in a stack of several."""

    step: float
    row: float  # a held-out window in every epoch


@dataclass(frozen=True)
class SolvingSpeed:
    """Seconds that a closed form takes on this machine."""

    once: float  # for all folds together
    fold: float  # for each fold, however many windows there are
    row: float  # for each window of a fold


@dataclass(frozen=True)
class Costs:
    """Seconds and memory of a run's trainings, from the speed of each network and of each closed form."""

    recordings: Recordings
    speeds: dict[NetworkSpec, Speed | SolvingSpeed]
    largest: int = 0  # bytes of the largest training
    busy: float = 1.0  # how much longer everything takes than on an idle machine

    @classmethod
    def measure(
        cls,
        recordings: Recordings,
        options: RunOptions,
        encoders: Encoders | None = None,
        settings: Sequence[Setting] | None = None,
    ) -> Costs:
        """options: resolved for these recordings; later questions may be about other epochs and folds. settings: those
        to time; None: all that the options ask for."""
        device = resolve_device(options.device)
        every = candidates_of(options, recordings).every if settings is None else list(settings)
        sample = {network_spec(setting): setting for setting in reversed(every)}  # the first of each, without a penalty
        folds = leave_groups_out(recordings, options.n_folds)[:TIMED_MEMBERS]
        speeds: dict[NetworkSpec, Speed | SolvingSpeed] = {}
        largest, cpu, queue = 0, time.process_time(), waited()
        try:
            with memory_kept():
                for alike in _alike(sample).values():
                    settings = [sample[spec] for spec in alike]
                    if settings[0].network.closed_form:
                        speed: Speed | SolvingSpeed = _solved(recordings, settings, folds[:2], device, encoders)
                        jobs = [Job(setting, folds[0]) for setting in settings]
                    else:
                        # Without averaged weights: these are made once, at the end.
                        short = settings[0].replace(max_epochs=TIMED_EPOCHS, checkpoint="last")
                        jobs = [Job(short, fold) for fold in folds]
                        program = pack(recordings, jobs, "auto", device=device, dtype=DTYPE, encoders=encoders)[0]
                        jobs = [jobs[place] for place in program]
                        speed = _trained(recordings, jobs, device, encoders)
                    speeds |= dict.fromkeys(alike, speed)
                    largest = max(largest, *(member_bytes(recordings, job, DTYPE, encoders) for job in jobs))
        finally:
            release(recordings)
        ran, queued = time.process_time() - cpu, waited() - queue
        return cls(recordings, speeds, largest, (ran + queued) / ran if ran > 0 else 1.0)

    def training(self, setting: Setting, options: RunOptions) -> float:
        """Seconds of one training of a run with these options."""
        n, people = self.recordings.n_trials, self.recordings.n_subjects
        held_out = n * people_held_out(self.recordings, options) / people
        speed = self.speeds[network_spec(setting)]
        if isinstance(speed, SolvingSpeed):
            return speed.fold + n * speed.row + WRITING
        steps = n_batches(int(n - held_out), setting.training.batch_size)
        factor = 1.0 if setting.penalty is None else PENALTY
        return setting.max_epochs * (steps * factor * speed.step + held_out * speed.row) + WRITING

    def stage(self, settings: Sequence[Setting], folds: int, options: RunOptions) -> float:
        """Seconds of a training of each setting on every fold. Work that is done once for all folds is done once for
        settings that share it, too."""
        speeds = [self.speeds.get(spec) for spec in {network_spec(setting) for setting in settings}]
        once = sum(speed.once for speed in speeds if isinstance(speed, SolvingSpeed))
        return once + folds * sum(self.training(setting, options) for setting in settings)

    def bytes(self, options: RunOptions, encoders: Encoders | None = None) -> int:
        """Memory that a run takes."""
        fold = leave_groups_out(self.recordings, options.n_folds)[0]
        jobs = [Job(setting, fold) for setting in candidates_of(options, self.recordings).networks]
        device = resolve_device(options.device)
        packs = pack(self.recordings, jobs, options.population, device=device, dtype=DTYPE, encoders=encoders)
        return 2 * self.recordings.X.numel() * DTYPE.itemsize + max(map(len, packs)) * self.largest


def people_held_out(recordings: Recordings, options: RunOptions) -> int:
    """How many people one training holds out."""
    return sum(map(len, groups_of(recordings, options.n_folds)[:2]))


def _trained(recordings: Recordings, jobs: Sequence[Job], device: torch.device, encoders: Encoders | None) -> Speed:
    """Time a few steps of a stack of networks."""
    population = _population(recordings, jobs, device, encoders)
    training, evaluation = [], []
    for _ in range(TIMED_EPOCHS):
        start = time.perf_counter()
        population.train_epoch(TIMED_STEPS)
        between = time.perf_counter()
        population.evaluate()
        _ = population.snapshots.loss.tolist()  # waits for the device
        training.append(between - start)
        evaluation.append(time.perf_counter() - between)
    batch_size = jobs[0].setting.training.batch_size
    held_out = sum(len(job.fold.validation) + len(job.fold.test) for job in jobs)
    steps = sum(min(n_batches(len(job.fold.train), batch_size), TIMED_STEPS) for job in jobs)
    return Speed(min(training) / steps, min(evaluation) / held_out)


def _alike(specs: Iterable[NetworkSpec]) -> dict[object, list[NetworkSpec]]:
    """Closed forms that differ in their shrinkage only, and share all other work, in one group; each network in its
    own."""
    alike: dict[object, list[NetworkSpec]] = {}
    for spec in specs:
        solved = isinstance(spec.network, SolvedOptions)
        alike.setdefault((spec.encoder, spec.preprocessing) if solved else spec, []).append(spec)
    return alike


def _solved(
    recordings: Recordings, settings: Sequence[Setting], folds: Sequence[Fold], device: torch.device,
    encoders: Encoders | None,
) -> SolvingSpeed:  # fmt: skip
    """Time closed forms that are alike on parts of two folds, of which the first includes the work that is done once.
    The speed is that of one of them."""

    def seconds(fold: Fold, rows: int) -> tuple[int, float]:
        start, part = time.perf_counter(), _part(fold, rows)
        population = _population(recordings, [Job(setting, part) for setting in settings], device, encoders)
        population.train_epoch()
        population.evaluate()
        _ = population.snapshots.loss.tolist()
        return len(part.train) + len(part.validation) + len(part.test), time.perf_counter() - start

    few, more = TIMED_ROWS
    _, first = seconds(folds[0], few)
    rows, short = seconds(folds[-1], few)
    many, long = seconds(folds[-1], more if short < QUICK else 2 * few)
    row = max(0.0, long - short) / max(1, many - rows)
    fold = short - rows * row
    share = 1 / len(settings)
    return SolvingSpeed(share * max(0.0, first - short), share * max(0.0, fold), share * row)


def _population(
    recordings: Recordings, jobs: Sequence[Job], device: torch.device, encoders: Encoders | None
) -> Trainer:
    windows = windows_for(recordings, jobs[0], device=device, dtype=DTYPE)
    return population_of(jobs, windows, encoders)


def _part(fold: Fold, rows: int) -> Fold:
    """A fold of at most so many rows, spread over everybody."""
    share = min(1.0, rows / (len(fold.train) + len(fold.validation) + len(fold.test)))

    def some(every: Rows) -> Rows:
        places = np.linspace(0, len(every) - 1, math.ceil(share * len(every))).round().astype(int)
        return np.asarray(every[np.unique(places)])

    return Fold(some(fold.train), some(fold.validation), some(fold.test), fold.validation_subject, fold.test_subject)
