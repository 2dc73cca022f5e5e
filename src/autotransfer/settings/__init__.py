"""Setting: every number that can change the outcome of one fit, in parts, written as one flat list of keywords."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..augment import AUGMENTATIONS, Augmentation, augmentation_of
from ..censoring import CENSORS, code_path
from ..errors import UserError, number, shown
from ..model.encoder import EncoderOptions
from ..model.encoders import ENCODERS, CustomEncoderOptions
from ..preprocessing import TRANSFORMS, Preprocessing
from ..preprocessing.represent import Represent
from ..schema import fields_of
from .fields import flat, picked
from .keywords import check_known, field_names, values_of
from .penalty import Penalty, penalty_of, usual_batches
from .training import CHECKPOINTS, SCHEDULES, SOLVED, Training

__all__ = ["CHECKPOINTS", "SCHEDULES", "Penalty", "Setting", "Training", "field_names"]

WITHOUT_PENALTY = {"warm_up": 0, "shuffle_subjects": False}  # of a network without a penalty


@dataclass(frozen=True, init=False, repr=False)
class Setting:
    """Hyperparameters of one fit. `Setting()` is EEGNet (paper), without a penalty.

        Setting(method="mmd", mode="conditional", strength=1.0, max_epochs=500, batch_size=128, standardize="trial")

    Keywords are method, mode, strength, warm_up, shuffle_subjects and the options of the method; encoder and its
    options; transforms and augmentations by their names; and the fields of `Training`. Each can be read as an
    attribute, which is None if it has no effect. Options of other methods are ignored. With method=None or strength=0
    there is no penalty. `setting.replace(strength=0.3)` returns a changed setting. docs/reference/settings.md explains
    every keyword.
    """

    penalty: Penalty | None
    encoder: str  # of ENCODERS, or the name of a factory given with the jobs
    network: EncoderOptions
    preprocessing: Preprocessing
    augmentation: tuple[Augmentation, ...]
    training: Training

    def __init__(self, **given: Any) -> None:
        parts = {field.name: given.pop(field.name) for field in fields_of(type(self)) if field.name in given}
        if (encoder := parts.pop("encoder", None)) is not None:
            given["encoder"] = encoder
        values = values_of(**parts) | given
        check_known(given)
        penalty = penalty_of(values)
        training = Training(**picked(values, Training))
        if training.batches == "auto":
            training = Training(**flat(training) | {"batches": usual_batches(penalty)})
        encoder, network = _network(values, given)
        augmentation = augmentation_of(values)
        if network.closed_form:
            _check_solved(encoder, penalty, augmentation)
            training = SOLVED
        preprocessing = Preprocessing.of(values)
        _check_of_signals(preprocessing, augmentation)
        fields = (penalty, encoder, network, preprocessing, augmentation, training)
        for field, value in zip(fields_of(type(self)), fields, strict=True):
            object.__setattr__(self, field.name, value)

    # Typed, because many read them. Other fields are those of the parts, or attributes of the same names.

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
    def max_epochs(self) -> int:
        return self.training.max_epochs

    @property
    def adaptation(self) -> str:
        """Return how unlabeled windows of a new person are used: see `Preprocessing.adaptation`."""
        return self.preprocessing.adaptation

    @property
    def kind(self) -> str:
        """Return the representation of a linear model, such as 'features' or 'tangent', or the name of the encoder."""
        for transform in self.preprocessing.transforms:
            if isinstance(transform, Represent) and self.encoder == "linear":
                return transform.kind
        return self.encoder

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or "training" not in self.__dict__ or name not in field_names():
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            off = TRANSFORMS[name].default if name in TRANSFORMS else WITHOUT_PENALTY.get(name)
            return self.to_dict().get(name, off)

    def __repr__(self) -> str:
        usual = Setting().to_dict()
        changed = [f"{name}={value!r}" for name, value in self.to_dict().items() if usual.get(name) != value]
        return f"Setting({', '.join(changed)})"

    @property
    def name(self) -> str:
        """Return a short name of the penalty, such as 'mmd conditional 0.3 median'."""
        penalty = self.penalty
        if penalty is None:
            return "paper_network"
        words = [penalty.method, penalty.mode, number(penalty.strength), *penalty.options.name_parts]
        words += [f"warm_up {penalty.warm_up}"] if penalty.warm_up else []
        words += ["shuffled"] if penalty.shuffle_subjects else []
        return " ".join(words)

    def name_relative_to(self, plain: Setting) -> str:
        """Return the name, with every other difference from a plain setting: 'paper_network with align online',
        'tangent'."""
        kind, traits = self.relative_to(plain)
        head = self.name if kind is None or self.penalty is not None else kind
        if kind is not None and self.penalty is not None:
            traits |= {"encoder": self.encoder}
        words = [name if value is True else f"{name} {value}" for name, value in traits.items()]
        return head + (f" with {', '.join(words)}" if words else "")

    def relative_to(self, plain: Setting) -> tuple[str | None, dict[str, Any]]:
        """Return the kind, if it differs from the plain setting's, and the traits that the kind does not imply. sfreq
        and constants of a representation are left out: they are the same for all settings of a run."""
        traits = self.traits(plain)
        if "represent" in traits:
            traits = {name: value for name, value in traits.items() if name not in ("sfreq", "constants")}
        if self.encoder == plain.encoder:
            return None, traits
        del traits["encoder"]
        if self.kind != self.encoder:
            traits = {name: value for name, value in traits.items() if name != "represent"}
        if self.network.closed_form:  # it standardizes its codes, so that windows need not be standardized
            traits |= {"standardize": self.preprocessing.values()["standardize"]}
            traits = {name: value for name, value in traits.items() if (name, value) != ("standardize", "none")}
        return self.kind, traits

    def traits(self, plain: Setting) -> dict[str, Any]:
        """Return fields outside the penalty in which the setting differs from a plain one. Options of another encoder
        are compared with its defaults, batches with those that the penalty, or its absence, asks for."""
        usual_network = plain.network if type(plain.network) is type(self.network) else type(self.network)()
        values, usual = (
            values_of(**_parts(setting) | {"penalty": None, "network": network}) | {"encoder": setting.encoder}
            for setting, network in ((self, self.network), (plain, usual_network))
        )
        usual["batches"] = usual_batches(self.penalty)
        solved = [field.name for field in fields_of(Training)] if self.network.closed_form else []
        names = dict.fromkeys(name for name in [*values, *usual] if name not in solved)
        return {name: values.get(name, "none") for name in names if values.get(name) != usual.get(name)}

    def replace(self, **changes: Any) -> Setting:
        """Return the setting with some keywords, or whole parts, changed."""
        return Setting(**flat(self) | changes)

    def uncensored(self, batches: str) -> Setting:
        """Return the setting without its penalty, with these batches."""
        return Setting(**self.to_dict() | {"method": None, "batches": batches})

    @property
    def code_path(self) -> tuple[object, ...]:
        """Return a key: members that agree in it run the same censor; everything else about them is a number per
        member."""
        penalty = self.penalty
        if penalty is None:
            return ()
        return penalty.method, penalty.mode, *code_path(CENSORS[penalty.method], penalty.options)

    def as_row(self) -> dict[str, Any]:
        """Return every field of all settings as a row of a table, 'none' if it has no effect."""
        values = self.to_dict()
        return {name: "none" if values.get(name) is None else values[name] for name in field_names()}

    def to_dict(self) -> dict[str, Any]:
        """Return the keywords that make this setting, without those that have no effect."""
        return values_of(**_parts(self)) | {"encoder": self.encoder}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Setting:
        known = field_names()
        for name in values:
            if name not in known:
                raise UserError(f"a stored setting has the unknown field {shown(name)}")
        return cls(**values)

    def to_json(self) -> str:
        """Return canonical JSON text: equal settings have equal text."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Setting:
        if not isinstance(text, str):
            raise UserError("a setting is stored as text that is not JSON")
        return _parsed(text)

    @property
    def key(self) -> str:
        """Return 16 hexadecimal digits that identify the setting in files."""
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


