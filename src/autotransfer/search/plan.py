"""Plan of a run: its stages, in order, and the fits of each stage.

The plan depends only on options and recordings. Linear models and trees come first, because they take seconds. A
network of each family follows, because averaging models of different families raises scores most. Other networks,
further seeds and penalties come last. A dry run prints the plan, and `procedure` performs it until the time limit.
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
from .candidates import TREES, Candidates, find_candidates, is_slow, shortlist_key
from .held_out import SHORTLIST_PER_METHOD

PLAN = "plan.json"


@dataclass(frozen=True)
class PlannedModel:
    """A setting and a seed, to be fitted on every fold."""

    setting: Setting
    seed: int

    def __post_init__(self) -> None:
        check_seed(self.seed)


@dataclass(frozen=True)
class Stage:
    """Stage of a plan: fits on every fold, after which a run has an interim result."""

    name: str
    fits: list[PlannedModel]
    ignores_time_limit: bool = False
    online_fits: list[PlannedModel] = field(default_factory=list)  # fits that only the online ensemble uses

    @classmethod
    def from_settings(cls, name: str, settings: Iterable[Setting], seeds: Sequence[int]) -> Stage:
        """Return a stage with these settings and all seeds; linear models and trees have the first seed only."""
        settings = list(settings)
        pairs = [(s, seed) for seed in seeds for s in settings if seed == seeds[0] or not s.network.is_closed_form]
        return cls(name, [PlannedModel(*pair) for pair in pairs])

    @property
    def settings(self) -> list[Setting]:
        return list(dict.fromkeys(fit.setting for fit in self.fits))

    def describe(self, n_folds: int) -> str:
        """Return the name and the numbers of fits of the stage."""
        online = f", and {n_folds * len(self.online_fits)} for online sessions" * bool(self.online_fits)
        return f"{self.name}: {count(n_folds * len(self.fits), 'fit')}{online}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan of a run: its stages in order."""

    options: RunOptions  # options with folds and epochs for the recordings
    n_folds: int
    stages: list[Stage]  # empty before the search of settings has finished
    n_searched: int = 0  # number of settings that are first compared on one fold, to select the shortlists
    n_candidates: int = 0  # largest number of networks on the shortlists
    is_repeated: bool = False  # whether all stages of another run are performed, regardless of time and expected gain

    @property
    def n_network_fits(self) -> int:
        """Return the largest possible number of fits of networks."""
        if self.n_searched:
            return self.n_searched + self.n_candidates * (self.n_folds * self.options.seeds - 1)
        return self.n_folds * sum(not fit.setting.network.is_closed_form for stage in self.stages for fit in stage.fits)

    @property
    def n_stages_with_new_encoders(self) -> int:
        """Return the number of stages up to the last one with an encoder that no earlier stage has.

        Such a stage may raise the score although earlier stages did not, so a run does not stop before it.
        """
        first_stage: dict[str, int] = {}
        for number, stage in enumerate(self.stages, 1):
            for setting in stage.settings:
                first_stage.setdefault(setting.encoder, number)
        return max(first_stage.values(), default=0)

    def as_performed(self, n_stages: int) -> Plan:
        """Return the plan that repeats the first n_stages stages without a time limit."""
        return replace(self, stages=self.stages[:n_stages], n_searched=0, n_candidates=0, is_repeated=True)

    def for_recordings(self, prepared: Preparation) -> Plan:
        """Return the plan for other recordings; raise if one of its fits is not possible on these recordings."""
        fits = [fit for stage in self.stages for fit in (*stage.fits, *stage.online_fits)]
        settings = list(dict.fromkeys(fit.setting for fit in fits))
        try:
            prepared.check_settings(settings)
            check_jobs(prepared.recordings, [Job(setting, prepared.folds[0]) for setting in settings])
        except UserError as error:
            raise UserError(f"the plan cannot be performed on {shown(prepared.options.source)}: {error}") from None
        return replace(self, options=prepared.options, n_folds=len(prepared.folds))

    def merge_options(self, requested: RunOptions, user_options: Collection[str]) -> RunOptions:
        """Return the options of the plan with data, device and windows as requested.

        An encoder that the plan names is imported only if the user names it, too, because the plan may not be trusted.
        user_options: names of the options that the user set.
        """
        planned = self.options
        if "encoder" in user_options and requested.encoder != planned.encoder:
            raise UserError(
                f"the plan has the encoder {shown(planned.encoder)}, not {shown(requested.encoder)}; "
                "leave out either --encoder or --plan"
            )
        if "encoder" not in user_options and planned.encoder not in ENCODERS:
            raise UserError(
                f"the plan has the encoder {shown(planned.encoder)}, which is imported only if you name it; if you "
                "trust it, give it again: --encoder module:function"
            )
        names = ["source", "device", *(name for name in requested.cutting if name in user_options)]
        return replace(planned, **{name: getattr(requested, name) for name in names})


