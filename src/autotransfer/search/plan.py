"""What a run will do, resolved once from options and recordings: stages in order, what each trains, and what it costs.

A dry run prints the plan, a limit cuts it, `procedure` performs it and notes in it what was left out, and a resumed run
reads it back. Stages end in answers. Closed forms come first, because they take seconds; then a network of each kind,
because averaging kinds gains most; then other networks, further seeds, and last penalties, which gain least.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from .. import schema
from ..augment import AUGMENTATIONS
from ..errors import UserError
from ..files import write_atomically
from ..folds import USUAL_FOLDS, check_scorable, groups_of, in_units, turns
from ..model.encoders import Encoders
from ..recordings import Recordings, load
from ..runs.options import RunOptions
from ..runs.run import Run, Tell, check_columns, check_encoder, check_packages
from ..settings import Setting
from ..training.batches import BALANCES, n_people
from ..training.packing import resolve_device
from ..training.progress import clock
from .costs import Costs, people_held_out
from .kinds import closed_forms, list_of, networks, online_forms, uncentred
from .stages import SHORTLIST_PER_METHOD

PLAN = "plan.json"
CLOSED_FORMS = "closed forms"  # the first stage
FEWEST = 5  # folds that a limit may ask for
SHORT = 20.0  # seconds: an answer more often than that is worth nobody's time
PLAYED = 12.0  # seconds, roughly, for peers and for held-out people who use the model: the first answer and the last
COSTLY = 30.0  # seconds: closed forms that take longer do not keep the first answer waiting
SURE = 1.3  # estimates are this factor off, up or down, on a machine that does nothing else
ROOM = 0.9  # of a limit that the main networks may take: the rest is for answers
HALVED = 0.4  # of the epochs of stage one are left with successive halving
# Values of training windows, steps and trainings multiplied: far below this nobody needs an estimate.
LITTLE = 2e9
NAMED = 2  # stages that a line names, of those that were left out


class Training(NamedTuple):
    """A candidate with one seed, on every fold."""

    setting: Setting
    seed: int

    def to_dict(self) -> dict[str, Any]:
        return {"setting": self.setting.to_dict(), "seed": self.seed}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Training:
        setting, seed = values.get("setting"), values.get("seed")
        if not isinstance(setting, dict) or not isinstance(seed, int):
            raise UserError("a training has no setting or no seed")
        return cls(Setting.from_dict(setting), seed)


@dataclass(frozen=True)
class Stage:
    """What is trained on every fold before the next answer."""

    name: str
    trainings: list[Training]
    seconds: float = 0.0  # for all folds and the answer, on this machine; 0: nobody has timed it
    main: bool = False  # whether a limit makes room for it
    left_out: str = ""  # why it was not trained
    online: list[Training] = field(default_factory=list)  # for the average of sessions alone

    @property
    def settings(self) -> list[Setting]:
        return list(dict.fromkeys(setting for setting, _ in self.trainings))

    @property
    def solved(self) -> bool:
        """Whether all of it is solved in closed form."""
        return all(setting.network.closed_form for setting, _ in self.trainings)

    @property
    def words(self) -> str:
        return f"{self.name} (linear models, solved at once)" if self.name == CLOSED_FORMS else self.name


def _stage(name: str, settings: Iterable[Setting], seeds: Sequence[int], *, main: bool = False) -> Stage:
    """One seed after the other; what is solved in closed form is the same for all of them."""
    settings = list(settings)
    every = [Training(s, seed) for seed in seeds for s in settings if seed == seeds[0] or not s.network.closed_form]
    return Stage(name, every, main=main)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Frozen: whoever changes what is done makes another, and the ledger keeps it."""

    options: dict[str, Any]  # resolved: as many folds and epochs as the recordings need
    folds: int
    stages: list[Stage]
    searched: int = 0  # settings that are tried on one split first; who goes on, `stages` says when that is done
    candidates: int = 0  # networks that go on from there, at most
    pairs: int = 0  # further trainings, with a pair of people left out: --nested full
    search_seconds: float = 0.0  # for what is tried on one split, and
    later_seconds: float = 0.0  # for what goes on
    limit: float | None = None  # seconds
    stops: bool = False  # before the limit, when no gain is expected
    fixed: bool = False  # performed again: the clock and what is expected end nothing
    left_out: list[str] = field(default_factory=list)  # before the run started
    busy: float = 1.0  # how much longer all takes than on a machine that does nothing else

    @property
    def ahead(self) -> list[Stage]:
        return [stage for stage in self.stages if not stage.left_out]

    @property
    def trainings(self) -> int:
        """Of networks, at most."""
        if self.searched:
            return self.searched + self.candidates * (self.folds * int(self.options["seeds"]) - 1) + self.pairs
        return self.pairs + self.folds * sum(
            not s.network.closed_form for stage in self.ahead for s, _ in stage.trainings
        )

    @property
    def seconds(self) -> float:
        return self.search_seconds + self.later_seconds + sum(stage.seconds for stage in self.ahead)

    def within(self, seconds: float) -> list[Stage]:
        """The stages that end in so much time, as expected; the first is always done."""
        done: list[Stage] = []
        spent = 0.0
        for stage in self.ahead:
            if not done or spent + stage.seconds <= seconds:
                spent += stage.seconds
                done.append(stage)
        return done

    def with_stage(self, number: int, stage: Stage) -> Plan:
        return replace(self, stages=[*self.stages[:number], stage, *self.stages[number + 1 :]])

    def divided(self, number: int, whole: list[Training], cut: list[Training], why: str) -> Plan:
        """With a stage in two: what of it was trained on every fold, and what was not. Stages after it keep their
        numbers, because answers name theirs: what was not trained comes last."""
        stage = self.stages[number]
        rest = Stage(f"the rest of {stage.name}", cut, main=stage.main, left_out=why)
        done = replace(stage, name=f"{stage.name} (a part)", trainings=whole)
        return replace(self, stages=[*self.stages[:number], done, *self.stages[number + 1 :], rest])

    def among(self, candidates: Sequence[Setting]) -> Plan:
        """For the candidates that went on from a search. With a limit each is a stage of its own, so that those which
        were trained were trained on every fold; otherwise all are one."""
        options = RunOptions.from_dict(self.options)
        seeds = list(options.every_seed)
        if self.limit is None:
            return replace(self, stages=[_stage("every fold", candidates, seeds)])
        solved = [one for one in candidates if one.network.closed_form]
        others = [one for one in candidates if not one.network.closed_form]
        first = [_stage(_called(options, others[0], seeds[0]), others[:1], seeds[:1], main=True)] if others else []
        stages = [*first, *([_stage(CLOSED_FORMS, solved, seeds[:1], main=True)] if solved else [])]
        later = [(one, seed) for seed in seeds for one in others][1:]
        return replace(
            self, stages=[*stages, *(_stage(_called(options, one, seed), [one], [seed]) for one, seed in later)]
        )

    def performed(self, answered: Sequence[int]) -> Plan:
        """What of it was done, to be done again whatever the clock says."""
        stages = [self.stages[number] for number in answered]
        return replace(
            self, stages=stages, searched=0, search_seconds=0.0, later_seconds=0.0, limit=None, fixed=True, left_out=[]
        )


