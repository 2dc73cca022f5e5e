"""From options and recordings to a plan: which stages, at what cost, and what a limit leaves out."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..augment import AUGMENTATIONS
from ..errors import UserError
from ..folds import USUAL_FOLDS
from ..model.encoders import Encoders
from ..recordings import Recordings
from ..runs.choice import StageScore
from ..runs.options import RunOptions, resolved
from ..runs.preparation import Preparation, prepare
from ..runs.run import Run, Tell, check_unused
from ..settings import Setting
from ..words import clock
from .costs import Costs
from .kinds import Candidates, candidates_of, list_of
from .plan import CLOSED_FORMS, Plan, PlannedTraining, Stage
from .plan_words import SURE, cost_words, why_folds
from .stages import SHORTLIST_PER_METHOD

FEWEST = 5  # folds that a limit may ask for
SHORT = 20.0  # seconds: stages that take less share an answer
PLAYED = 8.0  # seconds, roughly, for peers and for held-out people who use the model: the first answer and the last
COSTLY = 30.0  # seconds: closed forms that take longer come after the first answer
ROOM = 0.9  # of the time left that the main networks may take: estimates may be off
# Values of training windows × steps × trainings: smaller runs need no estimate.
LITTLE = 2e9


def plan_of(prepared: Preparation, costs: Costs | None = None) -> Plan:
    """costs: of trainings, where they were timed."""
    options, candidates = prepared.options, candidates_of(prepared)
    groups, settings = prepared.groups, candidates.networks
    folds = len(groups)
    plan = Plan(
        options=options, folds=folds, stages=[], limit=options.seconds,
        stops=options.staged and options.seconds is not None,
    )  # fmt: skip
    apart = options.adaptation is not None
    if options.search == "tpe" or not all_go_on(settings, apart=apart):
        tpe = options.search == "tpe"
        counts = Counter((list_of(setting, apart=apart), setting.method) for setting in settings)
        most = sum(min(k, SHORTLIST_PER_METHOD + (method is None)) for (_, method), k in counts.items())
        tried = options.trials + 1 if tpe else len(settings)
        going_on = min(tried, 1 + 5 * SHORTLIST_PER_METHOD if tpe else most)
        held_out = sum(map(len, groups[:2]))
        mean = 0.0 if costs is None else sum(costs.training(s, held_out) for s in settings) / len(settings)
        later = going_on * (folds * options.seeds - 1) * mean
        return replace(plan, searched=tried, candidates=going_on, search_seconds=tried * mean, later_seconds=later)
    quick = candidates.solved
    if options.staged and costs is not None:
        price = {form: costs.stage([form], groups) for form in quick}
        least = min(price.values(), default=0.0)  # the cheapest is quick in any case
        quick = [form for form in quick if price[form] <= max(COSTLY, least)]
    plan = _staged(plan, candidates, quick) if options.staged else with_candidate_stages(plan, candidates.every)
    return _timed(plan, groups, costs)


def all_go_on(settings: Sequence[Setting], *, apart: bool) -> bool:
    """Whether shortlists have room for every setting. apart: one for each network."""
    counts = Counter((list_of(setting, apart=apart), setting.method) for setting in settings)
    return max(counts.values(), default=0) <= SHORTLIST_PER_METHOD


def _staged(plan: Plan, candidates: Candidates, quick: Sequence[Setting]) -> Plan:
    """With a stage for the closed forms that are quick, then one for each network and seed, without penalties first."""
    settings, solved, costly = candidates
    first, *further = plan.options.every_seed
    slow = [*(form for form in solved if form not in quick), *costly]
    unpenalised = [setting for setting in settings if setting.penalty is None]
    kinds = [setting.kind for setting in unpenalised]
    main = [s for place, s in enumerate(unpenalised) if place and kinds.index(s.kind, 1) == place] or unpenalised
    rest = [setting for setting in unpenalised if setting not in main]

    def stage(setting: Setting, seed: int, *, main: bool = False) -> Stage:
        return Stage.of(network_name(setting, seed, plan.options.plain), [setting], [seed], main=main)

    stages = [Stage.of(CLOSED_FORMS, quick, [first], main=True)] if quick else []
    stages += [stage(setting, first, main=True) for setting in main]
    stages += [Stage.of("costlier closed forms", slow, [first])] if slow else []
    stages += [stage(setting, first) for setting in rest]
    stages += [stage(setting, seed) for seed in further for setting in (*main, *rest)]
    penalised: dict[str, list[Setting]] = {}
    for setting in settings:
        if setting.penalty is not None:
            penalised.setdefault(setting.kind, []).append(setting)
    stages += [Stage.of(f"{kind} with penalties", every, [first, *further]) for kind, every in penalised.items()]
    if quick and plan.options.adaptation == "zero-shot":  # sessions may use a person's windows: the same, centred
        online = [PlannedTraining(form.replace(centre="online"), first) for form in quick if form.encoder == "linear"]
        stages[0] = replace(stages[0], online=online)
    return replace(plan, stages=stages)


def with_candidate_stages(plan: Plan, candidates: Sequence[Setting]) -> Plan:
    """With stages for the shortlist of a search. With a limit each candidate is a stage, so that those which were
    trained were trained on every fold; otherwise all are one stage."""
    seeds = list(plan.options.every_seed)
    if plan.limit is None:
        return replace(plan, stages=[Stage.of("every fold", candidates, seeds)])
    solved = [setting for setting in candidates if setting.network.closed_form]
    trained = [setting for setting in candidates if not setting.network.closed_form]
    pairs = [(setting, seed) for seed in seeds for setting in trained]
    stages = [
        Stage.of(network_name(setting, seed, plan.options.plain), [setting], [seed], main=place == 0)
        for place, (setting, seed) in enumerate(pairs)
    ]
    if solved:
        stages.insert(1, Stage.of(CLOSED_FORMS, solved, seeds[:1], main=True))
    return replace(plan, stages=stages)


def network_name(setting: Setting, seed: int, plain: Setting) -> str:
    """A short name of a network: how it differs from the main one of its kind."""
    if setting == plain:
        return f"{setting.kind} as published, seed {seed}"
    values = setting.preprocessing.values()
    traits = [
        name for name, kind in AUGMENTATIONS.items() if any(isinstance(step, kind) for step in setting.augmentation)
    ]
    traits += [name for name in ("align", "turn") if values.get(name, "none") != "none"]
    traits += [] if setting.method is None else [setting.method]
    return f"{setting.kind}{' with ' * bool(traits)}{', '.join(traits)}, seed {seed}"


def _timed(plan: Plan, groups: Sequence[Sequence[int]], costs: Costs | None) -> Plan:
    """With the cost of every stage. Neighbouring short stages after the first become one, but main stages, which a
    limit makes room for, stay apart from those that it may cut."""
    answer, joined = 0.0, list[tuple[list[Stage], float]]()  # neighbours that become one, and their seconds
    for place, stage in enumerate(plan.stages):
        seconds = 0.0
        if costs is not None:
            every = [setting for setting, _ in stage.trainings]
            every += [form for form in every if stage.online and form.encoder == "linear"]  # once more, centred
            answer = answer_seconds(costs.recordings)
            seconds = costs.stage(every, groups) + answer + (PLAYED if place == 0 else 0.0)
        before, spent = joined[-1] if joined else ([], 0.0)
        alike = any(not other.solved for other in before) and before[0].main == stage.main
        if alike and max(spent, seconds) < SHORT:
            joined[-1] = [*before, stage], spent + max(0.0, seconds - answer)
        else:
            joined.append(([stage], seconds))
    return replace(plan, stages=[Stage.joined(*stages) for stages in joined])


def answer_seconds(recordings: Recordings) -> float:
    """Seconds, roughly, from a stage's last training to its answer: weights, models, results and report."""
    return 3.0 + 1.5e-3 * recordings.n_trials


