"""From options and recordings to a plan: which stages, at what cost, and what a limit leaves out."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ..errors import UserError, shown
from ..folds import USUAL_FOLDS, groups_of, leave_groups_out, turns
from ..jobs import Job
from ..model.adapters import is_adapted
from ..model.encoders import Encoders
from ..models.base import bound_base
from ..preprocessing.represent.base_layout import is_layout
from ..preprocessing.represent.foundation import is_foundation
from ..preprocessing.represent.pretrained import is_base
from ..recordings import Recordings
from ..recordings.ring import check_ring
from ..runs.choice import StageScore
from ..runs.options import RunOptions
from ..runs.preparation import check_modules, prepare
from ..runs.run import Run, Tell, check_unused
from ..settings import Setting
from ..training.members import size_of
from ..training.train import check_jobs
from ..words import clock
from .costs import Costs
from .kinds import Candidates, candidates_of, list_of, uncentred
from .plan import CLOSED_FORMS, Plan, Stage, Training, network_name
from .plan_words import SURE, cost_words, why_folds
from .stages import SHORTLIST_PER_METHOD

FEWEST = 5  # folds that a limit may ask for
SHORT = 20.0  # seconds: stages that take less share an answer
PLAYED = 8.0  # seconds, roughly, for peers and for held-out people who use the model: the first answer and the last
COSTLY = 30.0  # seconds: closed forms that take longer come after the first answer
ROOM = 0.9  # of the time left that the main networks may take: estimates may be off
HALVED = 0.4  # of the epochs of stage one are left with successive halving
# Values of training windows × steps × trainings: smaller runs need no estimate.
LITTLE = 2e9


def plan_of(options: RunOptions, recordings: Recordings, costs: Costs | None = None) -> Plan:
    """options: resolved for these recordings. costs: of trainings, where they were timed."""
    candidates = candidates_of(options, recordings)
    settings = candidates.networks
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
        mean = 0.0 if costs is None else sum(costs.training(s, options) for s in settings) / len(settings)
        first = tried * mean * (HALVED if options.search == "halving" else 1.0)
        later = going_on * (folds * options.seeds - 1) * mean
        return replace(
            plan, searched=tried, candidates=going_on, search_seconds=first, later_seconds=later + plan.pairs * mean
        )
    if not options.staged:
        return _timed(plan.among(candidates.every), options, costs)
    stages = _stages(options, candidates, folds, costs)
    quick = set(stages[0].settings)
    online = [Training(form, options.seed) for form in candidates.online if uncentred(form) in quick]
    stages[0] = replace(stages[0], online=online)
    return _timed(replace(plan, stages=stages), options, costs)


def all_go_on(settings: Sequence[Setting], *, apart: bool) -> bool:
    """Whether shortlists have room for every setting. apart: one for each network."""
    counts = Counter((list_of(setting, apart=apart), setting.method) for setting in settings)
    return max(counts.values(), default=0) <= SHORTLIST_PER_METHOD


def _stages(options: RunOptions, candidates: Candidates, folds: int, costs: Costs | None) -> list[Stage]:
    """One for the closed forms that are quick, then one for each network and seed, without penalties first."""
    settings, solved, costly, _ = candidates
    first, *further = options.every_seed
    price = {form: 0.0 if costs is None else costs.stage([form], folds, options) / costs.busy for form in solved}
    least = min(price.values(), default=0.0)  # the cheapest is quick in any case
    quick = [form for form in solved if price[form] <= max(COSTLY, least)]
    slow = [*(form for form in solved if form not in quick), *costly]
    plain, *others = [setting for setting in settings if setting.penalty is None]
    kinds = [setting.kind for setting in others]
    main = [setting for place, setting in enumerate(others) if kinds.index(setting.kind) == place] or [plain]
    rest = [setting for setting in (plain, *others) if setting not in main]

    def stage(setting: Setting, seed: int, *, main: bool = False) -> Stage:
        return Stage.of(network_name(options, setting, seed), [setting], [seed], main=main)

    stages = [Stage.of(CLOSED_FORMS, quick, [first], main=True)] if quick else []
    stages += [stage(setting, first, main=True) for setting in main]
    stages += [Stage.of("costlier closed forms", slow, [first])] if slow else []
    stages += [stage(setting, first) for setting in rest]
    stages += [stage(setting, seed) for seed in further for setting in (*main, *rest)]
    penalised: dict[str, list[Setting]] = {}
    for setting in settings:
        if setting.penalty is not None:
            penalised.setdefault(setting.kind, []).append(setting)
    return stages + [Stage.of(f"{kind} with penalties", every, [first, *further]) for kind, every in penalised.items()]


def _timed(plan: Plan, options: RunOptions, costs: Costs | None) -> Plan:
    """With the cost of every stage. Neighbouring short stages after the first become one, but main stages, which a
    limit makes room for, stay apart from those that it may cut."""
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
    return 3.0 + 1.5e-3 * recordings.n_trials


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


_FOLDS = "%d folds instead of {folds}"
# Steps to make a network of each kind fit into a limit, tried in order. Everything else is cut by the clock.
LADDER: tuple[tuple[tuple[str, Change], ...], ...] = (
    (),
    ((_FOLDS % USUAL_FOLDS, _fewer_folds(USUAL_FOLDS)),),
    ((_FOLDS % USUAL_FOLDS, _fewer_folds(USUAL_FOLDS)), ("half of the usual steps", _shorter(2))),
    ((_FOLDS % FEWEST, _fewer_folds(FEWEST)), ("half of the usual steps", _shorter(2))),
    ((_FOLDS % FEWEST, _fewer_folds(FEWEST)), ("a quarter of the usual steps", _shorter(4))),
)


def give_more(run: Run, seconds: float | None) -> None:
    """Let a run go on for so many seconds more than it took so far; None: until everything is trained."""
    plan = run.ledger.recall("plan", Plan)
    if plan is None or not run.options.staged:
        raise UserError("the run does not answer in stages, and ends when everything is trained; leave --time out")
    if plan.fixed:
        raise UserError("the run performs the plan of another, however long that takes; leave --time out")
    answered = {answer.number for answer in run.ledger.recall("answers", list[StageScore]) or []}
    if answered == set(range(len(plan.stages))):
        raise UserError("everything in its plan was trained; leave --time out")
    spent = run.ledger.recall("spent", float) or 0.0
    run.ledger.remember(plan=plan.with_more(seconds, spent), complete=False)


def cut(recordings: Recordings, asked: RunOptions, costs: Costs, spent: float = 0.0) -> Plan:
    """The plan for options that may have a limit, on the first rung of LADDER where a network of each kind fits. Where
    none does, the first where one network fits; else the whole plan, of which closed forms will be done. spent: seconds
    since the run began."""
    resolved = asked.for_data(recordings)
    whole = replace(plan_of(resolved, recordings, costs), spent=spent)
    if whole.limit is None:
        return whole
    plans, folds = [], resolved.n_folds or turns(recordings)
    for changes in LADDER:
        options, left_out = asked, list[str]()
        for words, change in changes:
            less = change(options, folds)
            if less != options:
                options, left_out = less, [*left_out, words.format(folds=folds)]
        plan = plan_of(options.for_data(recordings), recordings, costs)
        plans.append(replace(plan, spent=spent, left_out=left_out))

    room = ROOM * whole.left
    if whole.searched:  # the clock does not end stage one
        least = next((plan for plan in plans if plan.seconds <= room), plans[-1])
        if least.search_seconds > room:
            least_time, needed = clock(least.search_seconds), whole.limit - whole.left + least.search_seconds / ROOM
            raise UserError(
                f"time {asked.time} is too short: settings on one split alone take about {least_time} on this machine; "
                f"give at least --time {math.ceil(needed / 60)}m"
            )
        return least

    def fits(plan: Plan, most: int, room: float) -> bool:
        return sum(stage.seconds for stage in [s for s in plan.stages if s.main][:most]) <= room

    # Closed forms lose by fewer folds: one network must be sure to fit before they are shortened for it.
    every, one = (len(whole.stages), room), (2, room / SURE)
    return next((plan for many in (every, one) for plan in plans if fits(plan, *many)), whole)


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

    tell: receives why there are so few folds, how long it will take, and what is left out.
    """
    start = time.monotonic()
    check_unused(folder)
    if again is None and options.seconds is not None and not here:
        raise UserError(f"time {options.time} is planned for this machine; leave out either --time or --cluster")
    prepared = prepare(options, encoders, recordings)
    say = (lambda _: None) if tell is None else tell
    if again is not None:
        plan = plan_again(again, prepared.options, prepared.recordings, encoders)
    elif here and worth_timing(prepared.recordings, prepared.options):
        say("timing a few steps of every network")
        costs = Costs.measure(prepared.recordings, prepared.options, encoders)
        plan = cut(prepared.recordings, options, costs, time.monotonic() - start)
        for line in cost_words(plan):
            say(line)
    else:
        plan = plan_of(prepared.options, prepared.recordings)
    for line in why_folds(prepared.recordings, options, plan):
        say(line)
    run = Run.start(folder, prepared.with_options(RunOptions.from_dict(plan.options)))
    run.ledger.remember(plan=plan, asked=options.to_dict(), spent=time.monotonic() - start)
    return run


