"""CensoredClassifier: one encoder with a penalty on what its codes reveal about people, for scikit-learn."""

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
from ..models.building import CandidateFits, build_model
from ..models.model import Model
from ..recordings import Recordings
from ..recordings.labels import as_list
from ..runs.options import DEFAULT_ENCODER
from ..search.candidates import AVERAGED_CHECKPOINT, EEGNET, PENALIZED_NETWORKS
from ..settings import Setting
from ..training.batches import epochs_for
from ..training.conformal import MIN_SUBJECTS, Thresholds
from ..training.packing import resolve_device
from ..training.train import train
from ..versions import versions
from .inputs import encoder_of, seed_of
from .window_classifier import WindowClassifier

PRESETS = ("recommended", "paper")
# This penalty cost nothing on held-out people (docs/results.md, "What each part adds").
RECOMMENDED = ("mmd", "marginal")
PUBLISHED = ("adversary", "marginal")
# Masked channels gain if many electrodes carry nearly equal signals, and nothing if they are few.
CHANNEL_MASK, ENOUGH_CHANNELS = 0.1, 8
# Parameters that are no fields of a setting, or are handled by themselves.
NOT_OF_THE_SETTING = {
    "_", "setting", "preset", "encoder", "sfreq", "validation_subjects", "random_state", "device", "scoring", "verbose",
}  # fmt: skip


@dataclass(eq=False, repr=False)
class CensoredClassifier(WindowClassifier):
    """Classifier of windows (N, channels, times): one network, trained with a penalty on subject information.

        clf = CensoredClassifier(method="mmd", mode="conditional", strength=1.0).fit(X, y, subjects=ids)

    One or several subjects are held out for validation. They give `validation_score_` and, with checkpoint="best", the
    epoch whose weights are kept. Pass ids to cross_val_score as params={"subjects": ids}, to
    GridSearchCV(...).fit as subjects=ids, and to a pipeline's fit as STEP__subjects=ids. Under scikit-learn's metadata
    routing they are requested as `subjects`.

    setting: a `Setting` in place of the other parameters of training, which are then refused, except an encoder of
        your own
    preset: "recommended" (default) or "paper", the published protocol; the source of parameters that are None
    method, mode, strength: the penalty, as in `Setting`; "none": no penalty
    estimator, length_scale, regularization, pairs, fraction, size, variant, critic_lr, as_printed: options of the
        methods that read them, as in `Setting`; other methods ignore them
    warm_up, max_epochs, checkpoint, patience, batch_size, lr, schedule, weight_decay, dropout: as in `Setting`
    standardize, align, append_scale, log_power: preprocessing and encoding, as in `Setting`
    channel_mask: probability that a channel of a training window is set to zero
    encoder: "eegnet", "shallow", or a class or function (n_channels, n_times) -> nn.Module that maps windows to z
    sfreq: sampling rate in Hz, for temporal kernels; read from MNE epochs
    validation_subjects: "last" of the subjects in sorted order (default), "random", or a list of subjects in the data;
        at least three are needed for `predict_set` and `predict(abstain=...)`
    random_state: random seed
    device: "auto", "cpu" or "cuda"; predictions are made on the CPU
    scoring: the metric of `score`: "balanced_accuracy", "roc_auc", "cohen_kappa", "f1_macro" or "accuracy"
    verbose: show progress

    After fit: `classes_`, `n_features_in_` (channels), `feature_names_in_` (if X named them), `setting_`, `subjects_`,
    `validation_subjects_`, `best_epoch_`, `validation_score_` (balanced accuracy), `history_` (by epoch) and `model_`.
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

    def _check_options(self) -> None:
        self._setting(encoder_of(self.encoder)[0])
        seed_of(self.random_state)
        resolve_device(self.device or "auto")

    def _train(self, recordings: Recordings) -> Model:
        seed, encoders = seed_of(self.random_state), encoder_of(self.encoder)[1]
        fold = validation_fold(recordings, self.validation_subjects, seed)
        setting = self.setting_for(len(fold.train), recordings.n_channels)
        job, shown = Job(setting, fold, seed), bool(self.verbose)
        (outcome,) = train(recordings, [job], self.device or "auto", progress=shown, encoders=encoders)
        if outcome.failure is not None:
            if outcome.best_epoch == 0:
                raise UserError(f"{outcome.failure}; try a lower lr or strength")
            kept = f"the weights of epoch {outcome.best_epoch} are kept; try a lower lr or strength"
            warnings.warn(f"{outcome.failure}: {kept}", ConvergenceWarning, stacklevel=3)
        scores = {"validation_score": outcome.validation_score}
        fits = [CandidateFits(setting, [outcome.state], [fold])]
        model = build_model(recordings, fits, scores=scores, encoders=encoders)
        model.card = replace(model.card, thresholds=_thresholds(model, recordings, fold), made_with=versions())
        self.setting_, self.subjects_ = setting, list(recordings.subjects)
        held_out = np.unique(recordings.subject.numpy()[fold.validation])
        self.validation_subjects_ = [recordings.subjects[number] for number in held_out]
        self.best_epoch_, self.history_ = outcome.best_epoch, outcome.history
        self.validation_score_ = outcome.validation_score
        return model

    def _setting(self, encoder: str) -> Setting:
        """Return the setting before the data are known: epochs may still depend on their size."""
        names = [field.name for field in fields(self) if field.name not in NOT_OF_THE_SETTING]
        asked = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.setting is not None:
            return self._given_setting(encoder, asked)
        preset = PRESETS[0] if self.preset is None else self.preset
        check_choice("preset", preset, PRESETS)
        if "patience" in asked:
            asked.setdefault("checkpoint", "best")  # nothing else has patience
        usual = training_of(preset, encoder)
        if asked.get("standardize", usual["standardize"]) == "trial":
            usual["append_scale"] = False  # a scale is not left
        # What an encoder does not read is left out, except a log_power that was asked for: it is refused.
        read = ENCODERS[encoder].__dataclass_fields__ if encoder in ENCODERS else {}
        unread = {name for name in ("dropout", "log_power") if name not in read}
        if asked.get("log_power"):
            unread.discard("log_power")
        given = usual | asked | penalty_from_preset(preset, self.method, self.mode, self.strength)
        given |= {"encoder": encoder, "channel_mask": self.channel_mask or None}
        return Setting(**{name: value for name, value in given.items() if name not in unread})

    def _given_setting(self, encoder: str, asked: dict[str, Any]) -> Setting:
        """Return the user's setting and refuse other parameters of the training, because they would be ignored."""
        if not isinstance(self.setting, Setting):
            raise UserError(f"setting is {shown(self.setting)}; give an at.Setting(...), or None")
        if self.preset is not None:
            raise UserError("preset is given in addition to a setting; leave one of them out")
        if asked:
            name = next(iter(asked))
            raise UserError(f"{name} is given in addition to a setting; use setting.replace({name}=...)")
        if encoder == DEFAULT_ENCODER:
            return self.setting
        return self.setting.replace(encoder=encoder, network=None)

    def setting_for(self, rows: int, channels: int) -> Setting:
        """Return the setting for so many training rows and channels, which decide what neither user nor preset
        gives."""
        setting = self._setting(encoder_of(self.encoder)[0])
        if self.preset == "paper" or self.setting is not None:
            return setting
        if self.channel_mask is None and channels >= ENOUGH_CHANNELS:
            setting = setting.replace(channel_mask=CHANNEL_MASK)
        if self.max_epochs is not None:
            return setting
        return setting.replace(max_epochs=epochs_for(rows, setting.training.batch_size))