def write_plan(folder: Path, plan: Plan) -> None:
    write_atomically(folder / PLAN, json.dumps(schema.to_values(plan), indent=1))


def read_plan(path: Path) -> Plan:
    """Read the plan of another run from its folder or from a file."""
    path = path / PLAN if path.is_dir() else path
    try:
        plan = schema.from_json(Plan, read_plain(path).decode(errors="replace"))
    except FileNotFoundError:
        raise UserError(f"there is no file {path}; give the {PLAN} of a run") from None
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); give another --plan") from None
    except (UserError, ValueError) as error:
        raise UserError(f"{path} is no plan of a run ({error}); give the {PLAN} of a run") from None
    if not plan.stages or not all(stage.fits for stage in plan.stages):
        raise UserError(f"{path} has no stages to perform; give the {PLAN} of a run")
    return plan.as_performed(len(plan.stages))


def describe_time_limit(options: RunOptions) -> list[str]:
    """Return a line about the end of a run, if the run has a time limit."""
    if options.seconds is None:
        return []
    sooner = ", or sooner if no more gain is expected" if options.has_stages else ""
    unit = "h" if options.seconds >= 3600 else "min"
    limit = f"time limit {clock(options.seconds)} {unit}{sooner}"
    return [f"{limit}; the first stage is always finished (--time none: no limit)"]


def stage_lines(plan: Plan) -> list[str]:
    """Return a line about each stage."""
    return [f"  {number}. {stage.describe(plan.n_folds)}" for number, stage in enumerate(plan.stages, 1)]


def describe_fits(plan: Plan) -> str:
    """Return the numbers of fits and models of a plan in words."""
    options = plan.options
    seeds = count(options.seeds, "seed")
    if plan.n_searched:
        return (
            f"{plan.n_network_fits} fits of up to {options.max_epochs} epochs: {plan.n_searched} settings on one fold, "
            f"then at most {plan.n_candidates} candidates on {plan.n_folds} folds with {seeds}"
        )
    settings = list(dict.fromkeys(s for stage in plan.stages for s in stage.settings))
    n_trees = sum(s.encoder in TREES for s in settings)
    n_linear = sum(s.network.is_closed_form for s in settings) - n_trees
    numbers = ((n_linear, "linear model"), (n_trees, "tree ensemble"))
    linear = " and ".join(count(n, noun) for n, noun in numbers if n)
    n_online = len({fit.setting for stage in plan.stages for fit in stage.online_fits})
    online = f", {n_online} of them also for online sessions" if n_online else ""
    n_networks = len(settings) - n_linear - n_trees
    if not n_networks:
        return f"{linear} on {plan.n_folds} folds{online}"
    networks = f"{count(n_networks, 'network')} on {plan.n_folds} folds with {seeds}"
    linear = f", and {linear}{online}" if linear else ""
    return f"{count(plan.n_network_fits, 'fit')} of up to {options.max_epochs} epochs: {networks}{linear}"


def unread_options(options: RunOptions, plan: Plan) -> list[str]:
    """Return a line with the user's options that have no effect because the plan has no network."""
    settings = [setting for stage in plan.stages for setting in stage.settings]
    if not settings or not all(setting.network.is_closed_form for setting in settings):
        return []
    names = {name for setting in settings for name in type(setting.network).__dataclass_fields__}
    unread = [name for name in options.constants if name not in names] + ["seeds"] * (options.seeds != RunOptions.seeds)
    return [f"no network is trained; options without effect: {', '.join(unread)}"] if unread else []