def plan_of(options: RunOptions, recordings: Recordings, costs: Costs | None = None) -> Plan:
    """options: resolved for these recordings. costs: what trainings take, where anybody has timed them."""
    settings = networks(options, options.settings(), recordings)
    solved = closed_forms(options, recordings)
    folds = len(groups_of(recordings, options.n_folds))
    busy = 1.0 if costs is None else costs.busy
    plan = Plan(
        options=options.to_dict(), folds=folds, stages=[], limit=options.seconds, busy=busy,
        stops=options.staged and options.seconds is not None,
        pairs=len(settings) * folds * (folds - 1) // 2 if options.nested == "full" else 0,
    )  # fmt: skip
    apart = options.adaptation is not None
    if options.search == "tpe" or options.search == "halving" or not all_go_on(settings, apart=apart):
        tpe = options.search == "tpe"
        counts = Counter((list_of(setting, apart=apart), setting.method) for setting in settings)
        most = sum(min(k, SHORTLIST_PER_METHOD + (method is None)) for (_, method), k in counts.items())
        tried = options.trials + 1 if tpe else len(settings)
        going_on = min(tried, 1 + 5 * SHORTLIST_PER_METHOD if tpe else most)
        mean = 0.0 if costs is None else sum(costs.training(one, options) for one in settings) / len(settings)
        first = tried * mean * (HALVED if options.search == "halving" else 1.0)
        later = going_on * (folds * options.seeds - 1) * mean
        return replace(
            plan, searched=tried, candidates=going_on, search_seconds=first, later_seconds=later + plan.pairs * mean
        )
    if not options.staged:
        return _timed(plan.among([*settings, *solved]), options, costs)
    dear = [one for one in closed_forms(options, recordings, costly=True) if one not in solved]
    stages = _stages(options, settings, solved, dear, folds, costs)
    quick = set(stages[0].settings)
    online = [Training(one, options.seed) for one in online_forms(options, recordings) if uncentred(one) in quick]
    stages[0] = replace(stages[0], online=online)
    return _timed(replace(plan, stages=stages), options, costs)


