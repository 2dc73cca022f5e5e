"""What the user asked of a run: stored with it, so that `resume` needs nothing but the folder."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

from ..errors import UserError, check_choice, check_types, shown
from ..folds import FEWEST_FOLDS, MANY_PEOPLE, SUBJECT, USUAL_FOLDS, groups_of, turns
from ..grids import BALANCED, GRIDS, PUBLISHED, grid, grid_text, settings_of
from ..jobs import check_seed
from ..model.encoders import ENCODERS
from ..options import AskedOptions
from ..recordings import Recordings
from ..recordings.cutting import Cutting
from ..settings import Setting
from ..tasks import Metric, Task, task_of
from ..tasks.classification import BALANCED_ACCURACY, CLASSIFICATION
from ..training.batches import EPOCHS, STEPS, epochs_for
from ..training.intervals import check_at_least

RULES = ("average", "published")
# Networks beside the plain one: all, the two main ones, the first of these alone, or none.
NETWORKS = ("all", "main", "one", "none")
# What a run starts from: what thirteen data sets support, what the paper did, or a short form of the first.
PRESETS: dict[str, dict[str, Any]] = {
    "recommended": {"grid": "quick", "rule": "average", "folds": "auto", "seeds": 3, "max_steps": STEPS},
    "paper": {"grid": "paper", "rule": "published", "folds": "all", "seeds": 3, "max_steps": STEPS},
    "quick": {"grid": "uncensored", "rule": "average", "folds": 5, "seeds": 1, "max_steps": 1000},
}
EVERYTHING = "none"  # of --time: no limit, and no stop where no gain is expected
USUAL_TIME = "30m"  # where candidates of several kinds are averaged and nobody says how long
CUTTING = (
    "window", "hop", "offset", "events", "pattern", "sfreq", "sep", "decimal", "time_column", "filter",
)  # fmt: skip
USUAL_ENCODER = "eegnet"
STAGED = ("quick", "few", "uncensored")  # grids of which all candidates are known from the start
ADAPTATIONS = ("zero-shot", "online", "transductive")
LIMITS = ("epochs", "seeds")  # of how much is trained: accepted by every task, also by one that trains nothing


def parse_time(text: str) -> float:
    """Seconds: 90s, 30m, 2h, 1h30m."""
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip().lower())
    hours, minutes, seconds = (float(part or 0) for part in (match.groups() if match else (0, 0, 0)))
    total = 3600 * hours + 60 * minutes + seconds
    if not 0 < total < 1e8:
        raise UserError(f"time is {shown(text)}; write it as 30m, 2h or 1h30m")
    return total


@dataclass(kw_only=True, unsafe_hash=True)
class RunOptions(AskedOptions):
    """Options of `autotransfer run`, resolved and checked: those of `AskedOptions` and those that no preset sets. Do
    not change them in place; use `dataclasses.replace`."""

    source: str
    grid: str = "quick"  # one of GRIDS, a .json file of settings, or (as it is stored) settings as JSON text
    # one of ADAPTATIONS; auto: zero-shot where nothing else fixes it; None: the settings of the grid as they are, and
    # nothing beside them
    adaptation: str | None = None
    encoder: str = USUAL_ENCODER
    metric: str = ""  # the default of the task
    rule: str = "average"
    folds: int | str = "all"  # auto: all, or 10 for more than 20 people
    seeds: int = 1  # commands and estimators ask for three
    max_steps: int = STEPS
    seed: int = 0
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
        self.grid = grid_text(self.grid)
        if isinstance(self.folds, str) and self.folds.isdigit():
            self.folds = int(self.folds)  # as the command line has it
        check_types(self)
        check_choice("search", self.search, ("grid", "tpe"))
        check_choice("rule", self.rule, RULES)
        check_choice("networks", self.networks, NETWORKS)
        self.metric = self.task.metric_name(self.metric or self.task.default_metric)
        check_at_least(self.at_least, self.scoring.lowest, self.scoring.highest)
        if self.metric != BALANCED_ACCURACY and self.rule == "published":
            raise UserError(
                f"metric is {shown(self.metric)}, and the published rule decides by balanced accuracy; leave either out"
            )
        if self.time == EVERYTHING:
            self.time = None
        elif self.time is not None:
            parse_time(self.time)
        self._settle_adaptation()
        for name in ("trials", "epochs", "patience", "batch_size", "seeds", "max_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} is {value}; it must be at least 1")
        self._check_folds()
        check_seed(self.seed)
        check_seed(self.seed + self.seeds - 1)  # the last of them
        Cutting.of(**{name: getattr(self, name) for name in CUTTING})
        self.apply(Setting())  # complains about any number that no setting may have
        if self.search == "tpe" and (self.lists_settings or self.grid == "uncensored"):
            raise UserError("a tpe search samples penalties itself; leave --grid out, or --search")

    def _check_folds(self) -> None:
        if isinstance(self.folds, str) and self.folds not in ("all", "auto"):
            raise UserError(f"folds is {shown(self.folds)}; give a number, all or auto")
        if isinstance(self.folds, int) and self.folds < FEWEST_FOLDS:
            raise UserError(
                f"folds is {self.folds}; it must be at least {FEWEST_FOLDS}: one group of people tests, one validates, "
                "the rest train"
            )
        if self.rule == "published" and (self.hold_out != SUBJECT or isinstance(self.folds, int)):
            raise UserError("rule published leaves out one person at a time; leave --folds and --hold-out out")

    def _settle_adaptation(self) -> None:
        if self.adaptation is None:
            return
        check_choice("adaptation", self.adaptation, ("auto", "none", *ADAPTATIONS))
        given = self.standardize is not None or self.align is not None
        settled = self.lists_settings or given
        settled = settled or self.search == "tpe" or self.rule == "published"
        if self.adaptation == "auto":
            self.adaptation = "zero-shot" if self.grid in STAGED and not settled else None
        elif self.adaptation == "none":
            self.adaptation = None
        elif settled:
            raise UserError(
                f"adaptation is {self.adaptation!r}, and the grid, --standardize, --align, --search tpe or --rule "
                "published say already what is used of a person; leave either out"
            )

    @property
    def task(self) -> Task:
        return task_of(self.target)

    @property
    def scoring(self) -> Metric:
        """The metric that decides, and that people are scored with."""
        return self.task.metric(self.metric)

    @property
    def column(self) -> str | None:
        """The column or channel that is the target, if it is named."""
        return self.target.partition(":")[2] or None

    def load(self) -> Recordings:
        """Load the recordings with what is to be predicted."""
        return self.task.load(self.source, self.column, **self.cutting)

    @property
    def cutting(self) -> dict[str, Any]:
        """Keyword arguments of `load`."""
        return {name: getattr(self, name) for name in (*CUTTING, "clean")}

    @property
    def max_epochs(self) -> int:
        if self.epochs is None and self.lists_settings:
            return max(setting.max_epochs for setting in self._settings)
        return self.epochs or EPOCHS[1]

    @property
    def lists_settings(self) -> bool:
        """Whether the user's own settings are tried, as they are, in place of a grid with a name."""
        return self.grid not in GRIDS

    @property
    def seconds(self) -> float | None:
        """The limit; None: everything is trained."""
        return None if self.time is None else parse_time(self.time)

    @property
    def staged(self) -> bool:
        """Whether it answers in stages: where kinds are averaged, and all candidates are known from the start."""
        return self.grid in STAGED and self.rule == "average" and self.adaptation is not None and self.search == "grid"

    @property
    def n_folds(self) -> int | None:
        """None: as many as people."""
        return None if isinstance(self.folds, str) else self.folds

    @property
    def every_seed(self) -> range:
        return range(self.seed, self.seed + self.seeds)

    def apply(self, setting: Setting) -> Setting:
        """The setting with the options that the user gave for all settings."""
        changes: dict[str, Any] = {}
        if self.epochs is not None or not self.lists_settings:
            changes["max_epochs"] = self.max_epochs
        if self.encoder != setting.encoder and not (self.lists_settings and self.encoder == USUAL_ENCODER):
            changes |= {"encoder": self.encoder, "network": None}
        if self.as_printed and setting.method in PUBLISHED:
            changes |= {"as_printed": True, "batches": "auto"}
        for name in ("patience", "batch_size", "lr", "standardize", "align"):
            if getattr(self, name) is not None:
                changes[name] = getattr(self, name)
        return setting.replace(**changes)

    def settings(self) -> list[Setting]:
        """The grid as it will be trained, the baseline first; what the user fixed is not varied. Where networks of
        several kinds meet it, quick is cut down to few."""
        return list(self._settings)

    @cached_property
    def _settings(self) -> tuple[Setting, ...]:
        """Made once: the paper's grid has hundreds, and a run asks for them again and again."""
        if self.lists_settings:
            settings = [self.apply(setting) for setting in settings_of(self.grid)]
            uncensored = [setting for setting in settings if setting.penalty is None]
            plain = (uncensored or [settings[0].uncensored("shuffled")])[0]
            return tuple(dict.fromkeys([plain, *settings]))
        settings = grid("few" if self.grid == "quick" and self.adaptation is not None else self.grid)
        if self.encoder not in ENCODERS:  # what belongs to one of ours is not varied for a user's own
            settings = [s for s in settings if s.network == ENCODERS[s.encoder]()]
        elif ENCODERS[self.encoder].closed_form:  # there is nothing to censor, and nothing to train otherwise
            settings = settings[:1]
        if self.grid == "paper" and len(settings) > 1 and not self.as_printed:
            settings += [Setting(batches=kind) for kind in BALANCED]  # so that batches and penalty are not confounded
        return tuple(dict.fromkeys(self.apply(setting) for setting in settings))

    def name_of(self, setting: Setting) -> str:
        """The setting's name in this run, relative to the run's plain network."""
        return setting.name_relative_to(self.plain)

    @cached_property
    def plain(self) -> Setting:
        """The network as published, without a penalty; of settings that the user lists, the first without one."""
        return self._settings[0] if self.lists_settings else self.apply(Setting())

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, preset: str, **values: Any) -> RunOptions:
        """Options as a preset has them, but for what is given (not None). The paper's grid brings its rule."""
        check_choice("preset", preset, PRESETS)
        asked = {name: value for name, value in values.items() if value is not None}
        _check_read(asked, task_of(asked.get("target", CLASSIFICATION)))
        usual = PRESETS["recommended"] | PRESETS[preset]
        grid = asked.get("grid", usual["grid"])
        if grid == "paper":
            usual["rule"] = PRESETS["paper"]["rule"]
        if asked.get("rule", usual["rule"]) == "published":
            usual["folds"] = "all"
        if preset == "quick" and "grid" not in asked:  # penalties are left out where they stand beside other candidates
            usual["grid"] = PRESETS["recommended"]["grid"]
            options = cls(**usual | asked)
            options = options if options.adaptation is None else replace(options, grid=grid)
        else:
            options = cls(**usual | asked)
        # What is published has no limit unless it is given one.
        return replace(options, time=USUAL_TIME) if options.staged and "time" not in asked else options

    @classmethod
    def from_dict(cls, values: Any) -> RunOptions:
        """Make options of what a run has stored."""
        names = [field.name for field in fields(cls)]
        if not isinstance(values, dict) or set(values) != set(names):
            raise UserError("the stored options are not those of this version; start a new run")
        return cls(**values)


