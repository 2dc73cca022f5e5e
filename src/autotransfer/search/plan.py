"""Plan of a run: stages in order, with the fits of each.

The plan depends on options and recordings alone, not on a clock. A dry run prints it, `procedure` performs it as far as
time allows, and a resumed run reads it back. Linear models come first, because they take seconds. A network of each
family follows, because averaging families gains most. Other networks, further seeds and penalties come last.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from .. import schema
from ..augment import AUGMENTATIONS
from ..errors import UserError, shown
from ..files import read_plain, write_atomically
from ..jobs import Job, check_seed
from ..model.encoders import ENCODERS, Encoders
from ..recordings import Recordings
from ..recordings.overview import describe
from ..runs.options import DEFAULT_ENCODER, RunOptions
from ..runs.preparation import Preparation, prepare
from ..runs.run import Run, Tell, check_unused
from ..settings import Setting
from ..training.train import check_jobs
from ..words import clock, count
from .candidates import Candidates, find_candidates, shortlist_key
from .held_out import SHORTLIST_PER_METHOD

PLAN = "plan.json"


@dataclass(frozen=True)
class PlannedFit:
    """Candidate with one seed, to be fitted on every fold."""

    setting: Setting
    seed: int

    def __post_init__(self) -> None:
        check_seed(self.seed)


@dataclass(frozen=True)
class Stage:
    """Fits on every fold before the next interim result."""

    name: str
    fits: list[PlannedFit]
    always: bool = False  # whether it is completed after the time limit
    online: list[PlannedFit] = field(default_factory=list)  # for the online ensemble alone

    @classmethod
    def of(cls, name: str, settings: Iterable[Setting], seeds: Sequence[int]) -> Stage:
        """Return a stage of these settings with every seed; linear models do not depend on it and have the first."""
        settings = list(settings)
        pairs = [(s, seed) for seed in seeds for s in settings if seed == seeds[0] or not s.network.closed_form]
        return cls(name, [PlannedFit(*pair) for pair in pairs])

    @property
    def settings(self) -> list[Setting]:
        return list(dict.fromkeys(fit.setting for fit in self.fits))

    def describe(self, n_folds: int) -> str:
        """Return the name and the number of fits. Linear models are fitted again for online sessions."""
        online = f", and {n_folds * len(self.online)} for online sessions" * bool(self.online)
        return f"{self.name}: {count(n_folds * len(self.fits), 'fit')}{online}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan of a run: its stages in order."""

    options: RunOptions  # resolved: as many folds and epochs as the recordings need
    folds: int
    stages: list[Stage]
    searched: int = 0  # settings that are searched on one fold first; `stages` is empty until their shortlist is known
    candidates: int = 0  # networks on the shortlist, at most
    fixed: bool = False  # performed again: neither time nor the expected gain ends it

    @property
    def fits(self) -> int:
        """Return the number of fits of networks, at most."""
        if self.searched:
            return self.searched + self.candidates * (self.folds * self.options.seeds - 1)
        return self.folds * sum(not fit.setting.network.closed_form for stage in self.stages for fit in stage.fits)

    def as_performed(self, delivered: int) -> Plan:
        """Return the plan of the delivered stages, to be performed again without a time limit."""
        return replace(self, stages=self.stages[:delivered], searched=0, candidates=0, fixed=True)

    def for_recordings(self, prepared: Preparation) -> Plan:
        """Return the plan for these recordings, to be performed again; raise if they do not allow one of its fits."""
        fits = [fit for stage in self.stages for fit in (*stage.fits, *stage.online)]
        settings = list(dict.fromkeys(fit.setting for fit in fits))
        try:
            prepared.check_settings(settings)
            check_jobs(prepared.recordings, [Job(setting, prepared.folds[0]) for setting in settings])
        except UserError as error:
            raise UserError(f"the plan cannot be performed on {shown(prepared.options.source)}: {error}") from None
        return replace(self, options=prepared.options, folds=len(prepared.folds))

    def options_here(self, requested: RunOptions, given: Collection[str]) -> RunOptions:
        """Return the plan's options with the requested data and device, and with options of windows that were given.

        An encoder that the plan names is imported only if the user names it, too, because the plan may not be trusted.
        given: names of the options that the user gave.
        """
        planned = self.options
        if "encoder" in given and requested.encoder != planned.encoder:
            raise UserError(
                f"the plan has the encoder {shown(planned.encoder)}, not {shown(requested.encoder)}; "
                "leave --encoder out, or --plan"
            )
        if "encoder" not in given and planned.encoder not in ENCODERS:
            raise UserError(
                f"the plan has the encoder {shown(planned.encoder)}, which is imported only if you name it; if you "
                "trust it, give it again: --encoder module:function"
            )
        names = ["source", "device", *(name for name in requested.cutting if name in given)]
        return replace(planned, **{name: getattr(requested, name) for name in names})


def write_plan(folder: Path, plan: Plan) -> None:
    write_atomically(folder / PLAN, json.dumps(schema.to_values(plan), indent=1))


def read_plan(path: Path) -> Plan:
    """Read the plan of another run from its folder or from a file."""
    path = path / PLAN if path.is_dir() else path
    try:
        plan = schema.from_json(Plan, read_plain(path).decode(errors="replace"))
    except FileNotFoundError:
        raise UserError(f"there is no file {path}; give the {PLAN} that a run has left") from None
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); give another --plan") from None
    except (UserError, ValueError) as error:
        raise UserError(f"{path} is no plan ({error}); give the {PLAN} that a run has left") from None
    if not plan.stages or not all(stage.fits for stage in plan.stages):
        raise UserError(f"{path} has no stages to perform; give the {PLAN} that a run has left")
    return plan.as_performed(len(plan.stages))