def explain_folds(recordings: Recordings, requested: int | str | None, plan: Plan) -> list[str]:
    """Return a line about the reason if there are fewer folds than subjects, or fewer than requested."""
    subjects, folds = recordings.n_subjects, plan.n_folds
    if isinstance(requested, int) and requested > folds:
        return [
            f"{requested} folds were requested, but there are only {folds} subjects or units to hold out; "
            "each is held out once"
        ]
    if recordings.units is not None or isinstance(requested, int) or folds >= subjects:
        return []
    return [
        f"{folds} folds for {subjects} subjects: one fold per subject (--folds all) would take {subjects / folds:.1f} "
        "times as long; each subject is tested once in either case"
    ]


def make_plan(prepared: Preparation) -> Plan:
    """Return the plan of a run. It does not depend on the machine or on --time."""
    options, candidates = prepared.options, find_candidates(prepared)
    plan = Plan(options=options, n_folds=len(prepared.groups), stages=[])
    if options.search == "tpe":
        n_searched = options.trials + 1
        return replace(plan, n_searched=n_searched, n_candidates=min(n_searched, 1 + 5 * SHORTLIST_PER_METHOD))
    networks, by_network = candidates.networks, options.has_stages  # staged runs have one shortlist per network
    counts = Counter((shortlist_key(setting, by_network=by_network), setting.method) for setting in networks)
    if max(counts.values(), default=0) > SHORTLIST_PER_METHOD:  # some settings are not on the shortlists
        n_shortlisted = sum(min(k, SHORTLIST_PER_METHOD + (method is None)) for (_, method), k in counts.items())
        return replace(plan, n_searched=len(networks), n_candidates=min(len(networks), n_shortlisted))
    return _add_stages(plan, candidates) if options.has_stages else add_candidate_stages(plan, candidates.settings)


def _add_stages(plan: Plan, candidates: Candidates) -> Plan:
    """Return the plan with stages that end with interim results. Two linear models give a result within a minute."""
    networks, linear, trees = candidates
    options, (first, *further) = plan.options, plan.options.all_seeds
    by_family: dict[str, Setting] = {}  # the first setting of each family, if possible with the adaptation of the run
    for setting in sorted(linear, key=lambda setting: setting.adaptation != options.adaptation):
        by_family.setdefault(setting.family, setting)
    first_linear = list(by_family.values())[:2]
    other_linear = [setting for setting in linear if setting not in first_linear]
    slow_linear = [setting for setting in other_linear if is_slow(setting)]
    other_linear = [setting for setting in other_linear if setting not in slow_linear]
    unpenalized = [setting for setting in networks if setting.penalty is None]  # the reference is the first
    user_networks = unpenalized[:1] if options.encoder != DEFAULT_ENCODER else []
    families = [setting.family for setting in unpenalized]
    # The main network of a family is its first unpenalized network that is not the reference.
    main_networks = [s for k, s in enumerate(unpenalized) if k and families.index(s.family, 1) == k]
    main_networks = main_networks or unpenalized[len(user_networks) :]
    other_networks = [setting for setting in unpenalized if setting not in (*user_networks, *main_networks)]
    repeated_networks = [s for s in (*user_networks, *main_networks, *other_networks) if not s.network.is_closed_form]

    def make_network_stage(setting: Setting, seed: int) -> Stage:
        return Stage.from_settings(network_name(setting, seed, options.reference), [setting], [seed])

    stages = [_make_linear_stage("two linear models", first_linear, options)] if first_linear else []
    stages += [replace(make_network_stage(setting, first), ignores_time_limit=True) for setting in user_networks]
    stages += [_make_linear_stage("other linear models", other_linear, options)] if other_linear else []
    for encoder in TREES if trees else ():
        fits = [setting for setting in trees if setting.encoder == encoder]
        stages.append(Stage.from_settings(ENCODERS[encoder].display_name or encoder, fits, [first]))
    stages += [Stage.from_settings("slower linear models", slow_linear, [first])] if slow_linear else []
    stages += [make_network_stage(setting, first) for setting in main_networks]
    stages += [make_network_stage(setting, first) for setting in other_networks]
    stages += [make_network_stage(setting, seed) for seed in further for setting in repeated_networks]
    penalized: dict[str, list[Setting]] = {}
    for setting in networks:
        if setting.penalty is not None:
            penalized.setdefault(setting.family, []).append(setting)
    for family, group in penalized.items():
        stages.append(Stage.from_settings(f"network {family} with penalties", group, [first, *further]))
    return replace(plan, stages=stages)


