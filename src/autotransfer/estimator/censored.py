"""CensoredClassifier: one network with a penalty on subject information, as a scikit-learn classifier."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..censoring import CENSORS
from ..errors import UserError, check_choice, shown
from ..folds import Fold
from ..jobs import Job
from ..model.any_module import Factory
from ..model.encoders import ENCODERS
from ..models.model import Model
from ..models.outcome import train
from ..recordings import Recordings
from ..recordings.labels import as_list
from ..runs.options import DEFAULT_ENCODER
from ..search.candidates import AVERAGED_CHECKPOINT, PENALIZED_NETWORKS
from ..settings import Setting
from ..training.batches import epochs_for
from ..training.conformal import Thresholds
from .inputs import resolve_encoder, resolve_seed
from .window_classifier import WindowClassifier

# Default penalty of each preset. MMD does not lower scores on held-out subjects (docs/results.md).
PRESETS = {"recommended": "mmd", "paper": "adversary"}
# Masking of channels raises scores if many electrodes have similar signals.
CHANNEL_MASK, MIN_MASKED_CHANNELS = 0.1, 8
NOT_IN_SETTING = {
    "_", "setting", "preset", "encoder", "sfreq", "validation_subjects", "random_state", "device", "scoring", "verbose",
}  # fmt: skip


@dataclass(eq=False, repr=False)
class CensoredClassifier(WindowClassifier):
    """Classifier for new subjects: one network, trained with a penalty on subject information.

    One or more subjects are held out for validation. Pass the subjects to cross_val_score as params={"subjects": ids},
    to `fit` of GridSearchCV as subjects=ids, and to `fit` of a pipeline as STEP__subjects=ids. Under scikit-learn's
    metadata routing, `fit` requests `subjects`.

    Parameters
    ----------
    method : str, optional
        Penalty: "adversary", "mige", "mmd", "pairwise_mmd", "began" or another name in `censoring.CENSORS`; "none".
    mode : str, optional
        "marginal", "conditional" or "complementary".
    strength : float, optional
        Weight of the penalty relative to the classification loss.
    setting : Setting, optional
        Setting of the network. The parameters of penalty, training and preprocessing must then be None.
    preset : str, optional
        Values of parameters that are None: "recommended" (default) or "paper", the published protocol.
    estimator, length_scale, regularization, pairs, fraction, size, variant, critic_lr, as_printed : see Setting
        Options of the methods that use them; other methods ignore them.
    max_epochs, checkpoint, patience, batch_size, lr, schedule, weight_decay, dropout, warm_up : see Setting
        Training of the network.
    standardize, align, append_scale, log_power : see Setting
        Preprocessing, and features of the encoder.
    channel_mask : float, optional
        Probability with which a channel of a training window is set to zero.
    encoder, sfreq, random_state, device : see AutoTransferClassifier
        Encoder, sampling rate, random seed and device.
    validation_subjects : str or list, optional
        "last" of the sorted subjects (default), "random", or a list of subjects. `predict_set` and
        `predict(abstain=...)` need at least three.
    scoring : str, optional
        Metric of `score`: "balanced_accuracy", "roc_auc", "cohen_kappa", "f1_macro" or "accuracy".
    verbose : bool
        Whether to show progress.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_, model_
        See `AutoTransferClassifier`.
    setting_ : Setting
        Setting of the network.
    subjects_, validation_subjects_ : list
        Subjects of the data, and subjects held out for validation.
    best_epoch_, history_ : int, dict
        Epoch whose weights are kept, and values by epoch.
    validation_score_ : float
        Balanced accuracy on the validation subjects.

    Examples
    --------
    >>> classifier = at.CensoredClassifier(method="mmd", mode="conditional", strength=1.0)
    >>> classifier.fit(X, y, subjects=ids).predict(X_new)
    """

    method: str | None = None
    mode: str | None = None
    strength: float | None = None
    _: KW_ONLY
    setting: Setting | None = None
    preset: str | None = None
    estimator: str | None = None
    length_scale: str | float | None = None
    regularization: float | None = None
    pairs: str | None = None
    fraction: float | None = None
    size: int | None = None
    variant: str | None = None
    critic_lr: float | None = None
    as_printed: bool | None = None
    max_epochs: int | None = None
    checkpoint: str | None = None
    patience: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    schedule: str | None = None
    weight_decay: float | None = None
    dropout: float | None = None
    standardize: str | None = None
    align: str | None = None
    append_scale: bool | None = None
    log_power: bool | None = None
    channel_mask: float | None = None
    warm_up: int | None = None
    encoder: str | Factory | None = None
    sfreq: float | None = None
    validation_subjects: str | Collection[Any] | None = None
    random_state: Any = 0
    device: str | None = None
    scoring: str | None = None
    verbose: bool = False

    def _train(self, recordings: Recordings) -> Model:
        self._metric()  # raises before training if the parameter `scoring` is invalid
        seed, encoders = resolve_seed(self.random_state), resolve_encoder(self.encoder)[1]
        fold = validation_fold(recordings, self.validation_subjects, seed)
        setting = self.setting_for(len(fold.train), recordings.n_channels)
        job, device, progress = Job(setting, fold, seed), self.device or "auto", bool(self.verbose)
        (outcome,) = train(recordings, [job], device, progress=progress, encoders=encoders)
        model = outcome.model()
        if outcome.failure is not None:
            advice = f"the weights of epoch {outcome.best_epoch} are kept; try a lower lr or strength"
            warnings.warn(f"{outcome.failure}: {advice}", ConvergenceWarning, stacklevel=3)
        model.card = replace(model.card, thresholds=_fit_thresholds(model, recordings, fold))
        self.setting_, self.subjects_ = setting, list(recordings.subjects)
        held_out = np.unique(recordings.subject.numpy()[fold.validation])
        self.validation_subjects_ = [recordings.subjects[index] for index in held_out]
        self.best_epoch_, self.history_ = outcome.best_epoch, outcome.history
        self.validation_score_ = outcome.validation_score
        return model

    def setting_for(self, n_windows: int, n_channels: int) -> Setting:
        """Return the setting for a number of training windows, which determines epochs, and a number of channels."""
        encoder = resolve_encoder(self.encoder)[0]
        names = [field.name for field in fields(self) if field.name not in NOT_IN_SETTING]
        parameters = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.setting is not None:
            return self._check_user_setting(encoder, parameters)
        preset = "recommended" if self.preset is None else self.preset
        check_choice("preset", preset, PRESETS)
        values = dict(parameters)  # the preset "paper" has the defaults of Setting
        if preset == "recommended":
            networks = {network["encoder"]: network for network in PENALIZED_NETWORKS["zero-shot"]}
            values = AVERAGED_CHECKPOINT | networks.get(encoder, {"standardize": "train"}) | parameters
        if "patience" in parameters:
            values["checkpoint"] = parameters.get("checkpoint", "best")  # other checkpoints have no patience
        if values.get("standardize") == "trial":  # all windows then have the same scale
            values["append_scale"] = parameters.get("append_scale", False)
        # Parameters that an encoder does not have are left out, except log_power=True, which is refused.
        options = ENCODERS[encoder].__dataclass_fields__ if encoder in ENCODERS else {}
        for name in ("dropout", "log_power"):
            if name not in options and not (name == "log_power" and parameters.get(name)):
                values.pop(name, None)
        method = values.setdefault("method", PRESETS[preset])
        if "strength" not in values and method != "none":
            check_choice("method", method, CENSORS)
            values["strength"] = CENSORS[method].useful_strengths[-1]
        setting = Setting(**values | {"encoder": encoder, "channel_mask": self.channel_mask or None})
        if preset == "paper":
            return setting
        if self.channel_mask is None and n_channels >= MIN_MASKED_CHANNELS:
            setting = setting.replace(channel_mask=CHANNEL_MASK)
        if self.max_epochs is None:
            setting = setting.replace(max_epochs=epochs_for(n_windows, setting.training.batch_size))
        return setting

    def _check_user_setting(self, encoder: str, parameters: dict[str, Any]) -> Setting:
        """Return the parameter `setting`; raise if other training parameters are given, which have no effect."""
        if not isinstance(self.setting, Setting):
            raise UserError(f"setting is {shown(self.setting)}; give an at.Setting(...), or None")
        if self.preset is not None:
            raise UserError(f"preset={self.preset!r} and setting are both given; leave one of them out")
        if parameters:
            name = next(iter(parameters))
            raise UserError(f"{name} and setting are both given; use setting.replace({name}=...)")
        if encoder == DEFAULT_ENCODER:
            return self.setting
        return self.setting.replace(encoder=encoder, network=None)


def _fit_thresholds(model: Model, recordings: Recordings, fold: Fold) -> Thresholds | None:
    """Fit thresholds of sets and abstention to the validation subjects; None for too few subjects."""
    rows = fold.validation
    subject, y = recordings.subject[rows], recordings.y.numpy()[rows]
    subjects = subject.unique()  # type: ignore[no-untyped-call]  # torch's
    probability = model.predict_checked(recordings.X[rows], subject)
    masks = [(subject == label).numpy() for label in subjects]
    return Thresholds.fit([y[mask] for mask in masks], [probability[mask] for mask in masks])


def validation_fold(recordings: Recordings, subjects: object, seed: int) -> Fold:
    """Return a fold without a test subject, with the named subjects for validation and all others for training."""
    names = recordings.subjects
    subjects = "last" if subjects is None else subjects
    if isinstance(subjects, str):
        check_choice("validation_subjects", subjects, ("last", "random"))
        random_index = int(np.random.default_rng(seed).integers(len(names)))
        indices = [len(names) - 1 if subjects == "last" else random_index]
    else:
        user_names = as_list(subjects, "validation_subjects")
        if unknown := [name for name in user_names if name not in names]:
            raise UserError(f"validation_subjects names {shown(unknown[0])}; the data hold {shown(list(names))}")
        indices = sorted(set(map(names.index, user_names)))
    if not indices or len(names) - len(indices) < 2:
        raise UserError(
            f"validation_subjects names {len(indices)} of {len(names)} subjects; name at least 1, and leave at least 2 "
            "for training"
        )
    validates = np.isin(recordings.subject.numpy(), indices)
    validation_names = tuple(names[index] for index in indices)
    return Fold(np.flatnonzero(~validates), np.flatnonzero(validates), validation_subject=validation_names)
