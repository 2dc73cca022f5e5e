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

    Each keyword can be read as an attribute, which is None if the keyword has no effect. Options of other methods are
    ignored. With method=None or strength=0 there is no penalty.

    Parameters
    ----------
    method : optional
        Penalty on information about the subject: `adversary`, `mige`, `mmd`, `pairwise_mmd`, `began`; None: no
        penalty.
    mode : default marginal
        `marginal` z ⟂ s, `conditional` z ⟂ s given y, `complementary`: half of z is censored, half keeps s.
    strength : default 1.0
        Weight λ of the penalty relative to the classification loss; 0: no penalty.
    warm_up : default 0
        Epochs over which the strength rises linearly from 0.
    shuffle_subjects : default False
        Control: subjects are shuffled within each class before training.
    as_printed : optional
        Whether the method follows the pseudocode of the paper, with its errors.
    critic_lr : default 0.01
        Learning rate of the critic. Option of `adversary`, `began`.
    critic_steps : default 1
        Critic updates for each step of the encoder. Option of `adversary`, `began`.
    critic_hidden : default 64
        Width of the critic's hidden layer. Option of `adversary`, `began`.
    estimator : default stein
        Estimator of the scores: `ssge`, `stein`, `tikhonov`, `nu_method`. Option of `mige`.
    length_scale : default median
        Length scale σ of the kernel: `median` or `perplexity`, estimated in every batch, or a number. Option of
        `mige`, `mmd`, `pairwise_mmd`.
    regularization : optional
        Number γ of the estimator; by default 0.001 for `stein`, 0.01 for other estimators. Option of `mige`.
    projection : default True
        Whether the scores obey Stein's identity; the paper's do not. Option of `mige`.
    pairs : default all
        Which pairs of subjects are compared: `all`, `bernoulli`, `clique`. Option of `pairwise_mmd`.
    fraction : optional
        With `bernoulli`: the share of pairs drawn in a step; 0.5 unless given. Option of `pairwise_mmd`.
    size : optional
        With `clique`: how many subjects are drawn in a step; 2 unless given. Option of `pairwise_mmd`.
    variant : default labelled
        `labelled`: the critic sees the subject; `paper`: as printed, it does not. Option of `began`.
    control_rate : default 0.001
        Rate β, how quickly the balance k between real and fake moves. Option of `began`.
    diversity : optional
        Target balance γ; None: 1 for `labelled`, 0.7 for `paper`. Option of `began`.
    encoder : default eegnet
        Name of the encoder: `eegnet`, `shallow`, `linear`, `templates`, `evoked`, `trees`, `boosting`, or the name
        of a network of your own.
    temporal_kernel : optional
        Samples of a temporal filter; None: half a second for `eegnet`, a fifth for `shallow`, within 3 and 64.
        Option of `eegnet`, `shallow`.
    dropout : default 0.25
        Probability that a unit is dropped. Option of `eegnet`, `shallow`.
    temporal_filters : default 8
        F1 of EEGNet. Option of `eegnet`.
    spatial_depth : default 2
        Spatial filters for each temporal filter. Option of `eegnet`.
    latent_filters : default 16
        F2 of EEGNet: channels of the latent features. Option of `eegnet`.
    log_power : default False
        Append the log power of every spatial filter's signal to the latent features. Option of `eegnet`.
    power_filters : default 32
        Number of pairs of a spatial and a temporal filter. Option of `shallow`.
    shrinkage : default auto
        Share of the identity in the classes' common covariance, in [0, 1]; `auto`: by Ledoit and Wolf. Option of
        `linear`, `templates`, `evoked`, `trees`, `boosting`.
    template_filters : default 4
        Spatial filters of xDAWN for each class; 32 in all at most, and not more than channels. Option of
        `templates`, `evoked`.
    trees : optional
        Number of trees. Option of `trees`, `boosting`.
    leaves : optional
        Largest number of leaves of a tree. Option of `trees`, `boosting`.
    depth : optional
        Largest depth of a tree. Option of `trees`, `boosting`.
    learning_rate : optional
        Learning rate of boosting; 0.1 by default. Option of `boosting`.
    standardize : default trial
        `trial`: each channel of each window; `train`: with statistics of the training subjects; `online`: of the
        subject's windows so far; `transductive`: of all unlabeled windows of the subject; `none`.
    delays : optional
        Number of copies of every channel, each `lag` samples later than the one before; 1: no delayed copies.
    lag : default 1
        Samples between two delayed copies.
    align : default none
        Euclidean alignment of the standardized windows of each subject: `online`: from the windows of the subject
        so far; `transductive`: from all of them; `none`.
    append_scale : default False
        Standardize every window by itself and append mean and log standard deviation of each channel as constant
        channels; not with `standardize` trial, which removes them.
    represent : default none
        Features that replace the window, for linear models and trees: `features`, `tangent`, `tdar`, `ls9`,
        `tdpsd`, `rhythms`, `bands`, `fine_bands`, `band_tangent`, `statistics`, `combined`, `beats`; or `none`.
    sfreq : optional
        Sampling rate in Hz, if the representation needs it.
    constants : optional
        Numbers whose meaning the representation defines, if it needs any.
    center : default none
        Subtract the subject's mean of the representation: `online`: over the windows so far; `transductive`: over
        all windows; `none`.
    mixup : optional
        Mix every training window with a window of another subject of its class, from the same minibatch; the share
        of that window is uniform between 0 and this number, at most .5.
    amplitude : optional
        Multiply every channel of a training window by exp(u), u uniform in ± this number.
    channel_mask : optional
        Set each channel of a training window to zero with this probability.
    batches : default auto
        `balanced`: enough windows of each subject in a batch to compare subjects; `shuffled`; `auto`: balanced with
        a penalty, shuffled without.
    batch_size : default 128
        Windows of a minibatch.
    lr : default 0.001
        Learning rate of the first epoch; `schedule` determines the others.
    schedule : default inverse_sqrt
        Schedule of the learning rates, also of the critic: `inverse_sqrt`: lr/√epoch, as published; `constant`.
    weight_decay : default 0.01
        Weight decay of AdamW.
    max_epochs : default 500
        Number of epochs.
    checkpoint : default best
        Weights that are kept: `best`: of the epoch with the lowest validation loss, as published; `last`: of the
        last epoch; `averaged`: the mean over the last half of the steps.
    patience : optional
        Stop after this many epochs without a lower validation loss; None: never, as with `checkpoint` last and
        averaged.

    Examples
    --------
    >>> setting = at.Setting(method="mmd", mode="conditional", strength=1.0, max_epochs=500, standardize="train")
    >>> setting.replace(strength=0.3)  # a changed setting
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