def all_go_on(settings: Sequence[Setting], *, apart: bool) -> bool:
    """Are shortlists long enough for every setting, whatever stage one would find? apart: one for each network."""
    counts = Counter((list_of(setting, apart=apart), setting.method) for setting in settings)
    return max(counts.values(), default=0) <= SHORTLIST_PER_METHOD


def _stages(
    options: RunOptions, settings: Sequence[Setting], solved: Sequence[Setting], dear: Sequence[Setting], folds: int,
    costs: Costs | None,
) -> list[Stage]:  # fmt: skip
    """One for the closed forms that are quick, then one for each network and seed, without penalties first. dear:
    closed forms that take minutes."""
    seeds = list(options.every_seed)
    price = {one: 0.0 if costs is None else costs.stage([one], folds, options) / costs.busy for one in solved}
    least = min(price.values(), default=0.0)  # one of them comes first in any case
    quick = [one for one in solved if price[one] <= max(COSTLY, least)]
    costly = [*(one for one in solved if one not in quick), *dear]
    plain, *others = [one for one in settings if one.penalty is None]
    kinds = [one.kind for one in others]
    main = [one for place, one in enumerate(others) if kinds.index(one.kind) == place] or [plain]
    rest = [one for one in (plain, *others) if one not in main]
    stages = [_stage(CLOSED_FORMS, quick, seeds[:1], main=True)] if quick else []
    stages += [_stage(_called(options, one, seeds[0]), [one], seeds[:1], main=True) for one in main]
    stages += [_stage("costlier closed forms", costly, seeds[:1])] if costly else []
    stages += [_stage(_called(options, one, seeds[0]), [one], seeds[:1]) for one in rest]
    stages += [_stage(_called(options, one, seed), [one], [seed]) for seed in seeds[1:] for one in (*main, *rest)]
    penalised: dict[str, list[Setting]] = {}
    for one in settings:
        if one.penalty is not None:
            penalised.setdefault(one.kind, []).append(one)
    return stages + [_stage(f"{kind} with penalties", censored, seeds) for kind, censored in penalised.items()]


def _called(options: RunOptions, setting: Setting, seed: int) -> str:
    """A short name of a network: what tells it from the main one of its kind."""
    if setting == options.plain:
        return f"{setting.kind} as published, seed {seed}"
    values = setting.preprocessing.values()
    traits = [
        name for name, kind in AUGMENTATIONS.items() if any(isinstance(own, kind) for own in setting.augmentation)
    ]
    traits += [name for name in ("align", "turn") if values.get(name, "none") != "none"]
    traits += [] if setting.method is None else [setting.method]
    return f"{setting.kind}{' with ' * bool(traits)}{', '.join(traits)}, seed {seed}"


