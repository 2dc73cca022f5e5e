"""Options of a run. A run stores its options, so that `resume` needs only the folder.

The command line, study.toml and the estimators create options with `build_options`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

from ..errors import UserError, check_choice, check_types, shown, suggest
from ..folds import DEFAULT_FOLDS, MANY_SUBJECTS, MIN_FOLDS, SUBJECT, groups_of
from ..grids import BALANCED_BATCHES, GRIDS, PUBLISHED, grid, grid_text, settings_of
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
# Networks in addition to EEGNet (paper): all, the two main networks, or the first one. none: no network is trained.
NETWORKS = ("all", "main", "one", "none")
NO_TIME_LIMIT = "none"  # value of time: every stage is trained, even if no gain is expected
DEFAULT_TIME = "10m"  # time limit of a run that averages model families
CUTTING = (
    "window", "hop", "offset", "events", "pattern", "sfreq", "sep", "decimal", "time_column", "filter",
)  # fmt: skip
DEFAULT_ENCODER = "eegnet"
STAGED_GRIDS = ("quick", "core", "uncensored")  # grids whose candidates can be trained in stages
ADAPTATIONS = ("zero-shot", "online", "transductive")
VARIED = ("method", "mode", "represent", "constants")  # fields that differ between candidates and are not options
READ_BY_ALL_TASKS = ("seeds", "seed", "networks")  # options that are accepted, without effect, if there are no networks


def parse_time(text: str) -> float:
    """Return seconds from 90s, 30m, 2h or 1h30m."""
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip().lower())
    hours, minutes, seconds = (float(part or 0) for part in (match.groups() if match else (0, 0, 0)))
    total = 3600 * hours + 60 * minutes + seconds
    if not 0 < total < 1e8:
        raise UserError(f"time is {shown(text)}; give a duration such as 30m, 2h or 1h30m")
    return total


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run, with the names of `autotransfer run`. `constants` are fields of `Setting` for all networks.

    `build_options` creates options, and `resolve_options` sets folds and epochs from the recordings.
    """

    source: str
    target: str = CLASSIFICATION
    metric: str = BALANCED_ACCURACY
    at_least: float | None = None
    hold_out: str = SUBJECT
    folds: int | str | None = None  # "all": one fold per subject; None: depends on the number of subjects
    rule: str = "average"
    grid: str = "quick"  # one of GRIDS, or a JSON list of settings
    search: str = "grid"
    trials: int = 40
    adaptation: str = "zero-shot"  # one of ADAPTATIONS; none: only the settings of the grid are candidates
    kinds: str | None = None  # model families, signals and representations, separated by commas; None: automatic
    networks: str = "all"
    encoder: str = DEFAULT_ENCODER
    seeds: int = 3
    seed: int = 0
    max_steps: int = STEPS
    constants: dict[str, Any] = field(default_factory=dict)
    time: str = NO_TIME_LIMIT
    device: str = "auto"
    # options for loading recordings, see recordings.cutting.Cutting
    window: float | None = None  # s
    hop: float | None = None  # s
    offset: float | None = None  # s
    events: str | None = None  # name=class,name=class
    pattern: str | None = None  # parts of file names, such as {subject}_{class}.csv
    sfreq: float | None = None  # Hz, for files that do not state it
    sep: str | None = None  # separator of CSV files
    decimal: str | None = None  # decimal mark of CSV files
    time_column: str | None = None  # column of CSV files
    filter: str | None = None  # filter of continuous recordings, such as 5-45,notch:50
    clean: bool = False  # whether clearly broken windows and channels are left out

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
            raise UserError(f"folds is {shown(self.folds)}; give a number or all")
        if isinstance(self.folds, int) and self.folds < MIN_FOLDS:
            raise UserError(f"folds is {self.folds}; it must be at least {MIN_FOLDS}: test, validation and training")
        if self.task.is_numeric and self.device == "cuda":
            raise UserError("device is 'cuda', but models of a continuous target run on the CPU; leave device out")
        check_seed(self.seed)
        check_seed(self.seed + self.seeds - 1)  # the last seed
        Cutting(**{name: getattr(self, name) for name in CUTTING})
        for encoder in ENCODERS:
            self.with_constants(Setting(encoder=encoder))  # raises if a constant has an invalid value

    @property
    def task(self) -> Task:
        return task_of(self.target)

    @property
    def scoring(self) -> Metric:
        """Return the metric that models are selected and scored by."""
        return self.task.metric(self.metric)

    @property
    def target_column(self) -> str | None:
        """Return the name of the column or channel that is predicted, if the target names one."""
        return self.target.partition(":")[2] or None

    def load(self) -> Recordings:
        """Load the recordings with classes or target values."""
        return self.task.load(self.source, self.target_column, **self.cutting)

    @property
    def cutting(self) -> dict[str, Any]:
        """Return the keyword arguments of `at.load`."""
        return {name: getattr(self, name) for name in (*CUTTING, "clean")}

    @property
    def max_epochs(self) -> int:
        if "max_epochs" in self.constants:
            return int(self.constants["max_epochs"])
        return max(setting.max_epochs for setting in self._settings) if self.has_custom_settings else EPOCHS[1]

    @property
    def has_custom_settings(self) -> bool:
        """Return whether the grid is a list of settings by the user."""
        return self.grid not in GRIDS

    @property
    def seconds(self) -> float | None:
        """Return the time limit in seconds; None if there is no limit."""
        return None if self.time == NO_TIME_LIMIT else parse_time(self.time)

    @property
    def has_stages(self) -> bool:
        """Return whether candidates are trained in stages that each end with an interim result."""
        return self.adaptation != "none" and not self.task.is_numeric

    @property
    def n_folds(self) -> int | None:
        """Return the number of folds; None for one fold per subject."""
        return self.folds if isinstance(self.folds, int) else None

    @property
    def all_seeds(self) -> range:
        return range(self.seed, self.seed + self.seeds)

    def apply(self, setting: Setting) -> Setting:
        """Return a setting of the grid with the epochs, encoder and constants of this run."""
        changes: dict[str, Any] = {} if self.has_custom_settings else {"max_epochs": self.max_epochs}
        if self.encoder != setting.encoder and not (self.has_custom_settings and self.encoder == DEFAULT_ENCODER):
            changes |= {"encoder": self.encoder, "network": None}
        return self.with_constants(setting.replace(**changes))

    def with_constants(self, setting: Setting) -> Setting:
        """Return a setting with the constants that have an effect on it.

        Options of an encoder have no effect on other encoders; linear models and trees read no other constants.
        """
        options = set(ENCODERS[setting.encoder].__dataclass_fields__) if setting.encoder in ENCODERS else set()
        other_options = {name for encoder in ENCODERS.values() for name in encoder.__dataclass_fields__} - options
        constants = {name: value for name, value in self.constants.items() if name not in other_options}
        if setting.network.is_closed_form:
            constants = {name: value for name, value in constants.items() if name in options}
        elif constants.get("as_printed") and setting.method in PUBLISHED:
            constants = {"batches": "auto"} | constants
        return setting.replace(**constants) if constants else setting

    def settings(self) -> list[Setting]:
        """Return the settings of the grid, the reference first. In runs with stages, quick means the grid core."""
        return list(self._settings)

    @cached_property
    def _settings(self) -> tuple[Setting, ...]:
        """Return the settings; cached, because the paper's grid has hundreds."""
        if self.has_custom_settings:
            settings = [self.apply(setting) for setting in settings_of(self.grid)]
            uncensored = [setting for setting in settings if setting.penalty is None]
            reference = (uncensored or [settings[0].uncensored("shuffled")])[0]
            return tuple(dict.fromkeys([reference, *settings]))
        settings = grid("core" if self.grid == "quick" and self.has_stages else self.grid)
        if self.encoder not in ENCODERS:  # custom encoders have no options to vary
            settings = [s for s in settings if s.network == ENCODERS[s.encoder]()]
        elif ENCODERS[self.encoder].is_closed_form:  # penalties have no effect on linear models
            settings = settings[:1]
        if self.grid == "paper" and len(settings) > 1 and not self.constants.get("as_printed"):
            # Uncensored networks with the batches of penalties separate the effects of batches and penalties.
            settings += [Setting(batches=batches) for batches in BALANCED_BATCHES]
        return tuple(dict.fromkeys(self.apply(setting) for setting in settings))

    def name_of(self, setting: Setting) -> str:
        """Return the name of a setting by its differences from the reference."""
        return setting.name_relative_to(self.reference)

    @cached_property
    def reference(self) -> Setting:
        """Return EEGNet (paper) without a penalty, or the first setting of the user without a penalty."""
        return self._settings[0] if self.has_custom_settings else self.apply(Setting())

    def to_dict(self) -> dict[str, Any]:
        """Return options and constants by name; `build_options` reads them."""
        return {name: getattr(self, name) for name in ("source", *DEFAULTS)} | self.constants

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunOptions:
        """Return the stored options of a run."""
        if not isinstance(values, dict):
            raise UserError(f"the options of a run are {shown(values)}; they must be a JSON object")
        return build_options(values)