def _network(values: dict[str, Any], given: dict[str, Any]) -> tuple[str, EncoderOptions]:
    encoder = values.get("encoder", "eegnet")
    if not isinstance(encoder, str):
        raise UserError(f"encoder is {shown(encoder)}; it must be of type str")
    kind = ENCODERS.get(encoder, CustomEncoderOptions)
    read = {field.name for field in fields_of(kind)} - {"factory"}
    for name, other in ENCODERS.items():
        for field in fields_of(other):
            if field.name in given and field.name not in read and given[field.name] not in (None, field.default):
                raise UserError(f"{field.name} belongs to the encoder {name!r}; {shown(encoder)} does not read it")
    return encoder, kind(**{name: value for name, value in picked(values, kind).items() if name != "factory"})


def _check_solved(encoder: str, penalty: Penalty | None, augmentation: tuple[Augmentation, ...]) -> None:
    """Raise if a linear model or trees are to be trained with steps."""
    if penalty is not None or augmentation:
        raise UserError(
            f"the encoder {encoder!r} is solved in closed form, without steps on which a penalty or augmentation could "
            f"act; leave {'augmentation' if penalty is None else 'the method'} out, or choose another encoder"
        )


def _check_of_signals(preprocessing: Preprocessing, augmentation: tuple[Augmentation, ...]) -> None:
    if not any(isinstance(transform, Represent) for transform in preprocessing.transforms):
        return
    for name, kind in AUGMENTATIONS.items():
        if kind.of_signals and any(type(step) is kind for step in augmentation):
            raise UserError(f"{name} changes signals, and represent leaves none; leave one of them out")


def _parts(setting: Setting) -> dict[str, Any]:
    return {name: part for name, part in flat(setting).items() if name != "encoder"}
