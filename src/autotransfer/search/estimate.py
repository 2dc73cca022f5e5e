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
from ..training.closed_form import population_of
from ..training.packing import member_bytes, pack, resolve_device
from ..training.windows import release, windows_for
from .preprocessing import ways_to_try
from .stages import SHORTLIST_PER_METHOD


@dataclass(frozen=True)
class Estimate:
    """At most: patience and pruning make a run shorter, and so do preprocessings that nobody needs."""

    preprocessings: int  # 0 where none is looked for
    settings: int
    candidates: int
    folds: int
    trainings: int
    seconds: float
    bytes: int

    def work(self, options: RunOptions) -> str:
        """What will be trained, in words."""
        first = f"{self.preprocessings} preprocessings on every fold, " if self.preprocessings else ""
        cut = f"{self.settings} settings on one split, then " if self.settings > self.candidates else ""
        most = "at most " if first or cut else ""
        return (
            f"{self.trainings} trainings of up to {options.max_epochs} epochs: {first}{cut}{most}{self.candidates} "
            f"candidates on {self.folds} folds with {options.seeds} seed{'s' * (options.seeds > 1)}"
        )


def count_trainings(recordings: Recordings, options: RunOptions) -> tuple[int, int, int]:
    """(settings of stage one, candidates of stage two, all trainings)."""
    settings = options.settings()
    n = recordings.n_subjects
    if options.search == "tpe":
        tried, candidates = options.trials + 1, 1 + 5 * SHORTLIST_PER_METHOD
    else:
        tried = len(settings)
        per_method = Counter(setting.method for setting in settings)
        candidates = sum(min(k, SHORTLIST_PER_METHOD + (method is None)) for method, k in per_method.items())
    candidates = min(candidates, tried)
    if options.preprocessing is not None:  # somebody may need every one
        ways = len(ways_to_try(options.preprocessing, settings[0]))
        tried, candidates = ways * tried, ways * candidates
    trainings = tried + candidates * (n * options.seeds - 1)
    if options.nested == "full":
        trainings += len(settings) * n * (n - 1) // 2
    return tried, candidates, trainings


def estimate(recordings: Recordings, options: RunOptions, encoders: Encoders | None = None) -> Estimate:
    """Times an epoch of a few settings on this machine, with windows as the plain network has them, and multiplies."""
    tried, candidates, trainings = count_trainings(recordings, options)
    device = resolve_device(options.device)
    fold = make_fold(recordings, recordings.n_subjects - 1, 0)
    sample = {setting.method: setting for setting in options.settings()}
    settings: list[Setting] = [setting.replace(max_epochs=2) for setting in sample.values()]
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
    ways = ways_to_try(options.preprocessing, settings[0]) if options.preprocessing is not None else []
    others = [Job(setting, fold) for setting in ways]
    largest = max(largest, *(member_bytes(recordings, job, DTYPE, encoders) for job in others), 0)
    many = [Job(setting, fold) for setting in options.settings()] * (1 if trainings < 1000 else 3)
    packs = pack(recordings, many, options.population, device=device, dtype=DTYPE, encoders=encoders)
    stacked = max(map(len, packs))
    data = 2 * recordings.X.numel() * DTYPE.itemsize
    return Estimate(
        preprocessings=len(ways),
        settings=tried,
        candidates=candidates,
        folds=recordings.n_subjects,
        trainings=trainings,
        seconds=seconds / len(jobs) * trainings,
        bytes=data + stacked * largest,
    )
