"""How long trainings take on this machine: a few steps of every network are timed, not whole epochs, so that the answer
takes seconds. Every estimate that a user is told rests on this."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..folds import Fold, Rows, groups_of, leave_groups_out
from ..jobs import Job
from ..model.encoders import Encoders
from ..recordings import Recordings
from ..runs.executor import DTYPE
from ..runs.options import RunOptions
from ..settings import Setting
from ..training.allocator import memory_kept
from ..training.batches import n_batches
from ..training.closed_form import population_of
from ..training.packing import member_bytes, pack, resolve_device
from ..training.windows import release, windows_for
from .kinds import NetworkSpec, closed_forms, network_spec, networks

TIMED_MEMBERS = 10  # trained side by side at most, as a run would: alone each would take longer
TIMED_STEPS = 2
TIMED_EPOCHS = 3  # the first also pays for all that is done once; of the others the fastest counts
TIMED_ROWS = 256  # that a closed form is solved on
PENALTY = 1.4  # times longer with a penalty than without
EFFICIENCY = 0.8  # of threads that work together on a step
WRITING = 0.01  # seconds for each training in the ledger


@dataclass(frozen=True)
class Speed:
    """Seconds that one training takes on this machine, beside others."""

    step: float  # of a network
    row: float  # a held-out window in every epoch; of a closed form a training window, once


class Costs:
    """What trainings of a run cost, from the speed of each network and of each closed form."""

    def __init__(
        self, recordings: Recordings, speeds: dict[NetworkSpec, Speed], largest: int = 0, busy: float = 1.0
    ) -> None:
        """largest: bytes that one training takes at most. busy: how much longer all takes than on a machine that does
        nothing else."""
        self.recordings, self.speeds, self.largest, self.busy = recordings, speeds, largest, busy

    @classmethod
    def measure(cls, recordings: Recordings, options: RunOptions, encoders: Encoders | None = None) -> Costs:
        """options: resolved for these recordings; epochs and folds may differ in what is asked for later."""
        device = resolve_device(options.device)
        every = networks(options, options.settings(), recordings) + closed_forms(
            options, recordings, costly=options.staged
        )
        sample = {
            network_spec(setting): setting for setting in reversed(every)
        }  # without a penalty, where there is one
        folds = leave_groups_out(recordings, options.n_folds)[:TIMED_MEMBERS]
        speeds: dict[NetworkSpec, Speed] = {}
        largest, walls, cpus = 0, 0.0, 0.0
        try:
            with memory_kept():
                for way, setting in sample.items():
                    solved = setting.network.closed_form
                    # without an average: it is made once, at the end
                    short = setting if solved else setting.replace(max_epochs=TIMED_EPOCHS, checkpoint="last")
                    jobs = [Job(short, _shortened(fold, TIMED_ROWS) if solved else fold) for fold in folds]
                    jobs = jobs[:1] if solved else jobs
                    program = pack(recordings, jobs, "auto", device=device, dtype=DTYPE, encoders=encoders)[0]
                    jobs = [jobs[place] for place in program]
                    windows = windows_for(recordings, jobs[0], device=device, dtype=DTYPE)
                    population = population_of(recordings, jobs, windows, DTYPE, encoders)
                    trained, evaluated = [], []
                    for _ in range(1 if solved else TIMED_EPOCHS):
                        cpu, start = time.process_time(), time.perf_counter()
                        population.train_epoch(TIMED_STEPS)
                        between = time.perf_counter()
                        population.evaluate()
                        _ = population.snapshots.loss.tolist()  # waits for the device
                        end = time.perf_counter()
                        trained.append(between - start)
                        evaluated.append(end - between)
                        walls, cpus = walls + end - start, cpus + time.process_time() - cpu
                    speeds[way] = _speed(jobs, min(trained), min(evaluated))
                    largest = max(largest, *(member_bytes(recordings, job, DTYPE, encoders) for job in jobs))
        finally:
            release(recordings)
        alone = cpus / (EFFICIENCY * torch.get_num_threads())  # as long as all of it would take without others
        busy = max(1.0, walls / alone) if device.type == "cpu" and alone > 0 else 1.0
        return cls(recordings, speeds, largest, busy)

    def training(self, setting: Setting, options: RunOptions) -> float:
        """Seconds of one training of a run with these options."""
        n, people = self.recordings.n_trials, self.recordings.n_subjects
        held_out = n * people_held_out(self.recordings, options) / people
        speed = self.speeds[network_spec(setting)]
        if setting.network.closed_form:
            return n * speed.row
        steps = n_batches(int(n - held_out), setting.training.batch_size)
        factor = 1.0 if setting.penalty is None else PENALTY
        return setting.max_epochs * (steps * factor * speed.step + held_out * speed.row) + WRITING

    def bytes(self, options: RunOptions, encoders: Encoders | None = None) -> int:
        """Of memory that a run takes."""
        fold = leave_groups_out(self.recordings, options.n_folds)[0]
        jobs = [Job(setting, fold) for setting in networks(options, options.settings(), self.recordings)]
        device = resolve_device(options.device)
        packs = pack(self.recordings, jobs, options.population, device=device, dtype=DTYPE, encoders=encoders)
        return 2 * self.recordings.X.numel() * DTYPE.itemsize + max(map(len, packs)) * self.largest


def people_held_out(recordings: Recordings, options: RunOptions) -> int:
    """By one training."""
    return sum(map(len, groups_of(recordings, options.n_folds)[:2]))


def _shortened(fold: Fold, rows: int) -> Fold:
    """With so many training rows at most, of everybody, and few held-out ones."""

    def some(every: Rows, most: int) -> Rows:
        places = np.linspace(0, len(every) - 1, min(most, len(every))).round().astype(int)
        return np.asarray(every[np.unique(places)])

    validation, test = (some(rows_of, rows // 2) for rows_of in (fold.validation, fold.test))
    return Fold(some(fold.train, rows), validation, test, fold.validation_subject, fold.test_subject)


def _speed(jobs: Sequence[Job], training: float, evaluation: float) -> Speed:
    setting = jobs[0].setting
    if setting.network.closed_form:
        return Speed(0.0, (training + evaluation) / sum(len(job.fold.train) for job in jobs))
    held_out = sum(len(job.fold.validation) + len(job.fold.test) for job in jobs)
    steps = sum(min(n_batches(len(job.fold.train), setting.training.batch_size), TIMED_STEPS) for job in jobs)
    return Speed(training / steps, evaluation / held_out)