class Preset(NamedTuple):
    """Default values and fixed values of options for one way to run."""

    description: str  # text for error messages
    defaults: dict[str, Any]
    fixed: dict[str, Any]  # options for which other values are errors


DEFAULTS = {option.name: option.default for option in fields(RunOptions) if option.name not in ("source", "constants")}
_GRID_ALONE = {"adaptation": "none", "kinds": None, "networks": "all"}
_NO_SEARCH = {"search": "grid", "trials": 40}
PRESETS = {
    "average": Preset(
        "a weighted ensemble", {"time": DEFAULT_TIME}, {"rule": "average"} | _NO_SEARCH
    ),
    "settings": Preset("a run of listed settings", {}, {"rule": "average"} | _GRID_ALONE | _NO_SEARCH),
    "tpe": Preset("a TPE search", {}, {"search": "tpe", "grid": "quick", "rule": "average"} | _GRID_ALONE),
    "paper": Preset(
        "the paper's procedure", {},
        {"rule": "published", "folds": "all", "hold_out": SUBJECT, "metric": BALANCED_ACCURACY} | _GRID_ALONE
        | _NO_SEARCH,
    ),
}  # fmt: skip


def build_options(values: Mapping[str, Any]) -> RunOptions:
    """Return the options of a run, with the defaults and checks of their preset.

    values: options and fields of `Setting` by name; None: default value.
    """
    options = {name: value for name, value in values.items() if value is not None}
    constants = {name: options.pop(name) for name in list(options) if name not in DEFAULTS and name != "source"}
    if "source" not in options:
        raise UserError("no recordings are given; give DATA, or --config FILE with a line data = ...")
    choices = {*DEFAULTS, *field_names()} - set(VARIED)
    if unknown := [name for name in constants if name not in choices]:
        raise UserError(f"unknown option {shown(unknown[0])}; {suggest(unknown[0], sorted(choices))}")
    if isinstance(options.get("folds"), str) and options["folds"].isdigit():
        options["folds"] = int(options["folds"])  # the command line gives text
    if "grid" in options:
        options["grid"] = grid_text(options["grid"])
    task = task_of(str(options.get("target", CLASSIFICATION)))
    options["metric"] = task.metric_name(options.get("metric", task.default_metric))
    preset = PRESETS[_find_preset(options, constants)] if task.options is None else _find_preset_of_task(task)
    for name, value in preset.fixed.items():
        if options.get(name, value) != value:
            fixed = f"{preset.description} fixes it to {shown(value)}"
            raise UserError(f"{name} is {shown(options[name])}, but {fixed}; leave {name} out")
    if task.options is not None and (unread := constants.keys() - {"max_epochs"}):
        raise UserError(f"{min(unread)} has no effect, because {preset.description} trains no network; leave it out")
    return RunOptions(**preset.defaults | preset.fixed | options, constants=constants)


