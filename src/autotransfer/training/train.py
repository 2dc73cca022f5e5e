"""Jobs in, outcomes out. The loop is `run`; everything before it is packing."""

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
from ..recordings.windows import check_rate
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
    """Train a population to its end; outcomes come as members finish, and finished members leave the stack."""
    with keep_freed_memory():
        while population.jobs:
            start = time.perf_counter()
            population.train_epoch()
            population.evaluate()
            over = population.find_finished()
            share = (time.perf_counter() - start) / (len(population.jobs) - len(population.finished_members))
            for member in set(range(len(population.jobs))) - population.finished_members:
                population.seconds[member] += share
            for member, failure in over.items():
                yield make_outcome(population, member, failure)
            population.remove(over)
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
    """Train jobs for `at.train` (models/outcome.py), which gives outcomes that can be made into models."""
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
    with Progress(total, len(todo), shown=progress) as bar:

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
                    left = [job for job in members if job.trajectory not in done]
                    if len(left) < 2:
                        raise make_memory_error(first_line(error)) from None
                    stacks[:0] = [left[: len(left) // 2], left[len(left) // 2 :]]
        finally:
            release_windows(recordings)
    return [_as_asked(job, done[job.trajectory]) for job in jobs]


def check_jobs(recordings: Recordings, jobs: Sequence[Job]) -> None:
    """Refuse, before any work, jobs that do not belong to these recordings."""
    check_recordings(recordings, "train")
    seen: set[str] = set()
    for job in jobs:
        if not isinstance(job, Job):
            raise UserError(f"train needs Jobs, not {type(job).__name__}; make them with at.Job(setting, fold, seed)")
        check_rate(recordings.sfreq, job.setting.preprocessing.sfreq, 1e-6, "setting")
        if job.fold.key in seen:
            continue
        seen.add(job.fold.key)
        held_out = job.fold.held_out_rows
        rows = np.concatenate([job.fold.train, held_out])
        if ((rows < 0) | (rows >= recordings.n_windows)).any():
            raise UserError(
                f"a fold names rows {rows.min()} to {rows.max()}, but there are {recordings.n_windows} trials; "
                "make the folds from the same recordings"
            )
        if len(both := np.intersect1d(job.fold.train, held_out)):
            raise UserError(
                f"a fold holds out row {int(both[0])}, which it trains on ({job.fold}); leave it out of one"
            )
        if len(job.fold.train) < 2:
            raise UserError(f"a fold has fewer than 2 training rows ({job.fold}), which batch normalization needs")
        if len(job.fold.validation) == 0 and job.setting.training.checkpoint == "best":
            raise UserError(
                f"a fold has no validation rows ({job.fold}), so nothing can choose the best epoch; "
                "use checkpoint='last', or hold somebody out"
            )
    _check_whole_subjects(recordings, jobs)


def _check_whole_subjects(recordings: Recordings, jobs: Sequence[Job]) -> None:
    """Refuse folds that split a training subject: online transforms prepare training subjects with all windows."""
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
                f"a fold trains on some of subject {name!r}'s windows only; standardize, align or center "
                "'online' needs folds that leave out whole subjects"
            )


def _as_asked(job: Job, outcome: Outcome) -> Outcome:
    """Return the outcome for the job's fold: a twin was trained as the swapped pair of the other."""
    if outcome.job.fold.key == job.fold.key or outcome.swapped is None:
        return outcome
    return replace(outcome.swapped, swapped=replace(outcome, swapped=None))
