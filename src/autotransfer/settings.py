"""Setting: every number that can change the outcome of one training, in parts, written as one flat list of keywords."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .augment import AUGMENTATIONS, Augmentation, augmentation_of, augmentation_values
from .censoring import CENSORS, MethodOptions, check_mode, code_path
from .errors import UserError, check_at_most, check_choice, check_positive, check_types, number, shown
from .model.encoder import EncoderOptions
from .model.encoders import ENCODERS, OwnEncoder, encoder_name
from .preprocessing import TRANSFORMS, Preprocessing
from .preprocessing.represent import Represent
from .schema import fields_of

BATCHES = ("auto", "balanced", "people", "shuffled")
SCHEDULES = ("inverse_sqrt", "constant")
CHECKPOINTS = ("best", "last", "averaged")

SUBJECT = "subject"  # the usual nuisance
WITHOUT_PENALTY = {"warm_up": 0, "shuffle_subjects": False}  # what the baseline says of these

RENAMED_VALUES = {
    "standardise": {"channel": "train", "subject": "transductive", "running": "online"},
    "align": {"subject": "transductive", "running": "online"},
}


@dataclass(frozen=True, kw_only=True)
class Penalty:
    """How z is censored. mode, strength and warm_up are common to all methods; `options` are the method's own."""

    method: str
    mode: str = "marginal"
    strength: float = 1.0
    warm_up: int = 0  # epochs over which strength rises linearly from 0
    shuffle_subjects: bool = False  # the control: subject labels shuffled within class before training sees them
    nuisance: str = "subject"  # what z is not to tell: subject, session, another column, or several joined with +
    options: MethodOptions

    def __post_init__(self) -> None:
        check_types(self)
        check_mode(self.method, self.mode)
        if self.warm_up < 0:
            raise UserError(f"warm_up is {self.warm_up}; it must be a number of epochs of at least 0")
        check_at_most(self, warm_up=10**6)
        object.__setattr__(self, "nuisance", "+".join(nuisance_parts(self.nuisance)))


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a network learns, whatever it is."""

    # auto: shuffled without a penalty, and as printed; with a conditional one balanced over classes and subjects, with
    # any other over people
    batches: str = "auto"
    batch_size: int = 128
    lr: float = 1e-3
    schedule: str = "inverse_sqrt"  # of the learning rates: lr/√epoch, as published, or constant
    weight_decay: float = 0.01
    max_epochs: int = 500
    # which weights are kept: of the lowest validation loss, as published; the last; their mean over the last half
    checkpoint: str = "best"
    patience: int | None = None  # epochs without a better validation loss before a member leaves

    def __post_init__(self) -> None:
        check_types(self)
        check_choice("batches", self.batches, BATCHES)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("checkpoint", self.checkpoint, CHECKPOINTS)
        check_positive(self, "lr", "max_epochs", "patience")
        check_at_most(self, max_epochs=10**6, batch_size=10**6)
        if self.batch_size < 2:
            raise UserError(f"batch_size is {self.batch_size}; batch normalisation needs at least 2 rows")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise UserError(f"weight_decay is {self.weight_decay}; it must be a finite number of at least 0")
        if self.checkpoint != "best":  # nobody waits for a better epoch
            object.__setattr__(self, "patience", None)


SOLVED = Training(batches="shuffled", max_epochs=1, checkpoint="last")  # of every encoder in closed form: none matters


@dataclass(frozen=True, init=False, repr=False)
class Setting:
    """Hyperparameters of one training. `Setting()` is the uncensored baseline.

        Setting(method="mmd", mode="conditional", strength=1.0, max_epochs=500, batch_size=128, standardise="trial")

    Keywords are the fields of the parts: method, mode, strength, warm_up, shuffle_subjects, nuisance and the method's
    options; encoder and its options; each transform and augmentation by its name; those of `Training`. Each can be read
    as an attribute, None where it plays no role. A method does not see the options of other methods; method=None or
    strength=0 is the baseline, for which mode and strength mean nothing. `setting.replace(strength=0.3)`, or
    `dataclasses.replace`, changes some.
    """

    penalty: Penalty | None
    encoder: str  # of ENCODERS, one of braindecode's, or the name of a factory given with the jobs
    network: EncoderOptions
    preprocessing: Preprocessing
    augmentation: tuple[Augmentation, ...]
    training: Training

    def __init__(self, **given: Any) -> None:
        parts = {field.name: given.pop(field.name) for field in fields_of(type(self)) if field.name in given}
        if (encoder := parts.pop("encoder", None)) is not None:
            given["encoder"] = encoder
        values = _values_of(**parts) | given
        _check_known(given)
        penalty = _penalty(values)
        training = Training(**_picked(values, Training))
        if training.batches == "auto":
            training = Training(**_flat(training) | {"batches": _usual_batches(penalty)})
        encoder, network = _network(values, given)
        augmentation = augmentation_of(values)
        if network.closed_form:
            _check_solved(encoder, penalty, augmentation)
            training = SOLVED
        preprocessing = Preprocessing.of(values)
        _check_of_signals(preprocessing, augmentation)
        checked = penalty, encoder, network, preprocessing, augmentation, training
        for field, part in zip(fields_of(type(self)), checked, strict=True):
            object.__setattr__(self, field.name, part)

    # What most readers ask for. Other fields are read off their parts, or as attributes of the same names.

    @property
    def method(self) -> str | None:
        return None if self.penalty is None else self.penalty.method

    @property
    def mode(self) -> str | None:
        return None if self.penalty is None else self.penalty.mode

    @property
    def strength(self) -> float | None:
        return None if self.penalty is None else self.penalty.strength

    @property
    def nuisance(self) -> str | None:
        return None if self.penalty is None else self.penalty.nuisance

    @property
    def max_epochs(self) -> int:
        return self.training.max_epochs

    @property
    def adaptation(self) -> str:
        """What a new person's own unlabelled windows are used for: see `Preprocessing.adaptation`."""
        return self.preprocessing.adaptation

    @property
    def kind(self) -> str:
        """What sort of model it is: 'features' or 'tangent' for a linear one of that representation, else the encoder's
        name."""
        for transform in self.preprocessing.transforms:
            if isinstance(transform, Represent) and self.encoder == "linear":
                return transform.kind.partition(":")[0]  # without the digest of a base
        return self.encoder

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or "training" not in self.__dict__ or name not in field_names():
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            off = TRANSFORMS[name].default if name in TRANSFORMS else WITHOUT_PENALTY.get(name)
            return self._values().get(name, off)

    def __repr__(self) -> str:
        usual = Setting().to_dict()
        changed = [f"{name}={value!r}" for name, value in self.to_dict().items() if usual.get(name) != value]
        return f"Setting({', '.join(changed)})"

    @property
    def name(self) -> str:
        """Short, and different for settings that differ in their penalty: 'mmd conditional 0.3 median'."""
        penalty = self.penalty
        if penalty is None:
            return "baseline"
        words = [penalty.method, penalty.mode, number(penalty.strength), *penalty.options.words]
        words += [f"warm_up {penalty.warm_up}"] if penalty.warm_up else []
        words += [f"nuisance {penalty.nuisance}"] if penalty.nuisance != SUBJECT else []
        words += ["shuffled"] if penalty.shuffle_subjects else []
        return " ".join(words)

    def name_relative_to(self, plain: Setting) -> str:
        """The name, and all else that tells this setting from a plain one: 'baseline with align online', 'tangent'."""
        kind, traits = self.beside(plain)
        head = self.name if kind is None or self.penalty is not None else kind
        if kind is not None and self.penalty is not None:
            traits |= {"encoder": self.encoder}
        words = [name if value is True else f"{name} {value}" for name, value in traits.items()]
        return head + (f" with {', '.join(words)}" if words else "")

    def beside(self, plain: Setting) -> tuple[str | None, dict[str, Any]]:
        """The kind, where it is not the plain setting's, and the traits that the kind does not imply; without what a
        representation reads of the recordings, which is the same for all settings of a run."""
        traits = self.traits(plain)
        if "represent" in traits:
            traits = {name: value for name, value in traits.items() if name not in ("sfreq", "constants")}
        if self.encoder == plain.encoder:
            return None, traits
        del traits["encoder"]
        if self.kind != self.encoder:
            traits.pop("represent")
        if self.network.closed_form:  # its own statistics make others superfluous
            traits |= {"standardise": self.preprocessing.values()["standardise"]}
            traits = {name: value for name, value in traits.items() if (name, value) != ("standardise", "none")}
        return self.kind, traits

    def traits(self, plain: Setting) -> dict[str, Any]:
        """Fields outside the penalty in which the setting differs from a plain one. Batches are among them only where
        they are not the usual ones with this penalty, or without any."""
        values, usual = (
            _values_of(**_parts(setting) | {"penalty": None, "network": network}) | {"encoder": setting.encoder}
            for setting, network in ((self, self.network), (plain, self._usual_network(plain)))
        )
        usual["batches"] = _usual_batches(self.penalty)
        solved = [field.name for field in fields_of(Training)] if self.network.closed_form else []
        names = dict.fromkeys(name for name in [*values, *usual] if name not in solved)
        return {name: values.get(name, "none") for name in names if values.get(name) != usual.get(name)}

    def _usual_network(self, plain: Setting) -> EncoderOptions:
        """Options to compare those of this setting's encoder with: the plain setting's, or the defaults of another
        kind of encoder."""
        return plain.network if type(plain.network) is type(self.network) else type(self.network)()

    def replace(self, **changes: Any) -> Setting:
        """The setting with some keywords, or whole parts, changed."""
        return Setting(**_flat(self) | changes)

    def uncensored(self, batches: str) -> Setting:
        """The same without its penalty, in these batches."""
        return Setting(**self.to_dict() | {"method": None, "batches": batches})

    @property
    def code_path(self) -> tuple[object, ...]:
        """Members that agree in this run the same censor; everything else about them is a number per member."""
        penalty = self.penalty
        if penalty is None:
            return ()
        nuisance = () if penalty.nuisance == SUBJECT else (penalty.nuisance,)  # critics have an output for each group
        return penalty.method, penalty.mode, *code_path(CENSORS[penalty.method], penalty.options), *nuisance

    def as_row(self) -> dict[str, Any]:
        """For tables: every field that any setting has, 'none' where it plays no role."""
        values = self._values()
        return {name: "none" if values.get(name) is None else values[name] for name in field_names()}

    def to_dict(self) -> dict[str, Any]:
        """The keywords that make this setting; what plays no role is left out, and so is the usual nuisance."""
        return {name: value for name, value in self._values().items() if (name, value) != ("nuisance", SUBJECT)}

    def _values(self) -> dict[str, Any]:
        return _values_of(**_parts(self)) | {"encoder": self.encoder}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Setting:
        known = field_names()
        for name in values:
            if name not in known:
                raise UserError(f"a stored setting has the unknown field {shown(name)}")
        return cls(**values)

    def to_json(self) -> str:
        """Canonical text: equal settings give equal text."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Setting:
        if not isinstance(text, str):
            raise UserError("a setting is stored as text that is not JSON")
        return _parsed(text)

    @property
    def key(self) -> str:
        """16 hexadecimal digits that identify the setting in files."""
        return _key(self)


@lru_cache(maxsize=4096)
def _key(setting: Setting) -> str:
    return hashlib.blake2b(setting.to_json().encode(), digest_size=8).hexdigest()


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Setting:
    try:
        values = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise UserError("a setting is stored as text that is not JSON") from None
    if not isinstance(values, dict):
        raise UserError("a setting is stored as a JSON object")
    return Setting.from_dict(values)


def field_names() -> list[str]:
    """Every keyword of a Setting, in the order of tables."""
    censors = [field.name for kind in CENSORS.values() for field in fields_of(kind.Options)]
    encoders = [field.name for kind in ENCODERS.values() for field in fields_of(kind)]
    chains: Iterable[type] = (*TRANSFORMS.values(), *AUGMENTATIONS.values())
    extra = [field.name for kind in chains for field in fields_of(kind)[1:]]
    penalty = [field.name for field in fields_of(Penalty) if field.name != "options"]
    training = [field.name for field in fields_of(Training)]
    names = [*penalty[:3], *censors, *penalty[3:], "encoder", *encoders, *TRANSFORMS, *AUGMENTATIONS, *extra, *training]
    return list(dict.fromkeys(names))


def nuisance_parts(nuisance: str) -> tuple[str, ...]:
    """The columns that a nuisance joins, in one order: subject, session, then the others by name."""
    parts = {part.strip() for part in nuisance.split("+")}
    if "" in parts:
        raise UserError(
            f"nuisance is {shown(nuisance)}; give subject, session, the name of a column, or several joined with +"
        )
    return tuple(sorted(parts, key=lambda name: (name != SUBJECT, name != "session", name)))


def _values_of(
    penalty: Penalty | None = None,
    network: EncoderOptions | None = None,
    preprocessing: Preprocessing | None = None,
    augmentation: tuple[Augmentation, ...] = (),
    training: Training | None = None,
) -> dict[str, Any]:
    """The keywords of parts, without those that are None."""
    values: dict[str, Any] = {}
    if penalty is not None:
        values |= {name: value for name, value in _flat(penalty).items() if name != "options"}
        values |= _flat(penalty.options)
    if network is not None and not isinstance(network, OwnEncoder):
        values |= _flat(network)
    if preprocessing is not None:
        values |= preprocessing.values()
    values |= augmentation_values(augmentation)
    if training is not None:
        values |= _flat(training)
    return {name: value for name, value in values.items() if value is not None}


def _parts(setting: Setting) -> dict[str, Any]:
    return {name: part for name, part in _flat(setting).items() if name != "encoder"}


def _flat(record: Any) -> dict[str, Any]:
    """The fields of a record and their values, as they are: `asdict` would copy every one of them."""
    return {field.name: getattr(record, field.name) for field in fields_of(type(record))}


def _penalty(values: dict[str, Any]) -> Penalty | None:
    method, strength = values.get("method"), values.get("strength")
    if isinstance(strength, np.generic):
        strength = values["strength"] = strength.item()
    if strength is not None and not isinstance(strength, bool) and isinstance(strength, (int, float)):
        if not 0 <= strength < math.inf:
            raise UserError(f"strength is {shown(strength)}; it must be a finite number of at least 0")
    elif strength is not None:
        raise UserError(f"strength is {shown(strength)}; it must be of type float | None")
    if method is None:
        return None
    check_choice("method", method, CENSORS)
    if strength == 0:
        return None
    common = {name: value for name, value in _picked(values, Penalty).items() if value is not None}
    options = CENSORS[method].Options(**_picked(values, CENSORS[method].Options))
    return Penalty(**common, options=options)


def _usual_batches(penalty: Penalty | None) -> str:
    """A penalty needs several rows of several subjects in a batch, of one class where it is conditional. As printed,
    batches are shuffled."""
    if penalty is None or getattr(penalty.options, "as_printed", None):
        return "shuffled"
    return "balanced" if penalty.mode == "conditional" else "people"


def _network(values: dict[str, Any], given: dict[str, Any]) -> tuple[str, EncoderOptions]:
    encoder = values.get("encoder", "eegnet")
    if not isinstance(encoder, str):
        raise UserError(f"encoder is {shown(encoder)}; it must be of type str")
    encoder = encoder_name(encoder)
    kind = ENCODERS.get(encoder, OwnEncoder)
    read = {field.name for field in fields_of(kind)} - {"factory"}
    for name, other in ENCODERS.items():
        for field in fields_of(other):
            if field.name in given and field.name not in read and given[field.name] not in (None, field.default):
                raise UserError(f"{field.name} belongs to the encoder {name!r}; {shown(encoder)} does not read it")
    return encoder, kind(**{name: value for name, value in _picked(values, kind).items() if name != "factory"})


def _check_solved(encoder: str, penalty: Penalty | None, augmentation: tuple[Augmentation, ...]) -> None:
    if penalty is not None:
        raise UserError(
            f"the encoder {encoder!r} is solved in closed form and has no weights for a penalty to act on; leave the "
            "method out, or choose another encoder"
        )
    if augmentation:
        raise UserError(
            f"the encoder {encoder!r} is solved in closed form from all windows at once, and augmentation changes them "
            "from step to step; leave it out, or choose another encoder"
        )


def _check_of_signals(preprocessing: Preprocessing, augmentation: tuple[Augmentation, ...]) -> None:
    if not any(isinstance(transform, Represent) for transform in preprocessing.transforms):
        return
    for name, kind in AUGMENTATIONS.items():
        if kind.of_signals and any(type(step) is kind for step in augmentation):
            raise UserError(f"{name} changes signals, and represent leaves none; leave one of them out")


def _picked(values: dict[str, Any], kind: type) -> dict[str, Any]:
    """The values that a dataclass has fields for. None leaves a field of a method or an encoder at its default."""
    optional = issubclass(kind, (MethodOptions, EncoderOptions))
    names = [field.name for field in fields_of(kind) if field.name in values and field.name != "options"]
    return {name: values[name] for name in names if values[name] is not None or not optional}


def renamed_value(name: str, value: Any) -> Any:
    """A value in today's spelling."""
    new = RENAMED_VALUES[name].get(value, value) if isinstance(value, str) else value
    if new != value:
        warnings.warn(f"{name}={value!r} is called {new!r} now", FutureWarning, stacklevel=4)
    return new


def _check_known(given: dict[str, Any]) -> None:
    known = field_names()
    for name, value in given.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(known)}"
            raise UserError(f"a setting has no field {name!r} (given {shown(value)}); {hint}")
