"""Model: a weighted ensemble of candidates that predicts raw windows."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError, check_choice, shown
from ..model.encoders import Encoders
from ..preprocessing.transform import select_prefix
from ..recordings.concerns import compare_with_training
from ..recordings.raw import Raw
from ..recordings.signal import Signal
from ..recordings.targets import parse_targets
from ..recordings.windows import as_window_array, encode_subjects, is_epochs, validate_windows
from ..settings import Setting
from ..training.conformal import (
    decide_classes,
    interval_radius,
    least_confidence,
    least_probability,
    make_intervals,
    make_sets,
    unanswered_value,
)
from ..training.effects import Effects
from ..words import printable
from .adaptation import CENTERED_CLASS_MEANS, CENTERING, NO_ADAPTATION, UNTRIED, Adaptation
from .calibration import check_effects, encode_labels, encode_with_unknown_classes, explain_unused_labels, find_trust
from .candidate import Candidate, size_of_candidate
from .card import ModelCard, as_array
from .ensemble import Ensemble, FitCorrection, Floats, Graph, check_candidates
from .hub import push_to_hub
from .online import ALL, OnlineEnsemble, softmax
from .overlap import add_calibration_digests
from .saving import write_model


class Model:
    """Weighted ensemble of candidates: log p(class | window) = Σ weight · log p of each candidate, normalized.

    It takes raw windows; each candidate has its own preprocessing. A single network or linear model is an ensemble of
    one candidate. For regression the prediction is constant + Σ weight · (prediction of a candidate − constant), with
    the mean of the training targets as the constant. `load_model` and the `model_` of fitted estimators are models.

    Examples
    --------
    >>> model = at.load_model("run")
    >>> model.predict(X)  # raw windows (N, channels, times)
    """

    def __init__(
        self, card: ModelCard, candidates: Sequence[Candidate], online_candidates: Sequence[Candidate] = ()
    ) -> None:
        self.card, self.candidates, self.online_candidates = card, list(candidates), list(online_candidates)

    @classmethod
    def restore(cls, card: ModelCard, tensors: dict[str, Tensor], encoders: Encoders | None = None) -> Self:
        """Restore a model from the result of `tensors()`; raise if it is invalid."""
        cards = card.candidate_cards()
        for name in tensors:
            if not name.startswith(tuple(cards)):
                raise ValueError(f"the tensor {shown(name)} belongs to none of its {len(card.candidates)} candidates")
        candidates = []
        for prefix, own in cards.items():
            size = size_of_candidate(Setting.from_dict(own.setting), card, card.n_outputs)
            candidates.append(Candidate.restore(own, size, select_prefix(prefix, tensors), encoders))
        model = cls(card, candidates[: len(card.candidates)], candidates[len(card.candidates) :])
        if card.online is not None:
            model.online_ensemble(CENTERED_CLASS_MEANS)  # raises if it is invalid
        return model

    def __getstate__(self) -> dict[str, Any]:
        """Leave out cached properties."""
        return {name: value for name, value in vars(self).items() if name not in ("ensemble", "session_ensemble")}

    def tensors(self) -> dict[str, Tensor]:
        """Return copies of all tensors by name, because a file cannot hold a shared tensor twice."""
        groups = {"candidates": self.candidates, "online": self.online_candidates}
        return {
            f"{group}.{k}.{name}": tensor.clone()
            for group, candidates in groups.items()
            for k, candidate in enumerate(candidates)
            for name, tensor in candidate.tensors().items()
        }

    def __repr__(self) -> str:
        card = self.card
        rate = "" if card.signal.sfreq is None else f" at {card.signal.sfreq:g} Hz"
        output = f"classes {', '.join(map(str, card.classes))}" if card.classes else "a number"
        windows = f"windows of {len(card.signal.channels)} channels × {card.n_times} samples{rate}"
        return printable(f"<Model of {card.name!r}: {windows} → {output}; {card.subjects} training subjects>")

    def check(
        self, X: object, channels: object = None, *, signal: Signal | None = None, subject: object = None,
        strict: bool = False,
    ) -> Tensor:  # fmt: skip
        """Return windows (N, channels, times) as a float32 tensor; refuse windows that do not fit the model.

        channels: names of the channels of X, by which the model's channels are found; by default X has the model's
        order. signal: what is known about X. subject: (N,), or None for one subject. strict: whether an unknown filter
        is an error. Warn if the windows differ from the training windows.
        """
        windows, lines = self.check_input(X, channels, signal, strict=strict)
        lines += compare_with_training(windows, self.card.signal.channels, self.card.scale, subject)
        for line in lines:
            warnings.warn(line, stacklevel=3)
        return windows

    def check_input(
        self, X: object, channels: object = None, signal: Signal | None = None, *, strict: bool = False
    ) -> tuple[Tensor, list[str]]:
        """Return windows (N, channels, times) as `check` does, and warnings about their signals."""
        if is_epochs(X):
            from ..recordings.epochs import raw_from_epochs

            raw = raw_from_epochs(X)
            X, signal = raw.X, Signal.from_raw(raw)
        elif channels is not None:
            signal = self.card.signal.with_channels(channels)
        return validate_windows(X, self.card, signal, strict=strict)

    def read(self, raw: Raw) -> Tensor:
        """Return windows (N, channels, times) of a file after a strict check; warn of the decisions of its reader."""
        for note in raw.notes:
            warnings.warn(note, stacklevel=3)
        signal = Signal.from_raw(replace(raw, X=as_window_array(raw.X)))
        return self.check(raw.X, signal=signal, subject=raw.subject, strict=True)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the model to a folder, from which `load_model` loads it; a model in the folder is replaced."""
        write_model(Path(folder), self.card, self.tensors())

    @cached_property
    def ensemble(self) -> Ensemble:
        """Return the ensemble of the candidates."""
        return Ensemble(self.candidates, self.card.weights, self.card.constant if self.card.task.is_numeric else None)

    def online_ensemble(self, method: str | None) -> OnlineEnsemble | None:
        """Return the online ensemble for an adaptation method.

        Return None if the method does not use it, if there is none, or if the model is calibrated for one subject.
        """
        if self.card.online is None or self.is_calibrated or method not in (CENTERING, CENTERED_CLASS_MEANS):
            return None
        candidates = [*self.candidates, *self.online_candidates]
        return OnlineEnsemble(candidates, self.card.online.weights, has_class_means=method == CENTERED_CLASS_MEANS)

    @cached_property
    def session_ensemble(self) -> OnlineEnsemble | None:
        """Return the ensemble of online sessions; None if sessions do not use an online ensemble."""
        return self.online_ensemble(self.card.session_method)

    @property
    def is_calibrated(self) -> bool:
        """Return whether the model is calibrated for one subject."""
        return any(candidate.correction is not None for candidate in self.candidates)

    @property
    def adaptation(self) -> str:
        """Return the strongest adaptation of the candidates: "transductive", "online" or "none"."""
        return self.ensemble.adaptation

    @property
    def classes_(self) -> NDArray[Any]:
        """Return the classes (classes,) in the order of the columns of `predict_proba`."""
        return as_array(self.card.classes)

    # ---- one subject -------------------------------------------------------------------------------------------------

    def calibrate(self, X: object, y: object) -> Self:
        """Return a model for one subject, calibrated with raw windows X (n, channels, times) and their classes y (n,).

        If this number of labels did not raise the scores of held-out subjects, the model is returned unchanged, with a
        warning.
        """
        self._check_predicts_classes()
        windows = self.check(X)
        return self.calibrate_checked(windows, encode_labels(self.card.classes, y, len(windows)))

    def calibrate_checked(self, X: Tensor, y: Tensor) -> Self:
        """Calibrate with checked windows (n, channels, times) and class indices (n,)."""
        check_effects(self.candidates)
        weight = torch.nn.functional.one_hot(y, len(self.card.classes)).double()
        counts = weight.sum(0)
        least = int(counts[counts > 0].min())
        if (reason := explain_unused_labels(self.card, least)) is not None:
            warnings.warn(f"{reason}; the model is not changed", stacklevel=3)
            return self
        share, sharpness = find_trust(self.card, least)

        def fit(effects: Effects, x: Tensor) -> tuple[Effects, Tensor, Tensor]:
            posterior = effects.posterior(effects.sum_windows(x, weight))
            return posterior, *effects.correction(posterior)

        # The sharpness of a second calibration is relative to this one.
        trust = {number: [share, sharp / sharpness] for number, (share, sharp) in self.card.trust.items()}
        weights = [sharpness * weight for weight in self.card.weights]
        model = self.correct(X, fit, share)
        model.card = replace(self.card, weights=weights, trust=trust, seen=add_calibration_digests(self.card.seen, X))
        return model

    def correct(self, X: Tensor, fit: FitCorrection, share: float = 1.0) -> Self:
        """Return the model with a correction that is fitted to one subject's windows; see `Ensemble.correct`."""
        return type(self)(self.card, self.ensemble.correct(X, fit, share), self.online_candidates)

    # ---- predictions -------------------------------------------------------------------------------------------------

    def predict_proba(
        self, X: object, subjects: object = None, *, adapt: str | None = None, channels: object = None
    ) -> Floats:
        """Return the probability of each class for each window.

        Parameters
        ----------
        X : array or tensor of shape (N, channels, times)
            Raw windows, in the order of recording.
        subjects : array of shape (N,), optional
            Subject of each window, which is used by models that adapt; by default all windows belong to one subject.
        adapt : "all", optional
            Adapt to all unlabeled windows of each subject. If this did not raise the scores of held-out subjects,
            nothing changes, with a warning.
        channels : list of str, optional
            Names of the channels of X; by default X has the model's channels in the model's order.

        Returns
        -------
        array of shape (N, classes)
            Probabilities; the columns are in the order of `classes_`.
        """
        self._check_predicts_classes()
        windows = self.check(X, channels, subject=subjects)
        return self.predict_checked(windows, encode_subjects(subjects, len(windows)), adapt)

    def predict_checked(self, X: Tensor, subject: Tensor | None = None, adapt: str | None = None) -> Floats:
        """Return probabilities (N, classes), or predicted numbers (N,), of checked windows; subject: indices (N,)."""
        if self.card.task.is_numeric:
            return self.ensemble.predict(X, subject).numpy()[:, 0]
        if adapt is None or not self._should_adapt_to_all(adapt):
            return softmax(self.ensemble.predict(X, subject).numpy())
        online = self.online_ensemble(self.card.transductive_method)
        subject = torch.zeros(len(X), dtype=torch.int64) if subject is None else subject
        probability = np.empty((len(X), len(self.card.classes)))
        for index in subject.unique():  # type: ignore[no-untyped-call]  # torch's
            rows = (subject == index).nonzero()[:, 0].numpy()  # NumPy takes a tensor of one element for a number
            probability[rows] = softmax(self._adapt_to_all(X[rows], online))
        return probability

    def predict(
        self,
        X: object,
        subjects: object = None,
        abstain: float | None = None,
        *,
        adapt: str | None = None,
        channels: object = None,
    ) -> NDArray[Any]:
        """Return the most probable class of each window (N,), or its predicted number for regression.

        abstain: share of a subject's windows to leave unanswered, such as 0.2. Windows with the lowest confidence get
        the value `unanswered_`. The other parameters are those of `predict_proba`.
        """
        if self.card.task.is_numeric and abstain is None and adapt is None:
            windows = self.check(X, channels, subject=subjects)
            return self.predict_checked(windows, encode_subjects(subjects, len(windows)))
        self._check_predicts_classes()
        threshold = least_confidence(self.card.thresholds, abstain)
        predicted: NDArray[Any] = decide_classes(
            self.predict_proba(X, subjects, adapt=adapt, channels=channels), self.classes_, threshold
        )
        return predicted

    def predict_set(
        self, X: object, coverage: float = 0.9, subjects: object = None, *, coverage_guarantee: bool = False
    ) -> NDArray[np.bool_]:
        """Return whether each class is in the prediction set of each window: booleans (N, classes).

        A set contains the true class of a new subject's window with a probability of about `coverage`, in the mean over
        subjects. With `coverage_guarantee`, the probability is at least `coverage` for any distribution of subjects,
        and sets are larger. A set always contains the most probable class.
        """
        self._check_predicts_classes()
        threshold = least_probability(self.card.thresholds, coverage, is_guaranteed=coverage_guarantee)
        return make_sets(self.predict_proba(X, subjects), threshold)

    def predict_interval(self, X: object, coverage: float = 0.9, subjects: object = None) -> Floats:
        """Return the ends (N, 2) of a prediction interval for each window, for regression.

        An interval contains the target of a new subject's window with a probability of about `coverage`, in the mean
        over subjects.
        """
        if not self.card.task.is_numeric:
            raise UserError("the model is a classification model without intervals; use predict_set")
        radius = interval_radius(self.card.intervals, coverage)
        return make_intervals(self.predict(X, subjects), radius)

    def _check_predicts_classes(self) -> None:
        if self.card.task.is_numeric:
            raise UserError("the model is a regression model; use predict or predict_interval")

    @property
    def unanswered_(self) -> Any:
        """Return the value with which `predict` marks unanswered windows."""
        return unanswered_value(self.card.classes)

    def score(self, X: object, y: object, subjects: object = None) -> float:
        """Return the balanced accuracy for classes y (N,), or R² for the targets of regression.

        Balanced accuracy is the mean over classes of the share of correct predictions, so that chance is 1/C. The
        `score` of scikit-learn's classifiers is the accuracy, `np.mean(model.predict(X) == y)`.
        """
        task = self.card.task
        if task.is_numeric:
            predicted = self.predict(X, subjects)
            return task.metric(task.default_metric).score(parse_targets(y, len(predicted)), predicted)
        labels, probability = encode_with_unknown_classes(self.card.classes, y, self.predict_proba(X, subjects))
        return task.metric(task.default_metric).measure(labels, probability, None)

    def features(self, X: object, subjects: object = None) -> Tensor:
        """Return the latent features of all members (N, members · D); X and subjects as in `predict_proba`."""
        windows = self.check(X)
        latents = self.ensemble.latents(windows, encode_subjects(subjects, len(windows)))
        return torch.cat([z.transpose(0, 1).flatten(1) for z in latents], 1)

    def graph(self) -> Graph:
        """Return the model as a module for export (see `Graph`); raise if preprocessing is online and has a state."""
        check_candidates(self.candidates, lambda candidate: candidate.preprocessing.graph())
        return Graph(self.ensemble).eval()

    push_to_hub = push_to_hub

    @torch.inference_mode()
    def _adapt_to_all(self, X: Tensor, online: OnlineEnsemble | None) -> Floats:
        """Return log-probabilities (n, classes) of all windows of a subject, adapted to them.

        online: online ensemble of the transductive method; None: class means of the delivered ensemble
        """
        ensemble = self.ensemble
        latents, log_p = ensemble.predict_with_latents(X, ensemble.start_subject())
        if online is not None:
            return online.predict_all(X, softmax(log_p.numpy()))
        return Adaptation(*ensemble.effects_and_weights).adapt_to_all(ensemble.project(latents), log_p).numpy()

    def _should_adapt_to_all(self, adapt: str) -> bool:
        """Return whether predictions use all windows of a subject; warn if this did not raise held-out scores."""
        check_choice("adapt", adapt, (None, ALL))
        method = self.card.transductive_method
        if method in (None, UNTRIED) or self.is_calibrated or self.adaptation != "none":
            raise UserError(
                "the model cannot use --adapt all (adapt='all'), because it is calibrated, its transforms adapt, or "
                "its run had no time to evaluate adaptation; leave the option out, or run longer with --time"
            )
        if method == NO_ADAPTATION:
            warnings.warn(
                "--adapt all (adapt='all') did not raise the scores of held-out subjects; the model is not changed",
                stacklevel=4,
            )
        return method != NO_ADAPTATION
