"""How long trainings take on this machine: a few steps of every network are timed, not whole epochs, so that it takes
seconds. Every estimate of time rests on this."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..folds import Fold, Rows
from ..jobs import Job
from ..machine import waited
from ..model.encoders import Encoders
from ..model.solved import SolvedOptions
from ..recordings import Recordings
from ..runs.executor import DTYPE
from ..runs.preparation import Preparation
from ..settings import NetworkSpec, Setting
from ..training.allocator import memory_kept
from ..training.batches import n_batches
from ..training.closed_form import population_of
from ..training.packing import member_bytes, pack
from ..training.trainer import Trainer
from ..training.windows import release, windows_for

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
    """Seconds of a run's trainings, from the speed of each network and of each closed form."""

    recordings: Recordings
    speeds: dict[NetworkSpec, Speed | SolvingSpeed]
    busy: float = 1.0  # how much longer everything takes than on an idle machine

    @classmethod
    def measure(cls, prepared: Preparation, settings: Sequence[Setting]) -> Costs:
        """Time these settings; later questions may be about other epochs and folds."""
        recordings, encoders = prepared.recordings, prepared.encoders
        device, folds = prepared.device, prepared.folds[:TIMED_MEMBERS]
        sample = {setting.network_spec: setting for setting in reversed(settings)}  # the first, without a penalty
        speeds: dict[NetworkSpec, Speed | SolvingSpeed] = {}
        cpu, queue = time.process_time(), waited()
        try:
            with memory_kept():
                for alike in _alike(sample).values():
                    forms = [sample[spec] for spec in alike]
                    if forms[0].network.closed_form:
                        speed: Speed | SolvingSpeed = _solved(recordings, forms, folds[:2], device, encoders)
                    else:
                        # Without averaged weights: these are made once, at the end.
                        short = forms[0].replace(max_epochs=TIMED_EPOCHS, checkpoint="last")
                        jobs = [Job(short, fold) for fold in folds]
                        program = pack(recordings, jobs, "auto", device=device, dtype=DTYPE, encoders=encoders)[0]
                        speed = _trained(recordings, [jobs[place] for place in program], device, encoders)
                    speeds |= dict.fromkeys(alike, speed)
        finally:
            release(recordings)
        ran, queued = time.process_time() - cpu, waited() - queue
        return cls(recordings, speeds, (ran + queued) / ran if ran > 0 else 1.0)

    def training(self, setting: Setting, held_out: int) -> float:
        """Seconds of one training that holds out so many people."""
        n, people = self.recordings.n_trials, self.recordings.n_subjects
        speed = self.speeds[setting.network_spec]
        if isinstance(speed, SolvingSpeed):
            return speed.fold + n * speed.row + WRITING
        rows = n * held_out / people
        steps = n_batches(int(n - rows), setting.training.batch_size)
        factor = 1.0 if setting.penalty is None else PENALTY
        return setting.max_epochs * (steps * factor * speed.step + rows * speed.row) + WRITING

    def stage(self, settings: Sequence[Setting], groups: Sequence[Sequence[int]]) -> float:
        """Seconds of a training of each setting on every fold. Work that is done once for all folds is done once for
        settings that share it, too. groups: who are held out together."""
        speeds = [self.speeds.get(spec) for spec in {setting.network_spec for setting in settings}]
        once = sum(speed.once for speed in speeds if isinstance(speed, SolvingSpeed))
        held_out = sum(map(len, groups[:2]))
        return once + len(groups) * sum(self.training(setting, held_out) for setting in settings)


def memory_of(prepared: Preparation, settings: Sequence[Setting]) -> int:
    """Bytes that a run of these settings takes."""
    recordings, encoders, fold = prepared.recordings, prepared.encoders, prepared.folds[0]
    jobs = [Job(setting, fold) for setting in settings]
    packs = pack(recordings, jobs, prepared.options.population, device=prepared.device, dtype=DTYPE, encoders=encoders)
    largest = max(sum(member_bytes(recordings, jobs[place], DTYPE, encoders) for place in places) for places in packs)
    return 2 * recordings.X.numel() * DTYPE.itemsize + largest


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