def _timed(plan: Plan, options: RunOptions, costs: Costs | None) -> Plan:
    """With the cost of every stage; stages after the first that are short on their own become one, those that a limit
    makes room for apart from the rest, which it may cut."""
    if costs is not None:
        plan = replace(plan, stages=[replace(s, seconds=_seconds(s, plan, options, costs)) for s in plan.stages])
    stages: list[Stage] = []
    for stage in plan.stages:
        before = stages[-1] if stages else None
        alike = before is not None and not before.solved and before.main == stage.main
        if before is not None and alike and max(before.seconds, stage.seconds) < SHORT:
            stages[-1] = _joined(before, stage, costs)
        else:
            stages.append(stage)
    return replace(plan, stages=stages)


def _joined(first: Stage, second: Stage, costs: Costs | None) -> Stage:
    answer = 0.0 if costs is None else answer_seconds(costs.recordings)
    together = [*first.trainings, *second.trainings]
    kinds = " and ".join(dict.fromkeys(setting.kind for setting, _ in together))
    n, seeds = len({setting for setting, _ in together}), len({seed for _, seed in together})
    return Stage(
        f"{kinds}: {n} candidates, {seeds} seed{'s' * (seeds != 1)}", together,
        first.seconds + max(0.0, second.seconds - answer), first.main or second.main,
    )  # fmt: skip


def _seconds(stage: Stage, plan: Plan, options: RunOptions, costs: Costs) -> float:
    every = [setting for setting, _ in stage.trainings] + [uncentred(setting) for setting, _ in stage.online]
    training = costs.stage(every, plan.folds, options)
    return training + answer_seconds(costs.recordings) + (PLAYED if stage is plan.stages[0] else 0.0)


def answer_seconds(recordings: Recordings) -> float:
    """Seconds, roughly, from a stage's last training to its answer: weights, models, results and report."""
    return 4.0 + 2e-3 * recordings.n_trials


Change = Callable[[RunOptions, int], RunOptions]


def _fewer_folds(most: int) -> Change:
    def change(options: RunOptions, folds: int) -> RunOptions:
        return replace(options, folds=most) if folds > most and options.rule != "published" else options

    return change