def limit_words(options: RunOptions) -> list[str]:
    """Say when a run ends, if it has a time limit."""
    if options.seconds is None:
        return []
    sooner = ", or sooner if no more gain is expected" if options.has_stages else ""
    unit = "h" if options.seconds >= 3600 else "min"
    limit = f"time limit {clock(options.seconds)} {unit}{sooner}"
    return [f"{limit}; the first stage is always finished (--time none: no limit)"]


def stage_lines(plan: Plan) -> list[str]:
    """Return a line for each stage."""
    return [f"  {number}. {stage.describe(plan.folds)}" for number, stage in enumerate(plan.stages, 1)]


def work_words(plan: Plan) -> str:
    """Say how many fits the plan contains, of which models."""
    options = plan.options
    seeds = count(options.seeds, "seed")
    if plan.searched:
        return (
            f"{plan.fits} fits of up to {options.max_epochs} epochs: {plan.searched} settings on one fold, "
            f"then at most {plan.candidates} candidates on {plan.folds} folds with {seeds}"
        )
    settings = list(dict.fromkeys(s for stage in plan.stages for s in stage.settings))
    n_trees = sum(s.encoder == "trees" for s in settings)
    n_linear = sum(s.network.closed_form for s in settings) - n_trees
    linear = " and ".join(count(n, what) for n, what in ((n_linear, "linear model"), (n_trees, "tree ensemble")) if n)
    n_online = len({fit.setting for stage in plan.stages for fit in stage.online})
    online = f", {n_online} of them also for online sessions" if n_online else ""
    n_networks = len(settings) - n_linear - n_trees
    if not n_networks:
        return f"{linear} on {plan.folds} folds{online}"
    networks = f"{count(n_networks, 'network')} on {plan.folds} folds with {seeds}"
    more = f", and {linear}{online}" if linear else ""
    return f"{count(plan.fits, 'fit')} of up to {options.max_epochs} epochs: {networks}{more}"


def unread_options(options: RunOptions, plan: Plan) -> list[str]:
    """Say which of a user's options nothing reads, because the plan has no network."""
    settings = [setting for stage in plan.stages for setting in stage.settings]
    if not settings or not all(setting.network.closed_form for setting in settings):
        return []
    read = {name for setting in settings for name in type(setting.network).__dataclass_fields__}
    unread = [name for name in options.constants if name not in read] + ["seeds"] * (options.seeds != RunOptions.seeds)
    return [f"no network is trained, so nothing reads {', '.join(unread)}"] if unread else []


def why_folds(recordings: Recordings, given_folds: int | str | None, plan: Plan) -> list[str]:
    """Say why there are fewer folds than subjects, or than the user asked for."""
    subjects, folds = recordings.n_subjects, plan.folds
    if isinstance(given_folds, int) and given_folds > folds:
        return [
            f"{given_folds} folds were asked for, but there are only {folds} subjects or units to hold out; "
            "each is held out once"
        ]
    if recordings.units is not None or isinstance(given_folds, int) or folds >= subjects:
        return []
    return [
        f"{folds} folds for {subjects} subjects: one fold per subject (--folds all) would take {subjects / folds:.1f} "
        "times as long; each subject is tested once in either case"
    ]


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
    stages += [
        Stage.of(f"network {family} with penalties", every, [first, *further]) for family, every in penalized.items()
    ]
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
    stages = [Stage.of(f"all models, seed {first}" if trained else "all models", candidates, [first])]
    stages += [Stage.of(f"seed {seed}", trained, [seed]) for seed in further if trained]
    return replace(plan, stages=stages)


def network_name(setting: Setting, seed: int, plain: Setting) -> str:
    """Return a short name of a network, by its difference from the main network of its family."""
    if setting == plain:
        suffix = "(paper)" if setting.family == DEFAULT_ENCODER else "with default settings"
        return f"network {setting.family} {suffix}, seed {seed}"
    values = setting.preprocessing.to_values()
    traits = [name for name, kind in AUGMENTATIONS.items() if any(isinstance(s, kind) for s in setting.augmentation)]
    traits += ["align"] if values.get("align", "none") != "none" else []
    traits += [] if setting.method is None else [setting.method]
    return f"network {setting.family}{' with ' * bool(traits)}{', '.join(traits)}, seed {seed}"


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
    earlier_plan: Plan | None = None,
) -> Run:
    """Start a run with its plan. earlier_plan: plan of another run, whose stages are repeated.

    tell: receives a description of the recordings, the reason for few folds, and the time limit.
    """
    start = time.monotonic()
    check_unused(folder)
    prepared = prepare(options, encoders, recordings)
    plan = make_plan(prepared) if earlier_plan is None else earlier_plan.for_recordings(prepared)
    lines = [describe(prepared.recordings), *why_folds(prepared.recordings, options.folds, plan)]
    lines += unread_options(options, plan)
    lines += limit_words(options) if earlier_plan is None else []
    if tell is not None:
        for line in lines:
            tell(line)
    run = Run.start(folder, prepared)
    run.database.remember(plan=plan, requested_options=options, seconds_spent=time.monotonic() - start)
    return run