def penalty_from_preset(preset: str, method: str | None, mode: str | None, strength: float | None) -> dict[str, Any]:
    """Return method, mode and strength; None takes the preset's, and the method's own strength."""
    usual, usual_mode = RECOMMENDED if preset == "recommended" else PUBLISHED
    method = usual if method is None else method
    if strength is None and method != "none":
        check_choice("method", method, CENSORS)
        strength = CENSORS[method].useful_strengths[-1]
    penalty = {"method": method, "mode": usual_mode if mode is None else mode}
    return penalty if strength is None else penalty | {"strength": strength}


def training_of(preset: str, encoder: str) -> dict[str, Any]:
    """Return how windows are preprocessed and networks trained, as fields of `Setting`. A user's own encoder gets no
    channels in addition to its own."""
    plain = Setting()
    if preset == "paper":
        return {
            "max_epochs": plain.max_epochs, "standardize": "trial", "append_scale": False, "log_power": False,
            "schedule": plain.training.schedule, "checkpoint": plain.training.checkpoint,
        }  # fmt: skip
    networks = {network["encoder"]: network for network in reversed(PENALIZED_NETWORKS["zero-shot"])}
    usual = dict.fromkeys(EEGNET, False) | AVERAGED_CHECKPOINT | networks.get(encoder, {"standardize": "train"})
    return {name: value for name, value in usual.items() if name != "encoder"}


def _thresholds(model: Model, recordings: Recordings, fold: Fold) -> Thresholds | None:
    """Return the thresholds of sets and abstention from the validation subjects; None if they are too few."""
    rows = fold.validation
    who, y = recordings.subject[rows], recordings.y.numpy()[rows]
    people = who.unique()  # type: ignore[no-untyped-call]  # torch's
    if len(people) < MIN_SUBJECTS:
        return None
    probability = model.predict_checked(recordings.X[rows], who)
    masks = [(who == person).numpy() for person in people]
    return Thresholds.fit([y[mask] for mask in masks], [probability[mask] for mask in masks])


def validation_fold(recordings: Recordings, subjects: object, seed: int) -> Fold:
    """Return a fold in which all other subjects train and nobody is tested."""
    known = recordings.subjects
    subjects = "last" if subjects is None else subjects
    if isinstance(subjects, str):
        check_choice("validation_subjects", subjects, ("last", "random"))
        drawn = int(np.random.default_rng(seed).integers(len(known)))
        chosen = {len(known) - 1 if subjects == "last" else drawn}
    else:
        listed = as_list(subjects, "validation_subjects")
        if strange := [subject for subject in listed if subject not in known]:
            raise UserError(f"validation_subjects names {shown(strange[0])}; the data hold {shown(list(known))}")
        chosen = set(map(known.index, listed))
    if not chosen or len(known) - len(chosen) < 2:
        raise UserError(
            f"{len(chosen)} of {len(known)} subjects validate; name at least one, and leave at least 2 to train on"
        )
    validates = np.isin(recordings.subject.numpy(), sorted(chosen))
    validation, names = np.flatnonzero(validates), tuple(known[place] for place in sorted(chosen))
    return Fold(np.flatnonzero(~validates), validation, validation_subject=names)
