"""The description of a run: resolved once from what was asked, frozen, and stored with the run, so that `resume` needs
nothing but the folder. The command line, study.toml and the estimators all call `build_options`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

from ..errors import UserError, check_choice, check_types, shown
from ..folds import DEFAULT_FOLDS, FEWEST_FOLDS, MANY_SUBJECTS, SUBJECT, groups_of
from ..grids import BALANCED, GRIDS, PUBLISHED, grid, grid_text, settings_of
from ..jobs import check_seed
from ..model.encoders import ENCODERS
from ..preprocessing import TRANSFORMS
from ..recordings import Recordings
from ..recordings.cutting import Cutting
from ..settings import Setting, field_names
from ..tasks import Metric, Task, task_of
from ..tasks.classification import BALANCED_ACCURACY, CLASSIFICATION
from ..training.batches import EPOCHS, STEPS, epochs_for
from ..training.intervals import check_at_least

RULES = ("average", "published")
# Networks in addition to the plain one: all, the two main ones, the first of these alone; or no network at all.
NETWORKS = ("all", "main", "one", "none")
NO_TIME_LIMIT = "none"  # of --time: no limit, and no stop where no gain is expected
DEFAULT_TIME = "30m"  # of a run that averages families of models
CUTTING = (
    "window", "hop", "offset", "events", "pattern", "sfreq", "sep", "decimal", "time_column", "filter",
)  # fmt: skip
DEFAULT_ENCODER = "eegnet"
STAGED = ("quick", "few", "uncensored")  # grids of which all candidates are known from the start
ADAPTATIONS = ("zero-shot", "online", "transductive")
NO_CONSTANTS = ("method", "mode", "represent", "constants")  # fields of a setting that tell candidates from each other
LIMITS = ("seeds", "seed", "networks")  # accepted by every task, also by one that trains no network


def parse_time(text: str) -> float:
    """Return seconds from 90s, 30m, 2h or 1h30m."""
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip().lower())
    hours, minutes, seconds = (float(part or 0) for part in (match.groups() if match else (0, 0, 0)))
    total = 3600 * hours + 60 * minutes + seconds
    if not 0 < total < 1e8:
        raise UserError(f"time is {shown(text)}; write it as 30m, 2h or 1h30m")
    return total


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Description of a run. `build_options` makes it, `resolve_options` adds what follows from the recordings.

    Fields are the options of `autotransfer run`; `constants` are fields of `Setting` for all networks.
    """

    source: str
    target: str = CLASSIFICATION
    metric: str = BALANCED_ACCURACY
    at_least: float | None = None
    hold_out: str = SUBJECT
    folds: int | str | None = None  # "all": each subject alone; None: by the number of subjects
    rule: str = "average"
    grid: str = "quick"  # one of GRIDS, or settings as JSON text
    search: str = "grid"
    trials: int = 40
    adaptation: str = "zero-shot"  # one of ADAPTATIONS; none: the settings of the grid as they are, and no others
    kinds: str | None = None  # None: by the recordings
    networks: str = "all"
    encoder: str = DEFAULT_ENCODER
    seeds: int = 3
    seed: int = 0
    max_steps: int = STEPS
    constants: dict[str, Any] = field(default_factory=dict)
    time: str = NO_TIME_LIMIT
    device: str = "auto"
    # how continuous recordings are cut (see recordings.Cutting)
    window: float | None = None  # s
    hop: float | None = None  # s
    offset: float | None = None  # s
    events: str | None = None  # name=class,name=class
    pattern: str | None = None  # what the names of files mean
    sfreq: float | None = None  # Hz, of files that do not say it
    sep: str | None = None  # of CSV files
    decimal: str | None = None  # of CSV files
    time_column: str | None = None  # of CSV files
    filter: str | None = None  # before they are cut: 5-45,notch:50
    clean: bool = False  # leave out what is clearly broken (see recordings.cleaning)

    def __post_init__(self) -> None:
        check_types(self)
        check_choice("search", self.search, ("grid", "tpe"))
        check_choice("rule", self.rule, RULES)
        check_choice("networks", self.networks, NETWORKS)
        check_choice("adaptation", self.adaptation, ("none", *ADAPTATIONS))
        self.task.metric(self.metric)
        check_at_least(self.at_least, self.scoring.lowest, self.scoring.highest)
        _ = self.seconds
        for name in ("trials", "seeds", "max_steps"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if isinstance(self.folds, str) and self.folds != "all":
            raise UserError(f"folds is {shown(self.folds)}; give a number, or all")
        if isinstance(self.folds, int) and self.folds < FEWEST_FOLDS:
            raise UserError(
                f"folds is {self.folds}; it must be at least {FEWEST_FOLDS}: one group of people tests, one validates, "
                "the rest train"
            )
        if self.task.is_numeric and self.device == "cuda":
            raise UserError("linear models of a continuous target are fitted on the CPU; leave out device cuda")
        check_seed(self.seed)
        check_seed(self.seed + self.seeds - 1)  # the last of them
        Cutting.from_options(**{name: getattr(self, name) for name in CUTTING})
        for encoder in ENCODERS:
            self.with_constants(Setting(encoder=encoder))  # complains about a value that no setting may have

    @property
    def task(self) -> Task:
        return task_of(self.target)

    @property
    def scoring(self) -> Metric:
        """Return the metric that decides, and that people are scored with."""
        return self.task.metric(self.metric)

    @property
    def column(self) -> str | None:
        """Return the column or channel that is the target, if it is named."""
        return self.target.partition(":")[2] or None

    def load(self) -> Recordings:
        """Load the recordings with what is to be predicted."""
        return self.task.load(self.source, self.column, **self.cutting)

    @property
    def cutting(self) -> dict[str, Any]:
        """Return the keyword arguments of `load`."""
        return {name: getattr(self, name) for name in (*CUTTING, "clean")}

    @property
    def max_epochs(self) -> int:
        if "max_epochs" in self.constants:
            return int(self.constants["max_epochs"])
        return max(setting.max_epochs for setting in self._settings) if self.has_own_settings else EPOCHS[1]

    @property
    def has_own_settings(self) -> bool:
        """Return whether the user's own settings are tried as they are, instead of a named grid."""
        return self.grid not in GRIDS

    @property
    def seconds(self) -> float | None:
        """Return the time limit in seconds; None: everything is trained."""
        return None if self.time == NO_TIME_LIMIT else parse_time(self.time)

    @property
    def has_stages(self) -> bool:
        """Return whether model families are averaged, in stages that each end with an interim result."""
        return self.adaptation != "none" and not self.task.is_numeric

    @property
    def n_folds(self) -> int | None:
        """Return the number of folds; None: as many as people."""
        return self.folds if isinstance(self.folds, int) else None

    @property
    def all_seeds(self) -> range:
        return range(self.seed, self.seed + self.seeds)

    def apply(self, setting: Setting) -> Setting:
        """Return a setting of the grid with this run's epochs, encoder and constants."""
        changes: dict[str, Any] = {} if self.has_own_settings else {"max_epochs": self.max_epochs}
        if self.encoder != setting.encoder and not (self.has_own_settings and self.encoder == DEFAULT_ENCODER):
            changes |= {"encoder": self.encoder, "network": None}
        return self.with_constants(setting.replace(**changes))

    def with_constants(self, setting: Setting) -> Setting:
        """Return a setting with the constants that it reads: an encoder's own options are not read by other encoders,
        and linear models and trees read nothing else."""
        own = set(ENCODERS[setting.encoder].__dataclass_fields__) if setting.encoder in ENCODERS else set()
        others = {name for kind in ENCODERS.values() for name in kind.__dataclass_fields__} - own
        known = {name: value for name, value in self.constants.items() if name not in others}
        if setting.network.closed_form:
            known = {name: value for name, value in known.items() if name in own}
        elif known.get("as_printed") and setting.method in PUBLISHED:
            known = {"batches": "auto"} | known
        return setting.replace(**known) if known else setting

    def settings(self) -> list[Setting]:
        """Return the grid as it will be trained, the paper's network first. Constants are not varied. Where networks of
        several kinds meet it, quick is cut down to few."""
        return list(self._settings)

    @cached_property
    def _settings(self) -> tuple[Setting, ...]:
        """Make the settings once: the paper's grid has hundreds, and a run asks for them again and again."""
        if self.has_own_settings:
            settings = [self.apply(setting) for setting in settings_of(self.grid)]
            uncensored = [setting for setting in settings if setting.penalty is None]
            plain = (uncensored or [settings[0].uncensored("shuffled")])[0]
            return tuple(dict.fromkeys([plain, *settings]))
        settings = grid("few" if self.grid == "quick" and self.has_stages else self.grid)
        if self.encoder not in ENCODERS:  # what belongs to one of ours is not varied for a user's own
            settings = [s for s in settings if s.network == ENCODERS[s.encoder]()]
        elif ENCODERS[self.encoder].closed_form:  # there is nothing to censor, and nothing to train otherwise
            settings = settings[:1]
        if self.grid == "paper" and len(settings) > 1 and not self.constants.get("as_printed"):
            settings += [Setting(batches=kind) for kind in BALANCED]  # so that batches and penalty are not confounded
        return tuple(dict.fromkeys(self.apply(setting) for setting in settings))

    def name_of(self, setting: Setting) -> str:
        """Return the setting's name in this run, relative to the paper's network in this run."""
        return setting.name_relative_to(self.reference)

    @cached_property
    def reference(self) -> Setting:
        """Return EEGNet (paper) without a penalty; of settings that the user lists, the first without one."""
        return self._settings[0] if self.has_own_settings else self.apply(Setting())

    def to_dict(self) -> dict[str, Any]:
        """Return options and constants by name, as `build_options` reads them."""
        return {name: getattr(self, name) for name in ("source", *DEFAULTS)} | self.constants

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunOptions:
        """Return the description that a run has stored."""
        if not isinstance(values, dict):
            raise UserError(f"the options of a run are {shown(values)}; they must be a JSON object")
        return build_options(values)


class Preset(NamedTuple):
    """Options that a kind of run has by default, and options that it fixes."""

    called: str
    usual: dict[str, Any]
    fixed: dict[str, Any]


DEFAULTS = {option.name: option.default for option in fields(RunOptions) if option.name not in ("source", "constants")}
_GRID_ALONE = {"adaptation": "none", "kinds": None, "networks": "all"}
_NO_SEARCH = {"search": "grid", "trials": 40}
PRESETS = {
    "average": Preset(
        "the weighted ensemble of model families", {"time": DEFAULT_TIME}, {"rule": "average"} | _NO_SEARCH
    ),
    "settings": Preset("a run of given settings", {}, {"rule": "average"} | _GRID_ALONE | _NO_SEARCH),
    "tpe": Preset("a tpe search", {}, {"search": "tpe", "grid": "quick", "rule": "average"} | _GRID_ALONE),
    "paper": Preset(
        "the paper's procedure", {},
        {"rule": "published", "folds": "all", "hold_out": SUBJECT, "metric": BALANCED_ACCURACY} | _GRID_ALONE
        | _NO_SEARCH,
    ),
}  # fmt: skip


def build_options(given: Mapping[str, Any]) -> RunOptions:
    """Return the description of the run that is asked for.

    given: options of a run, and fields of `Setting` as constants, by name; None: the default
    """
    asked = {name: value for name, value in given.items() if value is not None}
    constants = {name: asked.pop(name) for name in list(asked) if name not in DEFAULTS and name != "source"}
    if "source" not in asked:
        raise UserError("there are no recordings; give DATA, or a --config that names them")
    choices = {*DEFAULTS, *field_names()} - set(NO_CONSTANTS)
    if unknown := [name for name in constants if name not in choices]:
        raise UserError(f"unknown option {shown(unknown[0])}; choose from {', '.join(sorted(choices))}")
    if isinstance(asked.get("folds"), str) and asked["folds"].isdigit():
        asked["folds"] = int(asked["folds"])  # as the command line has it
    if "grid" in asked:
        asked["grid"] = grid_text(asked["grid"])
    task = task_of(str(asked.get("target", CLASSIFICATION)))
    asked["metric"] = task.metric_name(asked.get("metric", task.default_metric))
    preset = PRESETS[_preset_of(asked, constants)] if task.options is None else _preset_of_task(task)
    for name, value in preset.fixed.items():
        if asked.get(name, value) != value:
            raise UserError(f"{name} is {shown(asked[name])}, and {preset.called} has {shown(value)}; leave it out")
    if task.options is not None and (unread := constants.keys() - {"max_epochs"}):
        raise UserError(f"{min(unread)} belongs to networks, and {preset.called} has none; leave it out")
    return RunOptions(**preset.usual | preset.fixed | asked, constants=constants)


def _preset_of_task(task: Task) -> Preset:
    """Return the preset of a task that reads a part of the options."""
    read = (*(task.options or ()), *LIMITS, *CUTTING, "clean")
    usual = DEFAULTS | {"metric": task.default_metric}
    return Preset("a run with this target", {}, {name: value for name, value in usual.items() if name not in read})


def _preset_of(asked: Mapping[str, Any], constants: Mapping[str, Any]) -> str:
    """Return the name of the preset that these options belong to."""
    grid = asked.get("grid", DEFAULTS["grid"])
    if asked.get("rule") == "published" or (grid == "paper" and "rule" not in asked):
        return "paper"
    if asked.get("search") == "tpe":
        return "tpe"
    # Candidates of several families say themselves how windows are prepared, and what is used of a new person.
    is_prepared = any(name in TRANSFORMS for name in constants)
    return "settings" if asked.get("adaptation") == "none" or grid not in STAGED or is_prepared else "average"


def resolve_options(options: RunOptions, recordings: Recordings) -> RunOptions:
    """Return options with folds and epochs set from the recordings, unless user or paper fixes them."""
    folds, n = options.folds, recordings.n_subjects if recordings.units is None else recordings.units.n_parts
    if folds is None:
        folds = DEFAULT_FOLDS if n > MANY_SUBJECTS and options.grid != "paper" else "all"
    if isinstance(folds, int) and folds >= n:
        folds = "all"
    constants = options.constants
    if "max_epochs" not in constants and options.grid != "paper" and not options.has_own_settings:
        held_out = sum(map(len, groups_of(recordings, folds if isinstance(folds, int) else None)[:2]))
        training = len(recordings.y) * (recordings.n_subjects - held_out) // recordings.n_subjects
        epochs = epochs_for(training, options.reference.training.batch_size, options.max_steps)
        constants = constants | {"max_epochs": epochs}
    return replace(options, folds=folds, constants=constants)
