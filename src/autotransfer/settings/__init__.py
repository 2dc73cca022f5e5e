"""Setting: all hyperparameters of one fit, stored in parts and given as keywords."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..augment import AUGMENTATIONS, Augmentation, augmentation_of
from ..censoring import CENSORS, code_path
from ..errors import UserError, format_number, shown
from ..model.encoder import EncoderOptions
from ..model.encoders import ENCODERS, CustomEncoderOptions
from ..preprocessing import TRANSFORMS, Preprocessing
from ..preprocessing.represent import Represent
from ..schema import fields_of
from .fields import field_values, select_values
from .keywords import check_names, field_names, values_of
from .penalty import Penalty, default_batches, penalty_of
from .training import CHECKPOINTS, CLOSED_FORM, SCHEDULES, Training

__all__ = ["CHECKPOINTS", "SCHEDULES", "Penalty", "Setting", "Training", "field_names"]

NOT_JSON = "a stored setting is not JSON"
WITHOUT_PENALTY = {"warm_up": 0, "shuffle_subjects": False}  # values of these keywords without a penalty


@dataclass(frozen=True, init=False, repr=False)
class Setting:
    """Hyperparameters of one fit. `Setting()` is EEGNet (paper), without a penalty.

        Setting(method="mmd", mode="conditional", strength=1.0, max_epochs=500, batch_size=128, standardize="trial")

    Keywords are method, mode, strength, warm_up, shuffle_subjects and the options of the method; encoder and its
    options; transforms and augmentations by their names; and the fields of `Training`. Each keyword can be read as an
    attribute, which is None if the keyword has no effect. Options of other methods are ignored. With method=None or
    strength=0 there is no penalty. `setting.replace(strength=0.3)` returns a changed setting.
    docs/reference/settings.md explains every keyword.
    """

    penalty: Penalty | None
    encoder: str  # name in ENCODERS, or name of a user's factory
    network: EncoderOptions
    preprocessing: Preprocessing
    augmentation: tuple[Augmentation, ...]
    training: Training

    def __init__(self, **keywords: Any) -> None:
        parts = {field.name: keywords.pop(field.name) for field in fields_of(type(self)) if field.name in keywords}
        if (encoder := parts.pop("encoder", None)) is not None:
            keywords["encoder"] = encoder
        values = values_of(**parts) | keywords
        check_names(keywords)
        penalty = penalty_of(values)
        training = Training(**select_values(values, Training))
        if training.batches == "auto":
            training = Training(**field_values(training) | {"batches": default_batches(penalty)})
        encoder, network = _make_network(values, keywords)
        augmentation = augmentation_of(values)
        if network.is_closed_form:
            _check_closed_form(encoder, penalty, augmentation)
            training = CLOSED_FORM
        preprocessing = Preprocessing.from_values(values)
        _check_augmentation(preprocessing, augmentation)
        fields = (penalty, encoder, network, preprocessing, augmentation, training)
        for field, value in zip(fields_of(type(self)), fields, strict=True):
            object.__setattr__(self, field.name, value)

    # These keywords are properties, so that they have types. `__getattr__` reads all other keywords.

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
        """Return how the preprocessing uses unlabeled windows of a new subject (`Preprocessing.adaptation`)."""
        return self.preprocessing.adaptation

    @property
    def family(self) -> str:
        """Return the model family: the representation of a linear model, such as 'tangent', or the encoder's name."""
        for transform in self.preprocessing.transforms:
            if isinstance(transform, Represent) and self.encoder == "linear":
                return transform.name
        return self.encoder

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or "training" not in self.__dict__ or name not in field_names():
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            default = TRANSFORMS[name].default if name in TRANSFORMS else WITHOUT_PENALTY.get(name)
            return self.to_dict().get(name, default)

    def __repr__(self) -> str:
        defaults = Setting().to_dict()
        words = [f"{name}={value!r}" for name, value in self.to_dict().items() if defaults.get(name) != value]
        return f"Setting({', '.join(words)})"

    @property
    def name(self) -> str:
        """Return a short name of the penalty, such as 'mmd conditional 0.3 median'."""
        penalty = self.penalty
        if penalty is None:
            return "paper_network"
        words = [penalty.method, penalty.mode, format_number(penalty.strength), *penalty.options.name_parts]
        words += [f"warm_up {penalty.warm_up}"] if penalty.warm_up else []
        words += ["shuffled"] if penalty.shuffle_subjects else []
        return " ".join(words)

    def name_relative_to(self, reference: Setting) -> str:
        """Return a name with all differences from a reference setting, such as 'paper_network with align online'."""
        family, differences = self._compare(reference)
        name = self.name if family is None or self.penalty is not None else family
        if family is not None and self.penalty is not None:
            differences |= {"encoder": self.encoder}
        words = [key if value is True else f"{key} {value}" for key, value in differences.items()]
        return name + (f" with {', '.join(words)}" if words else "")

    def _compare(self, reference: Setting) -> tuple[str | None, dict[str, Any]]:
        """Return the model family if it differs from the reference, and differences that the family does not imply."""
        differences = self._differences(reference)
        if "represent" in differences:  # sfreq and constants are then equal in all settings of a run
            differences = {k: value for k, value in differences.items() if k not in ("sfreq", "constants")}
        if self.encoder == reference.encoder:
            return None, differences
        del differences["encoder"]
        if self.family != self.encoder:
            differences.pop("represent", None)
        if self.network.is_closed_form:  # usually "none", because linear models standardize features
            differences["standardize"] = self.preprocessing.to_values()["standardize"]
            if differences["standardize"] == "none":
                del differences["standardize"]
        return self.family, differences

    def _differences(self, reference: Setting) -> dict[str, Any]:
        """Return keywords outside the penalty that differ from a reference, or from an encoder's defaults."""
        has_same_type = type(reference.network) is type(self.network)
        reference_network = reference.network if has_same_type else type(self.network)()
        values, reference_values = (
            values_of(**_parts(setting) | {"penalty": None, "network": network}) | {"encoder": setting.encoder}
            for setting, network in ((self, self.network), (reference, reference_network))
        )
        reference_values["batches"] = default_batches(self.penalty)
        unused = [field.name for field in fields_of(Training)] if self.network.is_closed_form else []
        names = dict.fromkeys(name for name in [*values, *reference_values] if name not in unused)
        return {name: values.get(name, "none") for name in names if values.get(name) != reference_values.get(name)}

    def replace(self, **changes: Any) -> Setting:
        """Return a copy with other values of some keywords or parts."""
        return Setting(**field_values(self) | changes)

    def uncensored(self, batches: str) -> Setting:
        """Return a copy without the penalty and with another value of `batches`."""
        return Setting(**self.to_dict() | {"method": None, "batches": batches})

    @property
    def code_path(self) -> tuple[object, ...]:
        """Return a key that is equal for settings whose penalties differ only in numbers and can share a censor."""
        penalty = self.penalty
        if penalty is None:
            return ()
        return penalty.method, penalty.mode, *code_path(CENSORS[penalty.method], penalty.options)

    def as_row(self) -> dict[str, Any]:
        """Return a table row with every keyword of all settings, 'none' if it has no effect."""
        values = self.to_dict()
        return {name: "none" if values.get(name) is None else values[name] for name in field_names()}

    def to_dict(self) -> dict[str, Any]:
        """Return the keywords that have an effect; `Setting(**keywords)` is equal to this setting."""
        return values_of(**_parts(self)) | {"encoder": self.encoder}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Setting:
        names = field_names()
        for name in values:
            if name not in names:
                raise UserError(f"a stored setting has the unknown field {shown(name)}")
        return cls(**values)

    def to_json(self) -> str:
        """Return canonical JSON text: equal settings have equal text."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Setting:
        if not isinstance(text, str):
            raise UserError(NOT_JSON)
        return _parse(text)

    @property
    def key(self) -> str:
        """Return 16 hexadecimal digits that identify the setting in files."""
        return _key(self)


@lru_cache(maxsize=4096)
def _key(setting: Setting) -> str:
    return hashlib.blake2b(setting.to_json().encode(), digest_size=8).hexdigest()


@lru_cache(maxsize=4096)
def _parse(text: str) -> Setting:
    try:
        values = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise UserError(NOT_JSON) from None
    if not isinstance(values, dict):
        raise UserError("a stored setting is not a JSON object")
    return Setting.from_dict(values)


def _make_network(values: dict[str, Any], keywords: dict[str, Any]) -> tuple[str, EncoderOptions]:
    """Return the encoder's name and options; raise if a keyword is an option of another encoder."""
    encoder = values.get("encoder", "eegnet")
    if not isinstance(encoder, str):
        raise UserError(f"encoder is {shown(encoder)}; it must be of type str")
    cls = ENCODERS.get(encoder, CustomEncoderOptions)
    names = {field.name for field in fields_of(cls)} - {"factory"}
    for name, other_cls in ENCODERS.items():
        for field in fields_of(other_cls):
            if field.name not in names and keywords.get(field.name) not in (None, field.default):
                raise UserError(
                    f"{field.name} has no effect with encoder {shown(encoder)}; remove it, or choose {name!r}"
                )
    return encoder, cls(**{name: value for name, value in select_values(values, cls).items() if name != "factory"})


def _check_closed_form(encoder: str, penalty: Penalty | None, augmentation: tuple[Augmentation, ...]) -> None:
    """Raise if a linear model or trees have a penalty or an augmentation."""
    if penalty is not None or augmentation:
        raise UserError(
            f"encoder {encoder!r} is fitted in closed form, without training steps; "
            f"remove {'the augmentation' if penalty is None else 'method'}, or choose another encoder"
        )


def _check_augmentation(preprocessing: Preprocessing, augmentation: tuple[Augmentation, ...]) -> None:
    """Raise if an augmentation needs signals, but the preprocessing replaces them by features."""
    if not any(isinstance(transform, Represent) for transform in preprocessing.transforms):
        return
    for name, cls in AUGMENTATIONS.items():
        if cls.needs_signals and any(type(step) is cls for step in augmentation):
            raise UserError(f"{name} changes signals, and represent replaces signals by features; remove one of them")


def _parts(setting: Setting) -> dict[str, Any]:
    return {name: part for name, part in field_values(setting).items() if name != "encoder"}