def resolved(options: RunOptions, recordings: Recordings) -> RunOptions:
    """Options with folds and epochs set from the recordings, unless user or paper fixes them."""
    folds, n = options.folds, turns(recordings)
    if folds == "auto":
        many = n > MANY_PEOPLE and options.rule != "published" and options.grid != "paper"
        folds = USUAL_FOLDS if many else "all"
    if isinstance(folds, int) and folds >= n:
        folds = "all"
    epochs = options.epochs
    if epochs is None and options.grid != "paper" and not options.lists_settings:
        held_out = sum(map(len, groups_of(recordings, None if isinstance(folds, str) else folds)[:2]))
        training = len(recordings.y) * (recordings.n_subjects - held_out) // recordings.n_subjects
        epochs = epochs_for(training, options.plain.training.batch_size, options.max_steps)
    return replace(options, folds=folds, epochs=epochs)


def _check_read(asked: dict[str, Any], task: Task) -> None:
    """Refuse options that have no effect with a task."""
    for option in fields(AskedOptions):
        usual = (None, option.default, "none") if option.name == "networks" else (None, option.default)
        is_read = task.options is None or option.name in (*task.options, *LIMITS)
        if not is_read and asked.get(option.name) not in usual:
            raise UserError(
                f"{option.name} is {shown(asked[option.name])}, which has no effect with target {asked['target']}; "
                "leave it out"
            )
