"""Training of jobs: `train` stacks jobs into populations, `run` is the training loop."""

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


def run(
    population: Trainer,
    *,
    after_epoch: Callable[[Trainer], None] | None = None,
) -> Iterator[Outcome]:
    """Train a population to its end and yield outcomes. Finished members leave the stack."""
    with keep_freed_memory():
        while population.jobs:
            start = time.perf_counter()
            population.train_epoch()
            population.evaluate()
            finished = population.find_finished()
            share = (time.perf_counter() - start) / (len(population.jobs) - len(population.finished_members))
            for member in set(range(len(population.jobs))) - population.finished_members:
                population.seconds[member] += share
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
    place = resolve_device(device)
    check_jobs(recordings, jobs)
    unique: dict[tuple[object, ...], Job] = {}
    for job in jobs:
        unique.setdefault(job.trajectory, job)
    todo = list(unique.values())
    done: dict[tuple[object, ...], Outcome] = {}
    packs = pack(recordings, todo, population, device=place, dtype=dtype, encoders=encoders)
    stacks = [[todo[position] for position in positions] for positions in packs]
    total = sum(job.setting.max_epochs for job in todo)
    with Progress(total, len(todo), visible=progress) as bar:

        def train_stack(members: list[Job]) -> None:
            windows = prepare_windows(recordings, members[0], device=place, dtype=dtype)
            stack = make_population(members, windows, encoders)
            for outcome in run(stack, after_epoch=bar.add_epoch):
                done[outcome.job.trajectory] = outcome
                bar.add_outcome(outcome)

        try:
            while stacks:
                members = stacks.pop(0)
                try:
                    train_stack(members)
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                    remaining = [job for job in members if job.trajectory not in done]
                    if len(remaining) < 2:
                        raise make_memory_error(first_line(error)) from None
                    half = len(remaining) // 2
                    stacks[:0] = [remaining[:half], remaining[half:]]
        finally:
            release_windows(recordings)
    return [_match_fold(job, done[job.trajectory]) for job in jobs]


def check_jobs(recordings: Recordings, jobs: Sequence[Job]) -> None:
    """Raise UserError for jobs that cannot be trained on these recordings."""
    check_recordings(recordings, "train")
    seen: set[str] = set()
    for job in jobs:
        if not isinstance(job, Job):
            raise UserError(f"train needs Jobs, not {type(job).__name__}; make them with at.Job(setting, fold, seed)")
        check_rate(recordings.sfreq, job.setting.preprocessing.sfreq, "setting")
        if job.fold.key in seen:
            continue
        seen.add(job.fold.key)
        held_out = job.fold.held_out_rows
        rows = np.concatenate([job.fold.train, held_out])
        if ((rows < 0) | (rows >= recordings.n_windows)).any():
            raise UserError(
                f"a fold has rows {rows.min()} to {rows.max()}, but there are {recordings.n_windows} windows; "
                "make the folds from the same recordings"
            )
        if len(both := np.intersect1d(job.fold.train, held_out)):
            raise UserError(
                f"row {int(both[0])} is a training row and a held-out row of a fold ({job.fold}); remove it from one"
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
    subject, seen = recordings.subject.numpy(), set[str]()
    for job in jobs:
        fold = job.fold
        if not job.setting.preprocessing.is_online or fold.trajectory in seen:
            continue
        seen.add(fold.trajectory)
        trains = np.bincount(subject[fold.train], minlength=recordings.n_subjects)
        split = (trains > 0) & (trains < np.bincount(subject, minlength=recordings.n_subjects))
        if split.any():
            name = recordings.subjects[int(split.argmax())]
            raise UserError(
                f"a fold trains on only some windows of subject {name!r}; with standardize, align or center 'online', "
                "leave out whole subjects"
            )


def _match_fold(job: Job, outcome: Outcome) -> Outcome:
    """Return the outcome for the job's own fold, which may be the swapped one."""
    if outcome.job.fold.key == job.fold.key or outcome.swapped is None:
        return outcome
    return replace(outcome.swapped, swapped=replace(outcome, swapped=None))
