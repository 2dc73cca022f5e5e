"""What a run will cost, before it starts: how many trainings, how long, how much memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from ..folds import leave_one_subject_out
from ..jobs import Job
from ..model.encoders import Encoders
from ..recordings import Recordings
from ..runs.executor import DTYPE
from ..runs.options import RunOptions
from ..settings import Setting
from ..training.allocator import memory_kept
from ..training.batches import BALANCES, n_people
from ..training.closed_form import population_of
from ..training.packing import member_bytes, pack, program_of, resolve_device
from ..training.program import WARM_UP
from ..training.windows import release, windows_for
from .kinds import closed_forms, list_of, networks
from .stages import SHORTLIST_PER_METHOD

T = TypeVar("T")
# What is composed and timed, where there is more: folds of each setting, populations of each program, members of one on
# a CPU, seconds of steps.
FOLDS, POPULATIONS, MEMBERS, TIMED = 64, 2, 16, 0.3
LONGEST = 100  # epochs that a timed population could train
WRITING, ENDING = 0.01, 5.0  # seconds for each training in the ledger, and for choice, models and report


@dataclass(frozen=True)
class Estimate:
    """At most: patience and pruning make a run shorter."""

    settings: int  # of stage one; as many as candidates where all of them go on
    candidates: int  # networks
    closed_forms: int
    folds: int
    trainings: int  # of networks
    seconds: float
    bytes: int

    def work(self, options: RunOptions) -> str:
        """What will be trained, in words."""
        cut = f"{self.settings} settings on one split, then " if self.settings > self.candidates else ""
        more = f", and {_many(self.closed_forms, 'model')} in closed form" if self.closed_forms else ""
        return (
            f"{_many(self.trainings, 'training')} of up to {options.max_epochs} epochs: {cut}"
            f"{'at most ' if cut else ''}{_many(self.candidates, 'candidate')} on {_many(self.folds, 'fold')} with "
            f"{_many(options.seeds, 'seed')}{more}"
        )


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def count_trainings(recordings: Recordings, options: RunOptions) -> tuple[int, int, int]:
    """(settings of stage one, candidates of stage two, all trainings), of networks."""
    settings, n = options.settings(), recordings.n_subjects
    if options.search == "tpe":
        tried, candidates = options.trials + 1, 1 + 5 * SHORTLIST_PER_METHOD
    else:
        every = networks(options, settings, recordings)
        tried = len(every)
        lists = _lists(options, every)
        candidates = sum(min(len(own), SHORTLIST_PER_METHOD + (method is None)) for (_, method), own in lists.items())
    candidates = min(candidates, tried)
    trainings = tried + candidates * (n * options.seeds - 1)
    if options.nested == "full":
        trainings += len(settings) * n * (n - 1) // 2
    return tried, candidates, trainings


def _lists(options: RunOptions, every: Sequence[Setting]) -> dict[tuple[object, str | None], list[Setting]]:
    """Settings that compete for the places of one shortlist, by method."""
    lists: dict[tuple[object, str | None], list[Setting]] = {}
    for setting in every:
        lists.setdefault((list_of(setting, apart=options.preprocessing is not None), setting.method), []).append(
            setting
        )
    return lists


def balances(recordings: Recordings, options: RunOptions) -> list[str]:
    """How the batches of penalised networks are made up, in words."""
    found = []
    settings = [setting for setting in networks(options, options.settings(), recordings) if setting.penalty is not None]
    for kind, balance in BALANCES.items():
        sizes = {setting.training.batch_size for setting in settings if setting.training.batches == kind}
        for size in sorted(sizes):
            people = n_people(balance, size, recordings.n_classes, recordings.n_subjects - 2)
            rows = f"{balance.block} or more rows of each{' class' if balance.by_class else ''}"
            modes = "conditional" if balance.by_class else "other"
            found.append(f"batches of {size} for {modes} penalties: {people} people, {rows} where the data allow it")
    return found


def estimate(recordings: Recordings, options: RunOptions, encoders: Encoders | None = None) -> Estimate:
    """Composes the populations that the run would, times a few steps of some of them here, and multiplies."""
    tried, candidates, trainings = count_trainings(recordings, options)
    device = resolve_device(options.device)
    every, solved = networks(options, options.settings(), recordings), closed_forms(options, recordings)
    folds = _spread(leave_one_subject_out(recordings), FOLDS)
    first = [Job(setting, folds[0], options.seed) for setting in every]
    going_on = [setting for own in _lists(options, every).values() for setting in own[:SHORTLIST_PER_METHOD]]
    rest = [Job(setting, fold, seed) for setting in going_on for seed in options.every_seed for fold in folds]
    once = [Job(setting, fold, options.seed) for setting in solved for fold in folds]

    def spent(jobs: list[Job], number: int) -> tuple[float, int]:
        """Seconds of so many trainings of which these are some, and bytes of their largest population."""
        return _spent(recordings, jobs, number, options, device, encoders) if jobs and number else (0.0, 0)

    try:
        with memory_kept():
            staged = tried > candidates
            works = [spent(first, tried)] if staged else []
            works.append(spent(rest, trainings - tried if staged else trainings))
            works.append(spent(once, len(solved) * recordings.n_subjects))
    finally:
        release(recordings)
    return Estimate(
        settings=tried,
        candidates=candidates,
        closed_forms=len(solved),
        folds=recordings.n_subjects,
        trainings=trainings,
        seconds=sum(seconds for seconds, _ in works) + trainings * WRITING + ENDING,
        bytes=2 * recordings.X.numel() * DTYPE.itemsize + max(size for _, size in works),
    )


def _spent(
    recordings: Recordings,
    jobs: list[Job],
    number: int,
    options: RunOptions,
    device: torch.device,
    encoders: Encoders | None,
) -> tuple[float, int]:
    programs: dict[tuple[object, ...], list[list[Job]]] = {}
    for positions in pack(recordings, jobs, options.population, device=device, dtype=DTYPE, encoders=encoders):
        members = [jobs[position] for position in positions]
        programs.setdefault(program_of(recordings, members[0]), []).append(members)
    seconds, largest = 0.0, 0
    for populations in programs.values():
        readings = []
        for members in _spread(populations, POPULATIONS):
            most = len(members) if device.type == "cuda" else MEMBERS
            reading = _reading(recordings, _spread(members, most), device, encoders)
            readings.append(reading / min(most, len(members)))
            size = member_bytes(recordings, members[0], DTYPE, encoders)
            largest = max(largest, len(members) * size)
        seconds += sum(readings) / len(readings) * sum(map(len, populations))
    return seconds / len(jobs) * number, largest


def _reading(recordings: Recordings, jobs: list[Job], device: torch.device, encoders: Encoders | None) -> float:
    """Seconds that a population of these jobs takes from the first epoch to the last."""
    epochs = max(job.setting.max_epochs for job in jobs)
    windows = windows_for(recordings, jobs[0], device=device, dtype=DTYPE)
    # without an average: it is made once, at the end
    short = [Job(job.setting.replace(max_epochs=LONGEST, checkpoint="last"), job.fold, job.seed) for job in jobs]
    stack = population_of(recordings, short, windows, DTYPE, encoders)
    steps = 0 if jobs[0].setting.network.closed_form else max(stack.groups.steps_of)
    if not steps:
        return _seconds(device, lambda: stack.train_epoch()) + _seconds(device, stack.evaluate)
    warm = min(steps, WARM_UP + 1)
    _seconds(device, lambda: stack.train_epoch(warm))
    planning = _seconds(device, lambda: stack.groups.plan(LONGEST))
    one = _seconds(device, lambda: stack.train_epoch(1))
    timed = min(steps, max(1, round(TIMED / one)))
    step = (_seconds(device, lambda: stack.train_epoch(timed)) - planning) / timed
    for _ in range(WARM_UP + 1 if device.type == "cuda" else 0):
        stack.evaluate()
    return epochs * (planning + steps * max(step, 0.0) + _seconds(device, stack.evaluate))


def _seconds(device: torch.device, work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _spread(found: list[T], most: int) -> list[T]:
    """At most so many, from the first to the last."""
    if len(found) <= most:
        return found
    return [found[i * (len(found) - 1) // max(most - 1, 1)] for i in range(most)]
