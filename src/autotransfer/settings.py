"""Setting: every number that can change the outcome of one training, in one frozen record."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from .errors import UserError, check_choice, check_types

METHODS = ("adversary", "mige", "mmd", "pairwise_mmd", "began")
MODES = ("marginal", "conditional", "complementary")
ESTIMATORS = ("ssge", "stein", "tikhonov", "nu_method")
LENGTH_SCALES = ("median", "perplexity")
PAIRS = ("all", "bernoulli", "clique")
VARIANTS = ("labelled", "paper")
STANDARDISATIONS = ("trial", "channel", "subject", "none", "running")
ALIGNMENTS = ("none", "running", "subject")
BATCHES = ("auto", "balanced", "shuffled")
SCHEDULES = ("inverse_sqrt", "constant")
KEPT = ("best", "last")

KERNEL_METHODS = ("mige", "mmd", "pairwise_mmd")
CRITIC_METHODS = ("adversary", "began")

# Which method reads which field; a field that nobody reads is set to None, so that two settings
# which train the same model are equal, hash alike and are stored as one.
_USED_BY: dict[str, tuple[str, ...]] = {
    "mode": METHODS,
    "strength": METHODS,
    "estimator": ("mige",),
    "length_scale": KERNEL_METHODS,
    "regularization": ("mige",),
    "projection": ("mige",),
    "pairs": ("pairwise_mmd",),
    "fraction": ("pairwise_mmd",),
    "size": ("pairwise_mmd",),
    "variant": ("began",),
    "control_rate": ("began",),
    "diversity": ("began",),
    "critic_lr": CRITIC_METHODS,
    "critic_steps": CRITIC_METHODS,
    "critic_hidden": CRITIC_METHODS,
}

_DEFAULTS: dict[str, Any] = {
    "mode": "marginal",
    "strength": 1.0,
    "estimator": "stein",
    "length_scale": "median",
    "projection": True,
    "pairs": "all",
    "variant": "labelled",
    "control_rate": 0.001,
    "critic_lr": 1e-2,  # ten times the encoder's: a critic that lags behind teaches nothing
    "critic_steps": 1,
    "critic_hidden": 64,
}

# Beyond these a slip of the keyboard is likelier than a wish, and memory would not suffice.
MOST = {
    "max_epochs": 10**6, "batch_size": 10**6, "temporal_kernel": 10**5, "temporal_filters": 10**4,
    "spatial_depth": 10**4, "latent_filters": 10**4, "critic_hidden": 10**5, "critic_steps": 10**4,
    "warm_up": 10**6,
}  # fmt: skip

# What the numbers cannot give an encoder of one's own, and what that would have to do.
EEGNET_ONLY = {"compress": "compress its windows", "levels": "part its windows", "power": "measure power"}

# Fields that settings had for a while; stored ones may still say that they do without.
RETIRED = ("envelope",)

# Fields that settings have had only for a while, and what training was like before: older runs keep their keys.
LATER = {"levels": False, "power": False, "schedule": "inverse_sqrt", "keep": "best"}

# How windows are prepared, read and learned from: what `--prepare` compares, in the order of its table.
PREPARED = ("standardise", "align", "compress", "levels", "power", "schedule", "keep")

# What else a search may vary, said by `name_beside`.
TRAITS = ("standardise", "align", "compress", "levels", "power", "dropout", "temporal_kernel", "lr", "schedule", "keep")

# γ of BEGAN: the published value, and for the labelled variant the balance that independence has.
DEFAULT_DIVERSITY = {"labelled": 1.0, "paper": 0.7}
DEFAULT_REGULARIZATION = {"ssge": 0.01, "stein": 0.001, "tikhonov": 0.01, "nu_method": 0.01}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Hyperparameters of one training. `Setting()` is the uncensored baseline.

    Fields that the method does not read are None; `method=None` or `strength=0` is the baseline,
    for which mode and strength mean nothing.
    """

    # censoring
    method: str | None = None
    mode: str | None = None
    strength: float | None = None
    estimator: str | None = None  # mige
    length_scale: str | float | None = None  # mige, mmd, pairwise_mmd
    regularization: float | None = None  # mige: what the number means depends on the estimator
    projection: bool | None = None  # mige: remove the components that I(z; s) cannot have
    pairs: str | None = None  # pairwise_mmd
    fraction: float | None = None  # pairwise_mmd with pairs="bernoulli"
    size: int | None = None  # pairwise_mmd with pairs="clique"
    variant: str | None = None  # began
    control_rate: float | None = None  # began: β
    diversity: float | None = None  # began: γ
    critic_lr: float | None = None
    critic_steps: int | None = None  # critic updates per main step
    critic_hidden: int | None = None  # width of the critic's hidden layer
    warm_up: int = 0  # epochs over which strength rises linearly from 0
    shuffle_subjects: bool = False  # the control: subject labels shuffled within class before training sees them
    # network; the numbers are EEGNet's
    encoder: str = "eegnet"  # or the name of a factory given with the jobs
    temporal_filters: int = 8
    spatial_depth: int = 2
    latent_filters: int = 16
    temporal_kernel: int | str | None = None  # samples; None: half a second, within [3, 64]; "half": half of that
    compress: float | None = None  # μ: EEGNet reads sign(x) log(1 + μ|x|) / log(1 + μ) of its windows
    levels: bool = False  # EEGNet reads every window standardised by itself, and mean and log deviation beside it
    power: bool = False  # EEGNet's code also has the log power of every spatial filter's signal
    dropout: float = 0.25
    max_norm: bool = False
    # training
    standardise: str = "trial"
    align: str = "none"  # Euclidean alignment of each person's standardised windows
    batches: str = "auto"  # auto: subject-balanced with a censor, shuffled without
    batch_size: int = 128
    lr: float = 1e-3
    schedule: str = "inverse_sqrt"  # of the learning rates: lr/√epoch, as published, or constant
    weight_decay: float = 0.01
    max_epochs: int = 500
    keep: str = "best"  # the epoch of lowest validation loss, as published, or the last
    patience: int | None = None  # epochs without a better validation loss before a member leaves

    def __post_init__(self) -> None:
        check_types(self)
        if self.method is not None:
            check_choice("method", self.method, METHODS)
        if self.strength is not None and not (math.isfinite(self.strength) and self.strength >= 0):
            raise UserError(f"strength is {self.strength}; it must be a finite number of at least 0")
        if self.strength == 0:
            object.__setattr__(self, "method", None)
        for name, users in _USED_BY.items():
            if self.method not in users:
                object.__setattr__(self, name, None)
            elif getattr(self, name) is None:
                object.__setattr__(self, name, _DEFAULTS.get(name))
        self._settle_options()
        self._check()
        for field in fields(self):  # 1 and 1.0 are one setting
            value = getattr(self, field.name)
            if "float" in str(field.type) and isinstance(value, int) and not isinstance(value, bool):
                object.__setattr__(self, field.name, float(value))

    def _settle_options(self) -> None:
        if self.method == "mige" and self.regularization is None:
            default = DEFAULT_REGULARIZATION.get(str(self.estimator))
            object.__setattr__(self, "regularization", default)
        if self.method == "pairwise_mmd":
            fraction = (0.5 if self.fraction is None else self.fraction) if self.pairs == "bernoulli" else None
            size = (2 if self.size is None else self.size) if self.pairs == "clique" else None
            object.__setattr__(self, "fraction", fraction)
            object.__setattr__(self, "size", size)
        if self.method == "began" and self.diversity is None:
            object.__setattr__(self, "diversity", DEFAULT_DIVERSITY.get(str(self.variant)))
        if self.method is None:
            object.__setattr__(self, "shuffle_subjects", False)
            object.__setattr__(self, "warm_up", 0)
        if self.keep == "last":  # nobody waits for a better epoch
            object.__setattr__(self, "patience", None)
        if self.batches == "auto":
            object.__setattr__(self, "batches", "shuffled" if self.method is None else "balanced")

    def _check(self) -> None:
        if self.method is not None:
            check_choice("mode", self.mode, MODES)
        if self.estimator is not None:
            check_choice("estimator", self.estimator, ESTIMATORS)
        if isinstance(self.length_scale, str):
            check_choice("length_scale", self.length_scale, (*LENGTH_SCALES, "a number"))
        if self.pairs is not None:
            check_choice("pairs", self.pairs, PAIRS)
        if self.variant is not None:
            check_choice("variant", self.variant, VARIANTS)
        check_choice("standardise", self.standardise, STANDARDISATIONS)
        check_choice("align", self.align, ALIGNMENTS)
        check_choice("batches", self.batches, BATCHES)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("keep", self.keep, KEPT)
        if self.warm_up < 0:
            raise UserError(f"warm_up is {self.warm_up}; it must be a number of epochs of at least 0")
        positive = (
            "regularization", "critic_lr", "critic_steps", "critic_hidden", "temporal_filters", "spatial_depth",
            "latent_filters", "temporal_kernel", "compress", "lr", "max_epochs", "patience", "fraction",
        )  # fmt: skip
        if isinstance(self.temporal_kernel, str):
            check_choice("temporal_kernel", self.temporal_kernel, ("half", "a number"))
        for name in positive:
            value = getattr(self, name)
            if value is not None and value != "half" and not (math.isfinite(value) and value > 0):
                raise UserError(f"{name} is {value!r}; it must be a positive number")
        if isinstance(self.length_scale, (int, float)) and not 0 < self.length_scale < math.inf:
            raise UserError(f"length_scale is {self.length_scale!r}; it must be a positive number")
        for name, what in EEGNET_ONLY.items():
            if getattr(self, name) and self.encoder != "eegnet":
                raise UserError(f"{name} belongs to EEGNet; let the encoder of your own {what} itself")
        if self.levels and self.standardise == "trial":
            raise UserError('levels has nothing to read in windows that standardise="trial" levels; choose "channel"')
        if self.fraction is not None and self.fraction > 1:
            raise UserError(f"fraction is {self.fraction}; it must lie in (0, 1]")
        if self.size is not None and self.size < 2:
            raise UserError(f"size is {self.size}; a clique has at least 2 subjects")
        if not 0 <= self.dropout < 1:
            raise UserError(f"dropout is {self.dropout}; it must lie in [0, 1)")
        if self.batch_size < 2:
            raise UserError(f"batch_size is {self.batch_size}; batch normalisation needs at least 2 rows")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise UserError(f"weight_decay is {self.weight_decay}; it must be a finite number of at least 0")
        for name, most in MOST.items():
            value = getattr(self, name)
            if value is not None and value != "half" and value > most:
                raise UserError(f"{name} is {value}; it must be at most {most}")

    @property
    def name(self) -> str:
        """Short and unique among settings that differ in censoring only: 'mmd conditional 0.3 median'."""
        if self.method is None:
            return "baseline"
        parts = [self.method, str(self.mode), f"{self.strength:g}", self.estimator]
        if self.regularization is not None:
            parts.append(f"{self.regularization:g}")
        if self.length_scale is not None:
            parts.append(str(self.length_scale))
        if self.pairs not in (None, "all"):
            parts.append(f"{self.pairs} {self.fraction if self.fraction is not None else self.size}")
        if self.variant == "paper":
            parts.append("paper")
        if self.shuffle_subjects:
            parts.append("shuffled")
        return " ".join(part for part in parts if part)

    def name_beside(self, plain: Setting) -> str:
        """The name, and what but censoring tells this setting from a plain one: 'baseline with align running'."""
        own = {name: getattr(self, name) for name in TRAITS if getattr(self, name) != getattr(plain, name)}
        traits = [name if value is True else f"{name} {value}" for name, value in own.items()]
        if self.batches != ("shuffled" if self.method is None else "balanced"):
            traits.append(f"{self.batches} batches")
        if self.warm_up:
            traits.append(f"warm_up {self.warm_up}")
        return self.name + (f" with {', '.join(traits)}" if traits else "")

    @property
    def adaptation(self) -> str:
        """What a new person's own unlabelled windows are used for: none (zero-shot), running (each window is prepared
        with those before it) or transductive (with all of them, later ones too)."""
        kinds = (self.standardise, self.align)
        return "transductive" if "subject" in kinds else "running" if "running" in kinds else "none"

    @property
    def code_path(self) -> tuple[object, ...]:
        """Members that agree in this run the same censor; everything else about them is a number per member."""
        return (
            self.method, self.mode, self.estimator, self.length_scale, self.projection, self.pairs, self.fraction,
            self.size, self.variant, self.critic_steps, self.critic_hidden,
        )  # fmt: skip

    def as_row(self) -> dict[str, Any]:
        """For tables: every field, with 'none' where it plays no role."""
        return {key: "none" if value is None else value for key, value in asdict(self).items()}

    def to_json(self) -> str:
        """Canonical text: equal settings give equal text."""
        values = asdict(self)
        for name, before in LATER.items():
            if values[name] == before:
                del values[name]
        return json.dumps(values, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Setting:
        try:
            values = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            raise UserError("a setting is stored as text that is not JSON") from None
        if not isinstance(values, dict):
            raise UserError("a setting is stored as a JSON object")
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Setting:
        """Of stored fields, by this version or another."""
        for name in RETIRED:
            if values.get(name):
                raise UserError(f"a stored setting has {name}, which there is no longer; start a new run")
        values = {name: value for name, value in values.items() if name not in RETIRED}
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise UserError(f"a stored setting has the unknown field {unknown[0]!r}")
        return cls(**values)

    @property
    def key(self) -> str:
        """16 hexadecimal digits that identify the setting in files."""
        return hashlib.blake2b(self.to_json().encode(), digest_size=8).hexdigest()
