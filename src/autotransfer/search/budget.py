"""A run that fits into a time: what is left out, in a fixed order, before it starts, and how it keeps to the time.

Before: `LADDER` is gone down until the estimate fits. At its foot the plain network may still end early; a time in
which hardly a part of it could be trained is refused. Everybody is tested in any case, in at least five folds.

While it runs: the plain network and the closed forms come first, then every other network with one seed, then further
seeds, each on all folds. What would not end in time, as measured so far, is not begun, and what turns out not to is
given up, so that all candidates were measured on the same people.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ..errors import UserError
from ..folds import USUAL_FOLDS, check_scorable
from ..model.encoders import Encoders
from ..recordings import Recordings, load
from ..runs.executor import LocalExecutor, Work
from ..runs.ledger import FINISHED, OpenPopulation
from ..runs.options import PRESETS, STEPS, RunOptions
from ..runs.run import Run, Tell, check_columns, check_encoder, check_packages
from ..settings import Setting
from ..training.packing import resolve_device
from ..training.progress import Progress, clock
from .estimate import Costs, count_trainings
from .kinds import closed_forms, networks
from .validation import seeds_of

LONG = 2 * 3600.0  # seconds: a run that takes longer says so before it starts
PART = 0.2  # of the trainings that are left at the foot of the ladder: with less, nothing is learned
FEWEST = 5  # folds that a budget may ask for
SEARCH = 0.4  # of the time for trainings that stage one may take
FINISH = 0.1  # of the time: weights, people played back, models and report
FINISH_AT_LEAST = 20.0  # seconds
# Values of training windows, steps and trainings multiplied: far below this nobody needs an estimate.
LITTLE = 2e9

Change = Callable[[RunOptions, Recordings], RunOptions]


@dataclass(frozen=True)
class Rung:
    """Something to leave out; of one topic, the last that was needed is told."""

    topic: str
    words: str
    change: Change


def _uncensored(options: RunOptions, _: Recordings) -> RunOptions:
    averaged = options.preprocessing is not None and options.grid in ("quick", "few")
    return replace(options, grid="uncensored") if averaged else options


def _main(options: RunOptions, _: Recordings) -> RunOptions:
    return replace(options, networks="main") if options.networks == "all" else options


def _halving(options: RunOptions, recordings: Recordings) -> RunOptions:
    tried, candidates, _ = count_trainings(recordings, options.for_data(recordings))
    return replace(options, search="halving") if tried > candidates and options.search == "grid" else options


def _folds(most: int) -> Change:
    def change(options: RunOptions, recordings: Recordings) -> RunOptions:
        now = options.for_data(recordings).n_folds or recordings.n_subjects
        fewer = now > most and options.rule != "published"
        return replace(options, folds=most) if fewer else options

    return change


def _shorter(part: int) -> Change:
    def change(options: RunOptions, _: Recordings) -> RunOptions:
        if options.epochs is not None:
            return replace(options, epochs=max(1, options.epochs // 2))
        return replace(options, steps=min(options.steps, STEPS // part))

    return change


def _networks(most: str) -> Change:
    return lambda options, _: options if options.preprocessing is None else replace(options, networks=most)


LADDER = (
    Rung("penalties", "networks with penalties", _uncensored),
    Rung("networks", "networks beside the two main ones", _main),
    Rung("halving", "settings that are behind after an eighth of the epochs (halving)", _halving),
    Rung("seeds", "all seeds but one", lambda options, _: replace(options, seeds=1)),
    Rung("folds", f"folds above {USUAL_FOLDS}", _folds(USUAL_FOLDS)),
    Rung("folds", f"folds above {FEWEST}", _folds(FEWEST)),
    Rung("steps", "half of the steps of every training", _shorter(2)),
    Rung("steps", "three quarters of the steps of every training", _shorter(4)),
    Rung("networks", "networks beside the plain one and EEGNet", _networks("one")),
    Rung("networks", "networks beside the plain one", _networks("none")),
)


@dataclass(frozen=True)
class Plan:
    """What a run with a budget has in hand. The ledger keeps it, so that a resumed run goes on with it."""

    seconds: float  # in all
    finishing: float  # of these, kept for the end of the run
    left_out: list[str]  # before the run started
    expected: dict[str, float]  # seconds of one training, by the key of a setting


def finishing(seconds: float, busy: float = 1.0) -> float:
    """What of a budget is kept for the end of the run. busy: how much longer all takes, for other work."""
    return max(min(FINISH_AT_LEAST * busy, seconds / 3), FINISH * seconds)


def fitted(recordings: Recordings, options: RunOptions, costs: Costs) -> tuple[RunOptions, list[str]]:
    """Options with which a run takes as long as it may, and what they leave out."""
    assert options.seconds is not None
    most = options.seconds - finishing(options.seconds, costs.busy)
    left_out: dict[str, str] = {}
    least = costs.seconds(options.for_data(recordings))
    for rung in LADDER:
        if least <= most:
            break
        less = rung.change(options, recordings)
        seconds = costs.seconds(less.for_data(recordings))
        if seconds < least:  # otherwise there was nothing of the kind
            options, least = less, seconds
            left_out[rung.topic] = rung.words
    if PART * least > most:
        least *= PART
        needed = max(least / (1 - FINISH), min(least + FINISH_AT_LEAST * costs.busy, 1.5 * least))
        raise UserError(
            f"time {options.time} is too short: with all left out that can be, the run takes about {clock(needed)} on "
            f"this machine; give at least --time {math.ceil(needed / 60)}m"
        )
    return options, list(left_out.values())


def shorter(recordings: Recordings, options: RunOptions, costs: Costs) -> list[str]:
    """What would make a run shorter, with the time that it would take then."""
    quick = PRESETS["quick"]
    ways = {
        "--quick": _folds(quick["folds"])(
            replace(_uncensored(options, recordings), seeds=quick["seeds"], steps=quick["steps"]), recordings
        ),
        "--grid uncensored": _uncensored(options, recordings),
        "--seeds 1": replace(options, seeds=1),
        f"--folds {FEWEST}": _folds(FEWEST)(options, recordings),
    }
    now = costs.seconds(options.for_data(recordings))
    found = {way: costs.seconds(own.for_data(recordings)) for way, own in ways.items() if own != options}
    told = [f"{way}: about {clock(seconds)}" for way, seconds in found.items() if seconds < 0.95 * now]
    return [*told, *(["--time 2h: what can be done in two hours"] if now > LONG else [])]


def long_run(recordings: Recordings, options: RunOptions, costs: Costs) -> list[str]:
    """Lines for a run that takes more than two hours; none for others."""
    seconds = costs.seconds(options.for_data(recordings))
    if seconds <= LONG:
        return []
    return [
        f"this run takes about {clock(seconds)} on this machine; shorter:",
        *(f"  {line}" for line in shorter(recordings, options, costs)),
    ]


def why_folds(recordings: Recordings, asked: RunOptions) -> list[str]:
    """Why there are fewer folds than people, where nobody asked for it."""
    own = asked.for_data(recordings).n_folds
    if asked.folds != "auto" or own is None:
        return []
    people = recordings.n_subjects
    return [
        f"{own} folds, because there are {people} people: leaving out each alone would take {people / own:.1f} times "
        "as long; everybody is tested once all the same (--folds all: each alone)"
    ]


def begin(
    folder: Path,
    options: RunOptions,
    encoders: Encoders | None = None,
    recordings: Recordings | None = None,
    tell: Tell | None = None,
    *,
    here: bool = True,
) -> Run:
    """Start a run, planned for its budget if it has one. here: it is trained on this machine.

    tell: who is told why there are so few folds, that it will take long, and what is left out.
    """
    start = time.monotonic()
    resolve_device(options.device)
    check_packages(options)
    check_encoder(options, encoders)
    if options.time is not None and not here:
        raise UserError(f"time {options.time} is planned for this machine; leave out either --time or --cluster")
    recordings = load(options.source, **options.cutting) if recordings is None else recordings
    say = _nobody if tell is None else tell
    plan = None
    if options.time is not None:
        asked = options
        plan, options = plan_for(recordings, options, encoders)
    elif tell is not None and here and _worth_timing(recordings, options):
        check_columns(options, recordings)
        check_scorable(recordings)
        for line in long_run(recordings, options, Costs.measure(recordings, options.for_data(recordings), encoders)):
            say(line)
    for line in why_folds(recordings, options):
        say(line)
    run = Run.create(folder, options, encoders, recordings)
    if plan is not None:
        run.ledger.remember(plan=plan, asked=asked.to_dict(), spent=time.monotonic() - start)
        for line in plan_words(plan):
            say(line)
    return run


def plan_for(recordings: Recordings, asked: RunOptions, encoders: Encoders | None) -> tuple[Plan, RunOptions]:
    """Measure, and go down the ladder."""
    assert asked.seconds is not None
    check_columns(asked, recordings)
    check_scorable(recordings)
    costs = Costs.measure(recordings, asked.for_data(recordings), encoders)
    options, left_out = fitted(recordings, asked, costs)
    settled = options.for_data(recordings)
    every = networks(settled, settled.settings(), recordings) + closed_forms(settled, recordings)
    expected = {setting.key: costs.training(setting, settled) for setting in every}
    return Plan(asked.seconds, finishing(asked.seconds, costs.busy), left_out, expected), options


def plan_words(plan: Plan) -> list[str]:
    left_out = "; ".join(plan.left_out) or "nothing"
    return [f"planned for {clock(plan.seconds)}; left out: {left_out}"]


def _worth_timing(recordings: Recordings, options: RunOptions) -> bool:
    """Could it take hours? An estimate takes seconds, which most runs need not wait for."""
    settled = options.for_data(recordings)
    _, _, trainings = count_trainings(recordings, settled)
    return trainings * settled.max_epochs * recordings.X.numel() > LITTLE


def _nobody(_: str) -> None:
    """Nobody asked to be told."""


class OutOfTime(Exception):
    """A budget is spent."""


class TimedExecutor(LocalExecutor):
    """Works until a moment of the monotonic clock. Then members of what a run cannot do without end with the weights
    that they have, and others are given up. Populations have a share of the time each, so that no fold is trained at
    the cost of another."""

    def __init__(self) -> None:
        self.until, self.needed = math.inf, False
        self.own = math.inf  # the same for the population that is being trained

    def _train(self, run: Work, found: OpenPopulation, device: torch.device, bar: Progress) -> None:
        statuses = run.ledger.statuses()
        left = {
            one.number: sum(statuses[key] not in FINISHED for key in one.keys) for one in run.ledger.open_populations()
        }
        now = time.monotonic()
        self.own = now + (self.until - now) * left[found.number] / max(sum(left.values()), 1)
        super()._train(run, found, device, bar)

    def ends(self) -> bool:
        return self.needed and time.monotonic() > self.own

    def after_epoch(self) -> None:
        if not self.needed and time.monotonic() > self.until:
            raise OutOfTime


class Budget:
    """The time of a run that has one, as it is spent."""

    def __init__(self, run: Run, plan: Plan) -> None:
        self.run, self.plan = run, plan
        self.start = time.monotonic() - (run.ledger.recall("spent", float) or 0.0)
        self.notes = run.ledger.recall("left out", list[str]) or []
        self.slowness = 1.0  # measured over expected

    @classmethod
    def of(cls, run: Run) -> Budget | None:
        plan = run.ledger.recall("plan", Plan)
        return None if plan is None else cls(run, plan)

    @property
    def left(self) -> float:
        """Seconds for trainings; below 0, the end of the run is late."""
        return self.start + self.plan.seconds - self.plan.finishing - time.monotonic()

    @property
    def until(self) -> float:
        """When the run is to be over."""
        return self.start + self.plan.seconds

    @property
    def left_out(self) -> list[str]:
        return [*self.plan.left_out, *self.notes]

    def note(self, words: str) -> None:
        self.notes.append(words)
        self.run.ledger.remember(**{"left out": self.notes})

    def limit_search(self) -> None:
        """Stage one, where there is one, may take a part of the time; then its trainings end with what they have."""
        executor = self.run.executor = TimedExecutor()
        executor.needed, executor.until = True, time.monotonic() + SEARCH * self.left

    def train(self, candidates: Sequence[Setting], tell: Tell, *, shown: bool | None) -> list[Setting]:
        """Every candidate on every fold, as far as time allows. Returns those that were trained on all of them."""
        run = self.run
        solved = [one for one in candidates if one.network.closed_form]
        others = [one for one in candidates if not one.network.closed_form]
        given_up = set(run.ledger.recall("given up", list[str]) or [])
        rounds = [([one], seed) for seed in run.options.every_seed for one in others]
        rounds = [*rounds[:1], (solved, run.options.seed), *rounds[1:]]  # the plain network first
        executor = run.executor = TimedExecutor()
        kept: set[Setting] = set()
        for number, (settings, seed) in enumerate(rounds):
            name = f"{number}"
            if not settings or name in given_up:
                continue
            executor.needed = number < 2
            if self._round(executor, settings, seed, tell, shown=shown):
                kept.update(settings)
            else:
                given_up.add(name)
                run.ledger.remember(**{"given up": sorted(given_up)})
        return [one for one in candidates if one in kept]

    def _round(
        self, executor: TimedExecutor, settings: Sequence[Setting], seed: int, tell: Tell, *, shown: bool | None
    ) -> bool:
        """Candidates with one seed on all folds. Whether that could be done."""
        run, folds = self.run, self.run.folds()
        entries = [run.entry("folds", s, *fold, seed) for s in settings if seed in seeds_of(run, s) for fold in folds]
        statuses = run.ledger.statuses()
        todo = [entry for entry in entries if statuses.get(entry.key) not in FINISHED]
        if not todo:
            return True
        what = _what(run, settings, seed)
        expected = sum(self.plan.expected.get(entry.setting.key, 0.0) for entry in todo)
        if not executor.needed and expected * self.slowness > self.left:
            self.note(f"{what}: it would have taken about {clock(expected * self.slowness)}")
            tell(f"left out {self.notes[-1]}")
            return False
        run.add(entries)
        tell(f"{what} on {len(folds)} folds, {clock(max(self.left, 0.0))} left for trainings")
        executor.until = time.monotonic() + self.left
        before = time.monotonic()
        try:
            run.work(shown=shown)
        except OutOfTime:
            run.drop([entry.key for entry in entries])
            self.note(f"{what}: it was given up when the time was over")
            tell(f"left out {self.notes[-1]}")
            return False
        finally:
            self.spend()
        if expected > 0 and not settings[0].network.closed_form:
            self.slowness = (time.monotonic() - before) / expected
        if executor.needed and any(self._cut_short(entry.key) for entry in todo):
            self.note(f"the last epochs of {what}")
        return True

    def _cut_short(self, key: str) -> bool:
        entry = next(entry for entry in self.run.ledger.entries() if entry.key == key)
        return entry.record is not None and entry.record.epochs < entry.setting.max_epochs

    def spend(self) -> None:
        self.run.ledger.remember(spent=time.monotonic() - self.start)


def _what(run: Run, settings: Sequence[Setting], seed: int) -> str:
    if settings[0].network.closed_form:
        return "models in closed form"
    return f"{run.options.name_of(settings[0])}, seed {seed}"
