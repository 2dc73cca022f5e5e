"""Training of jobs: `train` stacks jobs into populations, and `train_population` has the training loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from ..errors import UserError
from ..jobs import Job, Outcome
from ..model.encoders import Encoders
from ..recordings import Recordings
from ..recordings.container import check_recordings
from ..recordings.signal import check_rate
from .allocator import keep_freed_memory
from .closed_form import make_population
from .memory import first_line, is_out_of_memory, make_memory_error
from .outcomes import make_outcome
from .packing import pack, resolve_device
from .progress import Progress
from .trainer import Trainer
from .windows import prepare_windows, release_windows


def train_population(population: Trainer, *, after_epoch: Callable[[Trainer], None] | None = None) -> Iterator[Outcome]:
    """Train a population and yield the outcome of each member when the member has finished."""
    with keep_freed_memory():
        while population.jobs:
            start = time.perf_counter()
            population.train_epoch()
            population.evaluate()
            finished = population.find_finished()
            active_members = set(range(len(population.jobs))) - population.finished_members
            seconds = (time.perf_counter() - start) / len(active_members)
            for member in active_members:
                population.seconds[member] += seconds
            for member, failure in finished.items():
                yield make_outcome(population, member, failure)
            population.remove(finished)
            if after_epoch is not None:
                after_epoch(population)


def train(
    recordings: Recordings,
    jobs: Sequence[Job],
    device: str | torch.device = "auto",
    *,
    population: int | str = "auto",
    dtype: torch.dtype = torch.float32,
    progress: bool | None = None,
    encoders: Encoders | None = None,
) -> list[Outcome]:
    """Train jobs and return their outcomes. The public function is `at.train` (models/outcome.py)."""
    device = resolve_device(device)
    check_jobs(recordings, jobs)
    jobs_by_key: dict[tuple[object, ...], Job] = {}
    for job in jobs:
        jobs_by_key.setdefault(job.fit_key, job)
    unique_jobs = list(jobs_by_key.values())
    outcomes: dict[tuple[object, ...], Outcome] = {}
    packs = pack(recordings, unique_jobs, population, device=device, dtype=dtype, encoders=encoders)
    stacks = [[unique_jobs[position] for position in positions] for positions in packs]
    total = sum(job.setting.max_epochs for job in unique_jobs)
    with Progress(total, len(unique_jobs), visible=progress) as bar:

        def train_stack(members: list[Job]) -> None:
            windows = prepare_windows(recordings, members[0], device=device, dtype=dtype)
            stack = make_population(members, windows, encoders)
            for outcome in train_population(stack, after_epoch=bar.add_epoch):
                outcomes[outcome.job.fit_key] = outcome
                bar.add_outcome(outcome)

        try:
            while stacks:
                members = stacks.pop(0)
                try:
                    train_stack(members)
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                    remaining = [job for job in members if job.fit_key not in outcomes]
                    if len(remaining) < 2:
                        raise make_memory_error(first_line(error)) from None
                    half = len(remaining) // 2
                    stacks[:0] = [remaining[:half], remaining[half:]]
        finally:
            release_windows(recordings)
    return [_match_fold(job, outcomes[job.fit_key]) for job in jobs]


def check_jobs(recordings: Recordings, jobs: Sequence[Job]) -> None:
    """Raise UserError for jobs that cannot be trained on these recordings."""
    check_recordings(recordings, "train")
    checked_folds: set[str] = set()
    for job in jobs:
        if not isinstance(job, Job):
            raise UserError(f"train needs Jobs, not {type(job).__name__}; make them with at.Job(setting, fold, seed)")
        check_rate(recordings.sfreq, job.setting.preprocessing.sfreq, "setting")
        if job.fold.key in checked_folds:
            continue
        checked_folds.add(job.fold.key)
        held_out = job.fold.held_out_rows
        rows = np.concatenate([job.fold.train, held_out])
        if ((rows < 0) | (rows >= recordings.n_windows)).any():
            raise UserError(
                f"a fold has rows {rows.min()} to {rows.max()}, but there are {recordings.n_windows} windows; "
                "make the folds from the same recordings"
            )
        if len(shared := np.intersect1d(job.fold.train, held_out)):
            raise UserError(
                f"row {int(shared[0])} is a training row and a held-out row of a fold ({job.fold}); remove it from one"
            )
        if len(job.fold.train) < 2:
            raise UserError(f"a fold has fewer than 2 training rows ({job.fold}); batch normalization needs more")
        if len(job.fold.validation) == 0 and job.setting.training.checkpoint == "best":
            raise UserError(
                f"a fold has no validation rows to select the best epoch with ({job.fold}); use checkpoint='last' or "
                "hold out a subject"
            )
    _check_whole_subjects(recordings, jobs)


def _check_whole_subjects(recordings: Recordings, jobs: Sequence[Job]) -> None:
    """Raise UserError for folds that split a training subject if the preprocessing adapts online."""
    subject, checked_folds = recordings.subject.numpy(), set[str]()
    for job in jobs:
        fold = job.fold
        if not job.setting.preprocessing.is_online or fold.training_key in checked_folds:
            continue
        checked_folds.add(fold.training_key)
        n_training = np.bincount(subject[fold.train], minlength=recordings.n_subjects)
        is_split = (n_training > 0) & (n_training < np.bincount(subject, minlength=recordings.n_subjects))
        if is_split.any():
            name = recordings.subjects[int(is_split.argmax())]
            raise UserError(
                f"a fold trains on only some windows of subject {name!r}; with standardize, align or center 'online', "
                "leave out whole subjects"
            )


def _match_fold(job: Job, outcome: Outcome) -> Outcome:
    """Return the outcome for the fold of the job, which may be the swapped fold of the outcome."""
    if outcome.job.fold.key == job.fold.key or outcome.swapped is None:
        return outcome
    return replace(outcome.swapped, swapped=replace(outcome, swapped=None))