def _shorter(part: int) -> Change:
    def change(options: RunOptions, _: int) -> RunOptions:
        if options.epochs is not None:
            return replace(options, epochs=max(1, options.epochs // part))
        return replace(options, max_steps=max(1, options.max_steps // part))

    return change


# What is given up so that a network of each kind fits into a limit, until it does. All else is cut by the clock alone.
LADDER: tuple[tuple[tuple[str, Change], ...], ...] = (
    (),
    ((f"folds above {USUAL_FOLDS}", _fewer_folds(USUAL_FOLDS)),),
    ((f"folds above {USUAL_FOLDS}", _fewer_folds(USUAL_FOLDS)), ("half of the steps of every training", _shorter(2))),
    ((f"folds above {FEWEST}", _fewer_folds(FEWEST)), ("half of the steps of every training", _shorter(2))),
    ((f"folds above {FEWEST}", _fewer_folds(FEWEST)), ("three quarters of the steps of every training", _shorter(4))),
)


def cut(recordings: Recordings, asked: RunOptions, costs: Costs) -> Plan:
    """The plan of options that may have a limit: with less of everything where that makes room for a network of each
    kind. Where nothing does, the first whose first network fits; else the whole, of which closed forms will be done."""
    resolved = asked.for_data(recordings)
    whole = plan_of(resolved, recordings, costs)
    if whole.limit is None:
        return whole
    plans = []
    for changes in LADDER:
        options, left_out = asked, list[str]()
        for words, change in changes:
            less = change(options, resolved.n_folds or turns(recordings))
            if less != options:
                options, left_out = less, [*left_out, words]
        plans.append(replace(plan_of(options.for_data(recordings), recordings, costs), left_out=left_out))

    room = ROOM * (whole.limit - PLAYED)
    if whole.searched:  # stage one ends in any case
        least = next((plan for plan in plans if plan.seconds <= room), plans[-1])
        if least.search_seconds > room:
            least_time, needed = clock(least.search_seconds), math.ceil(least.search_seconds / ROOM / 60)
            raise UserError(
                f"time {asked.time} is too short: settings on one split alone take about {least_time} on this machine; "
                f"give at least --time {needed}m"
            )
        return least

    def fits(plan: Plan, most: int) -> bool:
        return sum(stage.seconds for stage in [s for s in plan.stages if s.main][:most]) <= room

    return next((plan for most in (len(whole.stages), 2) for plan in plans if fits(plan, most)), whole)


def begin(
    folder: Path,
    options: RunOptions,
    encoders: Encoders | None = None,
    recordings: Recordings | None = None,
    tell: Tell | None = None,
    *,
    here: bool = True,
    again: Plan | None = None,
) -> Run:
    """Start a run with its plan. here: it is trained on this machine. again: the plan that another run performed.

    tell: who is told why there are so few folds, how long it will take, and what is left out.
    """
    start = time.monotonic()
    resolve_device(options.device)
    check_packages(options)
    check_encoder(options, encoders)
    if options.seconds is not None and not here:
        raise UserError(f"time {options.time} is planned for this machine; leave out either --time or --cluster")
    recordings = load(options.source, **options.cutting) if recordings is None else recordings
    recordings = in_units(recordings, options.hold_out)
    check_scorable(recordings)
    resolved = options.for_data(recordings)
    check_columns(resolved, recordings)
    say = (lambda _: None) if tell is None else tell
    if again is not None:
        plan = replace(again, options=resolved.to_dict())
    elif here and worth_timing(recordings, resolved):
        say("timing a few steps of every network")
        plan = cut(recordings, options, Costs.measure(recordings, resolved, encoders))
        for line in cost_words(plan):
            say(line)
    else:
        plan = plan_of(resolved, recordings)
    performed = RunOptions.from_dict(plan.options)
    for line in why_folds(recordings, options, plan):
        say(line)
    run = Run.create(folder, performed, encoders, recordings)
    run.ledger.remember(plan=plan, asked=options.to_dict(), spent=time.monotonic() - start)
    return run


def worth_timing(recordings: Recordings, options: RunOptions) -> bool:
    """Could it take minutes? An estimate takes seconds, which small runs need not wait for."""
    plan = plan_of(options, recordings)
    return plan.trainings * options.max_epochs * recordings.X.numel() > LITTLE


# what a plan is in words


def span(seconds: float, busy: float = 1.0) -> str:
    """A range: an estimate may be off, and a machine that is busy now may be quiet later."""
    return f"{clock(seconds / (SURE * busy))} to {clock(seconds * SURE)}"


def cost_words(plan: Plan) -> list[str]:
    """How long, to what limit, and what is left out for it."""
    if not plan.seconds:
        return []
    lines = [f"about {span(plan.seconds, plan.busy)} for everything on this machine"]
    if len(plan.stages) > 1:
        lines = [f"first answer after about {span(plan.stages[0].seconds, plan.busy)}; {lines[0]}"]
    if plan.limit is not None:
        late = bool(plan.stages) and plan.stages[0].seconds * SURE > plan.limit
        until = ", but not before its first answer" if late else ""
        until += "; sooner, if no more gain is expected" if plan.stops else ""
        lines.append(f"it ends after {clock(plan.limit)}, with what is then trained{until} (--time none: everything)")
    if plan.left_out:
        lines.append(f"left out, so that a network of each kind fits into that: {'; '.join(plan.left_out)}")
    return lines


def stage_lines(plan: Plan) -> Iterator[str]:
    """A line for each stage, with the time at which its answer is expected."""
    spent, done = 0.0, plan.ahead if plan.limit is None else plan.within(plan.limit)
    for number, stage in enumerate(plan.ahead, 1):
        many = plan.folds * (len(stage.trainings) + len(stage.online))
        if stage in done:
            spent += stage.seconds
            when = f"answer after {span(spent, plan.busy)}" if spent else "not timed"
        else:
            when = f"takes {span(stage.seconds, plan.busy)}: not in this time"
        yield f"  {number}. {stage.words}: {many} training{'s' * (many != 1)}, {when}"


def left_out_words(plan: Plan) -> list[str]:
    """Stages that were not trained, and why: the first few by name."""
    stages = [stage for stage in plan.stages if stage.left_out]
    named = stages if len(stages) <= NAMED + 1 else stages[:NAMED]
    more = len(stages) - len(named)
    return [f"{stage.name} ({stage.left_out})" for stage in named] + ([f"{more} more stages"] if more else [])


def work_words(plan: Plan) -> str:
    """How many trainings of what."""
    options = RunOptions.from_dict(plan.options)
    seeds = f"{options.seeds} seed{'s' * (options.seeds != 1)}"
    if plan.searched:
        return (
            f"{plan.trainings} trainings of up to {options.max_epochs} epochs: {plan.searched} settings on one split, "
            f"then at most {plan.candidates} candidates on {plan.folds} folds with {seeds}"
        )
    settings = list(dict.fromkeys(s for stage in plan.ahead for s in stage.settings))
    solved = sum(s.network.closed_form for s in settings)
    more = f", and {solved} model{'s' * (solved != 1)} in closed form" if solved else ""
    n = len(settings) - solved
    return (
        f"{plan.trainings} training{'s' * (plan.trainings != 1)} of up to {options.max_epochs} epochs: {n} "
        f"candidate{'s' * (n != 1)} on {plan.folds} folds with {seeds}{more}"
    )


def why_folds(recordings: Recordings, asked: RunOptions, plan: Plan) -> list[str]:
    """Why there are fewer folds than people, where nobody asked for it and no limit is the reason."""
    people, folds = recordings.n_subjects, plan.folds
    if recordings.units is not None:
        return []
    if asked.folds not in ("auto", "all") or folds >= people or any("folds" in words for words in plan.left_out):
        return []
    return [
        f"{folds} folds, because there are {people} people: leaving out each alone would take {people / folds:.1f} "
        "times as long; everybody is tested once all the same (--folds all: each alone)"
    ]


def balances(recordings: Recordings, options: RunOptions) -> list[str]:
    """How the batches of penalised networks are made up, in words."""
    lines = []
    settings = [setting for setting in networks(options, options.settings(), recordings) if setting.penalty is not None]
    training = recordings.n_subjects - people_held_out(recordings, options)
    for kind, balance in BALANCES.items():
        sizes = {setting.training.batch_size for setting in settings if setting.training.batches == kind}
        for size in sorted(sizes):
            people = n_people(balance, size, recordings.n_classes, training)
            rows = f"{balance.block} or more rows of each{' class' if balance.by_class else ''}"
            modes = "conditional" if balance.by_class else "other"
            lines.append(f"batches of {size} for {modes} penalties: {people} people, {rows} where the data allow it")
    return lines


# plan.json


def write_plan(folder: Path, plan: Plan) -> None:
    write_atomically(folder / PLAN, json.dumps(schema.to_values(plan), indent=1))


def read_plan(path: Path) -> Plan:
    """What another run performed; a folder's, or a file's."""
    path = path / PLAN if path.is_dir() else path
    try:
        plan = schema.from_json(Plan, path.read_text(encoding="utf-8", errors="replace"))
        RunOptions.from_dict(plan.options)
    except FileNotFoundError:
        raise UserError(f"there is no file {path}; give the {PLAN} that a run has left") from None
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); give another --plan") from None
    except UserError as error:
        raise UserError(f"{path} is no plan ({error}); give the {PLAN} that a run has left") from None
    if not plan.stages or not all(stage.trainings for stage in plan.stages):
        raise UserError(f"{path} has no stages to perform; give the {PLAN} that a run has left")
    if not all(map(math.isfinite, (plan.busy, *(stage.seconds for stage in plan.stages)))):
        raise UserError(f"{path} is no plan (a number is not finite)")
    return plan