def _make_linear_stage(name: str, settings: Sequence[Setting], options: RunOptions) -> Stage:
    """Return a stage of linear models. In zero-shot runs, centered models for the online ensemble are added."""
    stage = Stage.from_settings(name, settings, [options.seed])
    if options.adaptation != "zero-shot":
        return stage
    centered = [PlannedModel(s.replace(center="online"), options.seed) for s in settings if s.encoder == "linear"]
    return replace(stage, online_fits=centered)


def add_candidate_stages(plan: Plan, candidates: Sequence[Setting]) -> Plan:
    """Return the plan of a run without interim results: a stage for each seed, with all candidates on every fold."""
    first, *further = plan.options.all_seeds
    networks = [setting for setting in candidates if not setting.network.is_closed_form]
    stages = [Stage.from_settings(f"all models, seed {first}" if networks else "all models", candidates, [first])]
    stages += [Stage.from_settings(f"seed {seed}", networks, [seed]) for seed in further if networks]
    return replace(plan, stages=stages)


def network_name(setting: Setting, seed: int, reference: Setting) -> str:
    """Return a short name of a network: family, augmentations, alignment, penalty and seed."""
    if setting == reference:
        suffix = "(paper)" if setting.family == DEFAULT_ENCODER else "with default settings"
        return f"network {setting.family} {suffix}, seed {seed}"
    values = setting.preprocessing.to_values()
    names = [name for name, step in AUGMENTATIONS.items() if any(isinstance(s, step) for s in setting.augmentation)]
    names += ["align"] if values.get("align", "none") != "none" else []
    names += [] if setting.method is None else [setting.method]
    return f"network {setting.family}{' with ' * bool(names)}{', '.join(names)}, seed {seed}"


def extend_time(run: Run, seconds: float | None) -> None:
    """Extend the time limit of a run by `seconds`; None: remove the limit."""
    plan = run.database.load_fact("plan", Plan)
    if plan is None or not run.options.has_stages:
        raise UserError("the run has no interim results and therefore no time limit; leave --time out")
    if plan.is_repeated:
        raise UserError("the run performs the plan of another run and therefore has no time limit; leave --time out")
    if run.database.load_fact("delivered_stages", int) == len(plan.stages):
        raise UserError("everything in its plan was trained; leave --time out")
    spent = run.database.load_fact("seconds_spent", float) or 0.0
    run.database.store_facts(seconds_allowed=math.inf if seconds is None else spent + seconds, complete=False)


def start_run(
    folder: Path,
    options: RunOptions,
    encoders: Encoders | None = None,
    recordings: Recordings | None = None,
    tell: Tell | None = None,
    *,
    earlier_plan: Plan | None = None,
    start_time: float | None = None,
) -> Run:
    """Start a run with its plan. earlier_plan: plan of another run, whose stages are repeated.

    tell: receives a description of the recordings, the reason for few folds, and the time limit.
    start_time: time of the monotonic clock from which the time limit counts; default: now
    """
    start_time = time.monotonic() if start_time is None else start_time
    check_unused(folder)
    prepared = prepare(options, encoders, recordings)
    plan = make_plan(prepared) if earlier_plan is None else earlier_plan.for_recordings(prepared)
    lines = [describe(prepared.recordings), *explain_folds(prepared.recordings, options.folds, plan)]
    lines += unread_options(options, plan)
    lines += describe_time_limit(options) if earlier_plan is None else []
    if tell is not None:
        for line in lines:
            tell(line)
    run = Run.start(folder, prepared)
    run.database.store_facts(plan=plan, requested_options=options)
    run.start_time = start_time
    return run
