"""What a run will cost, before it starts: how many trainings, how long, how much memory.

A few steps of every network with each penalty are timed, not whole epochs, so that the answer takes seconds.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..folds import Fold, Rows, divide, leave_groups_out
from ..jobs import Job
from ..model.encoders import Encoders
from ..recordings import Recordings
from ..runs.executor import DTYPE
from ..runs.options import RunOptions
from ..settings import Setting
from ..training.allocator import memory_kept
from ..training.batches import BALANCES, n_batches, n_people
from ..training.closed_form import population_of
from ..training.packing import member_bytes, pack, resolve_device
from ..training.progress import clock
from ..training.windows import release, windows_for
from .kinds import Way, closed_forms, list_of, networks, way_of
from .stages import SHORTLIST_PER_METHOD

TIMED_MEMBERS = (4, 16)  # trained side by side, as a run would: alone each would take longer
TIMED_VALUES = 20_000  # of a window of each of them together: small windows need more members to be as fast as in a run
TIMED_STEPS = 4
TIMED_ROWS = 256  # that are predicted, and that a closed form is solved on
BUSY = 1.5  # times slower: worth a word
WRITING, ENDING = 0.01, 5.0  # seconds for each training in the ledger, and for choice, models and report
HALVED = 0.4  # of the epochs of stage one are left with successive halving


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
    busy: float = 1.0  # how much of that is due to other work on the machine

    def cost(self) -> str:
        """How long, and how much memory."""
        alone = (
            f" (it is busy with other work; alone about {clock(self.seconds / self.busy)})" if self.busy > BUSY else ""
        )
        return f"about {clock(self.seconds)} on this machine{alone}, about {self.bytes / 2**30:.1f} GiB of memory"

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
    folds = options.n_folds or n
    if options.search == "tpe":
        tried, candidates = options.trials + 1, 1 + 5 * SHORTLIST_PER_METHOD
    else:
        every = networks(options, settings, recordings)
        apart = options.preprocessing is not None
        counts = Counter((list_of(setting, apart=apart), setting.method) for setting in every)
        tried = len(every)
        candidates = sum(min(k, SHORTLIST_PER_METHOD + (method is None)) for (_, method), k in counts.items())
    candidates = min(candidates, tried)
    trainings = tried + candidates * (folds * options.seeds - 1)
    if options.nested == "full":
        trainings += len(settings) * n * (n - 1) // 2
    return tried, candidates, trainings


def balances(recordings: Recordings, options: RunOptions) -> list[str]:
    """How the batches of penalised networks are made up, in words."""
    found = []
    settings = [setting for setting in networks(options, options.settings(), recordings) if setting.penalty is not None]
    training = recordings.n_subjects - people_held_out(recordings.n_subjects, options)
    for kind, balance in BALANCES.items():
        sizes = {setting.training.batch_size for setting in settings if setting.training.batches == kind}
        for size in sorted(sizes):
            people = n_people(balance, size, recordings.n_classes, training)
            rows = f"{balance.block} or more rows of each{' class' if balance.by_class else ''}"
            modes = "conditional" if balance.by_class else "other"
            found.append(f"batches of {size} for {modes} penalties: {people} people, {rows} where the data allow it")
    return found


def people_held_out(n_subjects: int, options: RunOptions) -> int:
    """By one training."""
    return sum(map(len, divide(n_subjects, options.n_folds)[:2]))


@dataclass(frozen=True)
class Speed:
    """Seconds that one training takes on this machine, beside others."""

    step: float  # of a network
    row: float  # a held-out window in every epoch; of a closed form also a training window, once


class Times(NamedTuple):
    """Seconds (2,) on the clock and of this process."""

    training: NDArray[np.float64]
    evaluation: NDArray[np.float64]


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


class Costs:
    """What trainings of a run cost, from the speed of each network with each penalty and of each closed form."""

    def __init__(
        self, recordings: Recordings, speeds: dict[tuple[Way, str | None], Speed], largest: int, busy: float = 1.0
    ) -> None:
        """largest: bytes that one training takes at most. busy: how much longer all takes than on a machine that does
        nothing else."""
        self.recordings, self.speeds, self.largest, self.busy = recordings, speeds, largest, busy

    @classmethod
    def measure(cls, recordings: Recordings, options: RunOptions, encoders: Encoders | None = None) -> Costs:
        """options: of a run that trains whatever is to be asked for; epochs and folds may differ."""
        device = resolve_device(options.device)
        every = networks(options, options.settings(), recordings) + closed_forms(options, recordings)
        sample = {_kind(setting): setting for setting in every}
        rows = max(TIMED_STEPS * options.apply(Setting()).training.batch_size, TIMED_ROWS)
        fewest, most = TIMED_MEMBERS
        members = min(max(TIMED_VALUES // recordings.X[0].numel(), fewest), most)
        folds = [_shortened(fold, rows) for fold in leave_groups_out(recordings, options.n_folds)[:members]]
        timed: dict[tuple[Way, str | None], tuple[list[Job], Times]] = {}
        largest = 0
        try:
            with memory_kept():
                for kind, setting in sample.items():
                    # without an average: it is made once, at the end
                    short = setting if setting.network.closed_form else setting.replace(max_epochs=2, checkpoint="last")
                    jobs = [Job(short, fold) for fold in folds]
                    program = pack(recordings, jobs, "auto", device=device, dtype=DTYPE, encoders=encoders)[0]
                    jobs = [jobs[place] for place in program]
                    windows = windows_for(recordings, jobs[0], device=device, dtype=DTYPE)
                    stack = population_of(recordings, jobs, windows, DTYPE, encoders)
                    for _ in range(short.max_epochs):  # the first also pays for all that is done once
                        start = _now()
                        stack.train_epoch(TIMED_STEPS)
                        trained = _now()
                        stack.evaluate()
                        _ = stack.snapshots.loss.tolist()  # waits for the device
                        timed[kind] = jobs, Times(*(np.array([trained, _now()]) - [start, trained]))
                    largest = max(largest, *(member_bytes(recordings, job, DTYPE, encoders) for job in jobs))
        finally:
            release(recordings)
        # Steps are so short that others may take the processor from one and not from the next: it is shared out evenly.
        wall, cpu = np.sum([np.add(*times) for _, times in timed.values()], 0)
        ratio = wall / cpu if device.type == "cpu" and cpu > 0 else 1.0
        column = 1 if device.type == "cpu" and cpu > 0 else 0
        speeds = {
            kind: _speed(jobs, ratio * times.training[column], ratio * times.evaluation[column])
            for kind, (jobs, times) in timed.items()
        }
        return cls(recordings, speeds, largest, max(1.0, ratio))

    def training(self, setting: Setting, options: RunOptions) -> float:
        """Seconds of one training of a run with these options."""
        n, people = self.recordings.n_trials, self.recordings.n_subjects
        held_out = n * people_held_out(people, options) / people
        speed = self.speeds[_kind(setting)]
        if setting.network.closed_form:
            return n * speed.row
        steps = n_batches(int(n - held_out), setting.training.batch_size)
        return setting.max_epochs * (steps * speed.step + held_out * speed.row)

    def seconds(self, options: RunOptions) -> float:
        """Of all trainings of a run."""
        every = networks(options, options.settings(), self.recordings)
        tried, _, trainings = count_trainings(self.recordings, options)
        folds = options.n_folds or self.recordings.n_subjects
        mean = float(np.mean([self.training(setting, options) for setting in every]))
        saved = (1 - HALVED) * tried if options.search == "halving" else 0
        solved = sum(self.training(setting, options) for setting in closed_forms(options, self.recordings))
        return mean * (trainings - saved) + folds * solved + trainings * WRITING + ENDING


def _kind(setting: Setting) -> tuple[Way, str | None]:
    return way_of(setting), setting.method


def _shortened(fold: Fold, rows: int) -> Fold:
    """With so many training rows at most, of everybody, and few held-out ones."""

    def some(own: Rows, most: int) -> Rows:
        places = np.linspace(0, len(own) - 1, min(most, len(own))).round().astype(int)
        return np.asarray(own[np.unique(places)])

    validation, test = (some(own, TIMED_ROWS // 2) for own in (fold.validation, fold.test))
    return Fold(some(fold.train, rows), validation, test, fold.validation_subject, fold.test_subject)


def _speed(jobs: Sequence[Job], training: float, evaluation: float) -> Speed:
    setting = jobs[0].setting
    held_out = sum(len(job.fold.validation) + len(job.fold.test) for job in jobs)
    if setting.network.closed_form:
        return Speed(0.0, (training + evaluation) / sum(len(job.fold.train) for job in jobs))
    steps = sum(min(n_batches(len(job.fold.train), setting.training.batch_size), TIMED_STEPS) for job in jobs)
    return Speed(training / steps, evaluation / held_out)


def estimate(
    recordings: Recordings, options: RunOptions, encoders: Encoders | None = None, costs: Costs | None = None
) -> Estimate:
    """Times a few steps on this machine, unless the costs are known, and multiplies."""
    costs = Costs.measure(recordings, options, encoders) if costs is None else costs
    tried, candidates, trainings = count_trainings(recordings, options)
    fold = leave_groups_out(recordings, options.n_folds)[0]
    many = [Job(setting, fold) for setting in networks(options, options.settings(), recordings)]
    many *= 1 if trainings < 1000 else 3
    device = resolve_device(options.device)
    packs = pack(recordings, many, options.population, device=device, dtype=DTYPE, encoders=encoders)
    data = 2 * recordings.X.numel() * DTYPE.itemsize
    return Estimate(
        settings=tried,
        candidates=candidates,
        closed_forms=len(closed_forms(options, recordings)),
        folds=options.n_folds or recordings.n_subjects,
        trainings=trainings,
        seconds=costs.seconds(options),
        bytes=data + max(map(len, packs)) * costs.largest,
        busy=costs.busy,
    )
