"""How long a training takes on this machine. Of networks a few steps are timed, not whole epochs, and closed forms are
solved on parts of two folds, so that it takes seconds."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..folds import Fold, Rows
from ..jobs import Job
from ..model.encoders import Encoders
from ..recordings import Recordings
from ..settings import Setting
from .batches import n_batches
from .closed_form import population_of
from .packing import pack
from .windows import windows_for

TIMED_MEMBERS = 10  # trained in one stack at most, as in a run: alone each would take longer
TIMED_STEPS = 2
TIMED_EPOCHS = 3  # the first includes the work that is done once; of the others the fastest counts
TIMED_ROWS = (128, 1024)  # windows of a fold that a closed form is solved on: few, and more where that is quick
QUICK = 0.1  # seconds; closed forms that take longer are timed on twice the few windows


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


def time_network(
    recordings: Recordings, setting: Setting, folds: Sequence[Fold], device: torch.device, dtype: torch.dtype,
    encoders: Encoders | None,
) -> Speed:  # fmt: skip
    """Time a few steps of a stack of networks."""
    # Without averaged weights: these are made once, at the end.
    short = setting.replace(max_epochs=TIMED_EPOCHS, checkpoint="last")
    every = [Job(short, fold) for fold in folds[:TIMED_MEMBERS]]
    program = pack(recordings, every, "auto", device=device, dtype=dtype, encoders=encoders)[0]
    jobs = [every[place] for place in program]
    windows = windows_for(recordings, jobs[0], device=device, dtype=dtype)
    population = population_of(jobs, windows, encoders)
    training, evaluation = [], []
    for _ in range(TIMED_EPOCHS):
        start = time.perf_counter()
        population.train_epoch(TIMED_STEPS)
        between = time.perf_counter()
        population.evaluate()
        _ = population.snapshots.loss.tolist()  # waits for the device
        training.append(between - start)
        evaluation.append(time.perf_counter() - between)
    batch_size = setting.training.batch_size
    held_out = sum(len(job.fold.validation) + len(job.fold.test) for job in jobs)
    steps = sum(min(n_batches(len(job.fold.train), batch_size), TIMED_STEPS) for job in jobs)
    return Speed(min(training) / steps, min(evaluation) / held_out)


def time_solving(
    recordings: Recordings, settings: Sequence[Setting], folds: Sequence[Fold], device: torch.device,
    dtype: torch.dtype, encoders: Encoders | None,
) -> SolvingSpeed:  # fmt: skip
    """Time closed forms that are alike on parts of two folds, of which the first includes the work that is done once.
    The speed is that of one of them."""

    def seconds(fold: Fold, rows: int) -> tuple[int, float]:
        start, part = time.perf_counter(), _part(fold, rows)
        jobs = [Job(setting, part) for setting in settings]
        windows = windows_for(recordings, jobs[0], device=device, dtype=dtype)
        population = population_of(jobs, windows, encoders)
        population.train_epoch()
        population.evaluate()
        _ = population.snapshots.loss.tolist()
        return len(part.train) + len(part.validation) + len(part.test), time.perf_counter() - start

    few, more = TIMED_ROWS
    _, first = seconds(folds[0], few)
    rows, short = seconds(folds[1], few)
    many, long = seconds(folds[1], more if short < QUICK else 2 * few)
    row = max(0.0, long - short) / (many - rows) if many > rows else 0.0  # else the difference is noise
    fold = short - rows * row
    share = 1 / len(settings)
    return SolvingSpeed(share * max(0.0, first - short), share * max(0.0, fold), share * row)


def _part(fold: Fold, rows: int) -> Fold:
    """A fold of at most so many rows, spread over everybody."""
    share = min(1.0, rows / (len(fold.train) + len(fold.validation) + len(fold.test)))

    def some(every: Rows) -> Rows:
        places = np.linspace(0, len(every) - 1, math.ceil(share * len(every))).round().astype(int)
        return np.asarray(every[np.unique(places)])

    return Fold(some(fold.train), some(fold.validation), some(fold.test), fold.validation_subject, fold.test_subject)
