"""Make the plan of a run from options and recordings: its stages, their order and their fits."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..augment import AUGMENTATIONS
from ..errors import UserError
from ..model.encoders import Encoders
from ..recordings import Recordings
from ..recordings.overview import describe
from ..runs.options import DEFAULT_ENCODER, RunOptions
from ..runs.preparation import Preparation, prepare
from ..runs.run import Run, Tell, check_unused
from ..settings import Setting
from .candidates import Candidates, find_candidates, shortlist_key
from .plan import Plan, PlannedFit, Stage, limit_words, why_folds
from .ranking import SHORTLIST_PER_METHOD


def make_plan(prepared: Preparation) -> Plan:
    """Return the plan of a run, which depends on options and recordings, not on the machine or on --time."""
    options, candidates = prepared.options, find_candidates(prepared)
    plan = Plan(options=options, folds=len(prepared.groups), stages=[])
    by_network = options.has_stages
    counts = Counter((shortlist_key(setting, by_network=by_network), setting.method) for setting in candidates.networks)
    tpe = options.search == "tpe"
    if tpe or max(counts.values(), default=0) > SHORTLIST_PER_METHOD:  # shortlists have no room for every setting
        most = sum(min(k, SHORTLIST_PER_METHOD + (method is None)) for (_, method), k in counts.items())
        tried = options.trials + 1 if tpe else len(candidates.networks)
        return replace(plan, searched=tried, candidates=min(tried, 1 + 5 * SHORTLIST_PER_METHOD if tpe else most))
    return _staged(plan, candidates) if options.has_stages else with_candidate_stages(plan, candidates.settings)


def _staged(plan: Plan, candidates: Candidates) -> Plan:
    """Return the plan with its stages, two linear models first, so that there is a result within a minute."""
    settings, linear, slow = candidates
    options, (first, *further) = plan.options, plan.options.all_seeds
    by_family: dict[str, Setting] = {}  # the first setting that uses as much of a new subject as the run may
    for setting in sorted(linear, key=lambda setting: setting.adaptation != options.adaptation):
        by_family.setdefault(setting.family, setting)
    two = list(by_family.values())[:2]
    unpenalized = [setting for setting in settings if setting.penalty is None]
    own = unpenalized[:1] if options.encoder != DEFAULT_ENCODER else []
    families = [setting.family for setting in unpenalized]
    main = [s for place, s in enumerate(unpenalized) if place and families.index(s.family, 1) == place]
    main = main or unpenalized[len(own) :]
    rest = [setting for setting in unpenalized if setting not in (*own, *main)]
    networks = [setting for setting in (*own, *main, *rest) if not setting.network.closed_form]

    def stage(setting: Setting, seed: int, *, always: bool = False) -> Stage:
        return replace(Stage.of(network_name(setting, seed, options.reference), [setting], [seed]), always=always)

    stages = [_linear_stage("two linear models", two, options)] if two else []
    stages += [stage(setting, first, always=True) for setting in own]
    others = [setting for setting in linear if setting not in two]
    stages += [_linear_stage("other linear models", others, options)] if others else []
    stages += [stage(setting, first) for setting in main]
    stages += [Stage.of("trees and slower linear models", slow, [first])] if slow else []
    stages += [stage(setting, first) for setting in rest]
    stages += [stage(setting, seed) for seed in further for setting in networks]
    penalized: dict[str, list[Setting]] = {}
    for setting in settings:
        if setting.penalty is not None:
            penalized.setdefault(setting.family, []).append(setting)
    stages += [Stage.of(f"{family} with penalties", every, [first, *further]) for family, every in penalized.items()]
    return replace(plan, stages=stages)


def _linear_stage(name: str, settings: Sequence[Setting], options: RunOptions) -> Stage:
    """Return a stage of linear models; of zero-shot runs, also centered models for the online ensemble."""
    stage = Stage.of(name, settings, [options.seed])
    if options.adaptation != "zero-shot":
        return stage
    centered = [PlannedFit(s.replace(center="online"), options.seed) for s in settings if s.encoder == "linear"]
    return replace(stage, online=centered)


def with_candidate_stages(plan: Plan, candidates: Sequence[Setting]) -> Plan:
    """Return the plan of a run without interim results: a stage for each seed, with all candidates on every fold."""
    first, *further = plan.options.all_seeds
    trained = [setting for setting in candidates if not setting.network.closed_form]
    stages = [Stage.of(f"seed {first}", candidates, [first])]
    stages += [Stage.of(f"seed {seed}", trained, [seed]) for seed in further if trained]
    return replace(plan, stages=stages)


def network_name(setting: Setting, seed: int, plain: Setting) -> str:
    """Return a short name of a network, by its difference from the main network of its family."""
    if setting == plain:
        return f"{setting.family} {'(paper)' if setting.family == DEFAULT_ENCODER else 'as given'}, seed {seed}"
    values = setting.preprocessing.to_values()
    traits = [
        name
        for name, augmentation in AUGMENTATIONS.items()
        if any(isinstance(step, augmentation) for step in setting.augmentation)
    ]
    traits += ["align"] if values.get("align", "none") != "none" else []
    traits += [] if setting.method is None else [setting.method]
    return f"{setting.family}{' with ' * bool(traits)}{', '.join(traits)}, seed {seed}"


def extend_time(run: Run, seconds: float | None) -> None:
    """Allow a run this many more seconds; None: no time limit."""
    plan = run.database.recall("plan", Plan)
    if plan is None or not run.options.has_stages:
        raise UserError("the run has no interim results and therefore no time limit; leave --time out")
    if plan.fixed:
        raise UserError("the run performs the plan of another run and therefore has no time limit; leave --time out")
    if run.database.recall("delivered_stages", int) == len(plan.stages):
        raise UserError("everything in its plan was trained; leave --time out")
    spent = run.database.recall("seconds_spent", float) or 0.0
    run.database.remember(seconds_allowed=math.inf if seconds is None else spent + seconds, complete=False)


def begin(
    folder: Path,
    options: RunOptions,
    encoders: Encoders | None = None,
    recordings: Recordings | None = None,
    tell: Tell | None = None,
    *,
    again: Plan | None = None,
) -> Run:
    """Start a run with its plan. again: the plan that another run performed.

    tell: receives a description of the recordings, the reason for few folds, and the time limit.
    """
    start = time.monotonic()
    check_unused(folder)
    prepared = prepare(options, encoders, recordings)
    plan = make_plan(prepared) if again is None else again.for_recordings(prepared)
    lines = [describe(prepared.recordings), *why_folds(prepared.recordings, options.folds, plan)]
    lines += limit_words(options) if again is None else []
    if tell is not None:
        for line in lines:
            tell(line)
    run = Run.start(folder, prepared)
    run.database.remember(plan=plan, requested_options=options, seconds_spent=time.monotonic() - start)
    return run