def plan_again(performed: Plan, options: RunOptions, recordings: Recordings, encoders: Encoders | None) -> Plan:
    """The plan of another run for these recordings; raises where a training cannot be done on them, before any is.

    options: resolved for these recordings, with encoder and base as the user gave them.
    """
    of_base: set[str] = set()  # names that settings may have for parts of the base
    if options.base is not None:
        bound = bound_base(options.base, recordings)
        of_base = {*bound.kinds.values(), *(str(value) for keywords in bound.tuned for value in keywords.values())}
    fold = leave_groups_out(recordings, options.n_folds)[0]
    every = [training for stage in performed.stages for training in (*stage.trainings, *stage.online)]
    settings = list(dict.fromkeys(setting for setting, _ in every))
    try:
        for setting in settings:
            _check_possible(setting, recordings, of_base)
        check_modules(settings, encoders, recordings)
        check_jobs(recordings, [Job(setting, fold) for setting in settings])
    except UserError as error:
        raise UserError(f"the plan cannot be performed on {shown(options.source)}: {error}") from None
    return replace(performed, options=options.to_dict(), folds=len(groups_of(recordings, options.n_folds)))


def _check_possible(setting: Setting, recordings: Recordings, of_base: Collection[str]) -> None:
    size_of(recordings, setting)  # complains about windows that are too short
    values = setting.preprocessing.values()
    named = {"represent": values.get("represent"), "start": getattr(setting.network, "start", None)}
    named |= {"encoder": setting.encoder} if is_adapted(setting.encoder) else {}
    for name, value in named.items():
        pretrained = name != "represent" or is_base(value) or is_layout(value) or is_foundation(value)
        if value is not None and pretrained and value not in of_base:
            raise UserError(f"{name} is {shown(value)}, which is of another base; give the plan's: --base BASE")
    if values.get("turn", "none") != "none":
        check_ring(recordings.ring, f"turn={values['turn']!r}")
    for step in setting.augmentation:
        step.bound(recordings, setting.preprocessing, torch.device("cpu"))


def worth_timing(recordings: Recordings, options: RunOptions) -> bool:
    """Whether a run may take minutes: an estimate takes seconds, which small runs need not wait for."""
    plan = plan_of(options, recordings)
    return plan.trainings * options.max_epochs * recordings.X.numel() > LITTLE