def _find_preset_of_task(task: Task) -> Preset:
    """Return the preset of a task that reads only some options."""
    accepted = (*(task.options or ()), *READ_BY_ALL_TASKS, *CUTTING, "clean")
    values = DEFAULTS | {"metric": task.default_metric}
    return Preset("a run with this target", {}, {name: value for name, value in values.items() if name not in accepted})


def _find_preset(options: Mapping[str, Any], constants: Mapping[str, Any]) -> str:
    """Return the name of the preset for these options."""
    grid = options.get("grid", DEFAULTS["grid"])
    if options.get("rule") == "published" or (grid == "paper" and "rule" not in options):
        return "paper"
    if options.get("search") == "tpe":
        return "tpe"
    # A transform among the constants would override the transforms in which the candidates of stages differ.
    has_transform = any(name in TRANSFORMS for name in constants)
    return "settings" if options.get("adaptation") == "none" or grid not in STAGED_GRIDS or has_transform else "average"


def resolve_options(options: RunOptions, recordings: Recordings) -> RunOptions:
    """Return options with folds and epochs for the size of the recordings, unless the user has set these."""
    n_units = recordings.n_subjects if recordings.units is None else recordings.units.n_parts
    folds = options.folds
    if folds is None:
        folds = DEFAULT_FOLDS if n_units > MANY_SUBJECTS and options.grid != "paper" else "all"
    if isinstance(folds, int) and folds >= n_units:
        folds = "all"
    constants = options.constants
    if "max_epochs" not in constants and options.grid != "paper" and not options.has_custom_settings:
        held_out = sum(map(len, groups_of(recordings, folds if isinstance(folds, int) else None)[:2]))
        n_windows = len(recordings.y) * (recordings.n_subjects - held_out) // recordings.n_subjects
        epochs = epochs_for(n_windows, options.reference.training.batch_size, options.max_steps)
        constants = constants | {"max_epochs": epochs}
    return replace(options, folds=folds, constants=constants)
