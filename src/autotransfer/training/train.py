"""at.train: jobs in, outcomes out. The loop is `run`; everything before it is packing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import torch

from ..errors import UserError
from ..jobs import Job, Outcome
from ..model.encoders import Encoders, moments_of
from ..recordings import Recordings
from .gather import Windows
from .memory import first_line, no_room, out_of_memory
from .newcomers import check_whole_subjects
from .packing import fits, pack, resolve_device
from .population import Population
from .progress import Progress, Stopwatch
from .stream import Stream

Prepared = dict[tuple[str, str, int], Windows]  # by standardisation, alignment and temporal kernel
KEPT = 2  # preparations whose windows stay in memory


def run(
    population: Population,
    *,
    give_up: Callable[[Population], Collection[int]] | None = None,
    after_epoch: Callable[[Population], None] | None = None,
) -> Iterator[Outcome]:
    """Train a population to its end; outcomes come as members finish, and finished members leave the stack.

    give_up: after each epoch, the members that are not worth training any further.
    """
    watch = Stopwatch()
    while population.jobs:
        watch.lap()  # what was done with the outcomes is no time of training
        population.train_epoch()
        population.evaluate()
        over = population.finished()
        if give_up is not None:
            over = dict.fromkeys(give_up(population)) | over
        share = watch.lap() / (len(population.jobs) - len(population.over))
        for member in set(range(len(population.jobs))) - population.over:
            population.seconds[member] += share
        for member, failure in over.items():
            yield population.outcome(member, failure)
        population.leave(over)
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
    """Train every job; outcomes in the order given.

    Jobs with the same shapes are stacked into populations, whatever their folds, seeds and censors: as many as
    memory allows, or at most `population`. An outcome does not depend on what a job was stacked with. Two jobs
    that differ only in the exchange of validation and test subject are one training.
    progress: None shows a bar where standard error is a terminal.
    encoders: factories of the networks that settings name, as in Setting(encoder="mine"): factory(n_channels,
    n_times) gives an nn.Module from windows (B, channels, times) to codes (B, ...).
    """
    place = resolve_device(device)
    check_jobs(recordings, jobs)
    unique: dict[tuple[object, ...], Job] = {}
    for job in jobs:
        unique.setdefault(job.trajectory, job)
    todo = list(unique.values())
    done: dict[tuple[object, ...], Outcome] = {}
    prepared: Prepared = {}
    packs = pack(recordings, todo, population, device=place, dtype=dtype, encoders=encoders)
    stacks = [[todo[position] for position in positions] for positions in packs]
    total = sum(job.setting.max_epochs for job in todo)
    with Progress(total, len(todo), shown=progress) as bar:

        def train_stack(members: list[Job]) -> None:
            windows = windows_for(recordings, members[0], prepared, device=place, dtype=dtype)
            stack = Population(recordings, members, windows, dtype, encoders)
            for outcome in run(stack, after_epoch=bar.epoch):
                done[outcome.job.trajectory] = outcome
                bar.finished(outcome)

        while stacks:
            members = stacks.pop(0)
            try:
                train_stack(members)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                left = [job for job in members if job.trajectory not in done]
                if len(left) < 2:
                    raise no_room(first_line(error)) from None
                stacks[:0] = [left[: len(left) // 2], left[len(left) // 2 :]]
    return [_as_asked(job, done[job.trajectory]) for job in jobs]


def windows_for(
    recordings: Recordings,
    job: Job,
    prepared: Prepared,
    *,
    device: torch.device,
    dtype: torch.dtype,
) -> Windows:
    """Standardised windows for a job's program, prepared once for all populations that need the same.

    In the device's memory where they fit, else read from where they are a minibatch at a time.
    """
    kind, align, kernel = key = (
        job.setting.standardise, job.setting.align, moments_of(job.setting, recordings.sfreq),
    )  # fmt: skip
    if key not in prepared:
        while len(prepared) >= KEPT:  # populations of one preparation follow each other
            del prepared[next(iter(prepared))]
        make = Windows if fits(recordings, device, dtype) else Stream
        prepared[key] = make(recordings, kind, kernel, device=device, dtype=dtype, align=align)
    return prepared[key]


def check_jobs(recordings: Recordings, jobs: Sequence[Job]) -> None:
    """Refuse, before any work, jobs that do not belong to these recordings."""
    if not isinstance(recordings, Recordings):
        raise UserError(
            f"train needs Recordings, not {type(recordings).__name__}; make them with at.Recordings or at.load"
        )
    seen: set[str] = set()
    for job in jobs:
        if not isinstance(job, Job):
            raise UserError(f"train needs Jobs, not {type(job).__name__}; make them with at.Job(setting, fold, seed)")
        if job.fold.key in seen:
            continue
        seen.add(job.fold.key)
        parts = (job.fold.train, job.fold.validation, job.fold.test)
        for name, rows in zip(("training", "validation", "test"), parts, strict=True):
            if len(rows) == 0:
                raise UserError(f"a fold has no {name} rows ({job.fold}); every part needs at least one")
            if rows.min() < 0 or rows.max() >= recordings.n_trials:
                raise UserError(
                    f"a fold names row {int(rows.max())}, but there are {recordings.n_trials} trials; "
                    "make the folds from the same recordings"
                )
        if len(job.fold.train) < 2:
            raise UserError(f"a fold has a single training row ({job.fold}); batch normalisation needs at least 2")
    check_whole_subjects(recordings, jobs)


def _as_asked(job: Job, outcome: Outcome) -> Outcome:
    """The outcome as seen from the job's own fold: a twin was trained as the other's swapped pair."""
    if outcome.job.fold.key == job.fold.key or outcome.swapped is None:
        return outcome
    return replace(outcome.swapped, swapped=replace(outcome, swapped=None))
