"""What a run will cost, before it starts: how many trainings, how long, how much memory."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from ..folds import make_fold
from ..jobs import Job
from ..model.encoders import Encoders
from ..recordings import Recordings
from ..runs.executor import DTYPE
from ..runs.options import RunOptions
from ..settings import Setting
from ..training.batches import BALANCES, n_people
from ..training.closed_form import population_of
from ..training.packing import member_bytes, pack, resolve_device
from ..training.windows import release, windows_for
from .kinds import closed_forms, list_of, networks, way_of
from .stages import SHORTLIST_PER_METHOD


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
        apart = options.preprocessing is not None
        counts = Counter((list_of(setting, apart=apart), setting.method) for setting in every)
        tried = len(every)
        candidates = sum(min(k, SHORTLIST_PER_METHOD + (method is None)) for (_, method), k in counts.items())
    candidates = min(candidates, tried)
    trainings = tried + candidates * (n * options.seeds - 1)
    if options.nested == "full":
        trainings += len(settings) * n * (n - 1) // 2
    return tried, candidates, trainings


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
    """Times an epoch of every network with each penalty on this machine, and multiplies. What is solved in closed form
    takes seconds."""
    tried, candidates, trainings = count_trainings(recordings, options)
    device = resolve_device(options.device)
    fold = make_fold(recordings, recordings.n_subjects - 1, 0)
    every = networks(options, options.settings(), recordings)
    sample = {(way_of(setting), setting.method): setting for setting in every}
    # without an average: it is made once, at the end
    settings: list[Setting] = [setting.replace(max_epochs=2, checkpoint="last") for setting in sample.values()]
    jobs = [Job(setting, fold) for setting in settings]
    seconds = 0.0
    largest = 0
    try:
        for positions in pack(recordings, jobs, options.population, device=device, dtype=DTYPE, encoders=encoders):
            members = [jobs[position] for position in positions]
            windows = windows_for(recordings, members[0], device=device, dtype=DTYPE)
            stack = population_of(recordings, members, windows, DTYPE, encoders)
            for _ in range(members[0].setting.max_epochs):  # the first also pays for all that is done once
                start = time.perf_counter()
                stack.train_epoch()
                stack.evaluate()
                spent = time.perf_counter() - start
            seconds += spent * options.apply(members[0].setting).max_epochs
            largest = max(largest, *(member_bytes(recordings, job, DTYPE, encoders) for job in members))
    finally:
        release(recordings)
    many = [Job(setting, fold) for setting in every] * (1 if trainings < 1000 else 3)
    packs = pack(recordings, many, options.population, device=device, dtype=DTYPE, encoders=encoders)
    stacked = max(map(len, packs))
    data = 2 * recordings.X.numel() * DTYPE.itemsize
    return Estimate(
        settings=tried,
        candidates=candidates,
        closed_forms=len(closed_forms(options, recordings)),
        folds=recordings.n_subjects,
        trainings=trainings,
        seconds=seconds / len(jobs) * trainings,
        bytes=data + stacked * largest,
    )