# Steps to make a network of each kind fit into a limit, tried in order: the most folds, and which part of the usual
# steps is trained. Everything else is cut by the clock.
LADDER = ((math.inf, 1), (USUAL_FOLDS, 1), (USUAL_FOLDS, 2), (FEWEST, 2), (FEWEST, 4))
PARTS = {2: "half", 4: "a quarter"}


def _shortened(asked: RunOptions, folds: int, most: float, part: int) -> tuple[RunOptions, list[str]]:
    """Options for at most so many of these folds and a part of the steps, and what that leaves out in words."""
    options, left_out = asked, list[str]()
    if folds > most and asked.rule != "published":
        options, left_out = replace(options, folds=int(most)), [f"{most} folds instead of {folds}"]
    name = "max_epochs" if "max_epochs" in asked.constants else "max_steps"
    if (steps := getattr(asked, name)) > (fewer := max(1, steps // part)):
        left_out = [*left_out, f"{PARTS[part]} of the usual steps"]
        options = RunOptions.from_dict(options.to_dict() | {name: fewer})
    return options, left_out


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


def plan_within_limit(prepared: Preparation, asked: RunOptions, costs: Costs, spent: float = 0.0) -> Plan:
    """The plan for options that may have a limit, on the first rung of LADDER where a network of each kind fits. Where
    none does, the first where one network fits; else the whole plan, of which closed forms will be done. asked: options
    before they were resolved. spent: seconds since the run began."""
    plans = []
    for rung in LADDER if asked.seconds is not None else LADDER[:1]:
        options, left_out = _shortened(asked, prepared.turns, *rung)
        shorter = replace(prepared, options=resolved(options, prepared.recordings))
        plans.append(replace(plan_of(shorter, costs), spent=spent, left_out=left_out))
    whole = plans[0]
    if whole.limit is None:
        return whole

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
    all_networks, one_network = (len(whole.stages), room), (2, room / SURE)
    return next((plan for many in (all_networks, one_network) for plan in plans if fits(plan, *many)), whole)


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
    plan = plan_of(prepared) if again is None else again.for_recordings(prepared)
    # Whether it may take minutes: an estimate takes seconds, which small runs need not wait for.
    long = plan.trainings * plan.options.max_epochs * prepared.recordings.X.numel() > LITTLE
    if again is None and here and long:
        say("timing a few steps of every network")
        costs = Costs.measure(prepared, candidates_of(prepared).every)
        plan = plan_within_limit(prepared, options, costs, time.monotonic() - start)
        for line in cost_words(plan):
            say(line)
    for line in why_folds(prepared.recordings, options.folds, plan):
        say(line)
    prepared = replace(prepared, options=plan.options)
    run = Run.start(folder, prepared)
    run.ledger.remember(plan=plan, asked=options, spent=time.monotonic() - start)
    return run
