"""A model that is delivered: a weighted ensemble of candidates."""

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
from ..preprocessing import strongest_adaptation
from ..preprocessing.transform import with_prefix
from ..recordings.concerns import compare_with_training
from ..recordings.container import check_sfreq
from ..recordings.raw import Raw
from ..recordings.targets import parse_targets
from ..recordings.windows import UNNAMED, channel_names, encode_subjects, validate_windows
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
from .calibration import check_effects, known_and_unknown, labels_of, lost_with, trust_in
from .candidate import Candidate, size_of_candidate
from .card import UNTRIED, ModelCard, as_array
from .ensemble import Ensemble, Floats, Learn, refuse_candidates
from .graph import Graph
from .hub import push_to_hub
from .online import ALL, OnlineEnsemble, softmax
from .saving import write_model
from .seen import calibration_seen


class Model:
    """Weighted ensemble of candidates, log p(class | window) = Σ weight · log p of each candidate, normalized.

    It takes raw windows; every candidate has its own preprocessing. A single network or linear model is an ensemble of
    one candidate. For regression the prediction is constant + Σ weight · (prediction of a candidate − constant), with
    the mean of the training targets as the constant.

    parts: the candidates (K,), with the weights in the card: weights divided by the temperature
    online_parts: further candidates (E,) of the online ensemble
    """

    def __init__(self, card: ModelCard, parts: Sequence[Candidate], online_parts: Sequence[Candidate] = ()) -> None:
        self.card, self.parts, self.online_parts = card, list(parts), list(online_parts)

    @classmethod
    def restore(cls, card: ModelCard, tensors: dict[str, Tensor], encoders: Encoders | None = None) -> Self:
        """Make the model from what `tensors()` gave."""
        cards = card.part_cards()
        for name in tensors:
            if not name.startswith(tuple(cards)):
                raise ValueError(f"the tensor {shown(name)} belongs to none of its {len(card.parts)} candidates")
        candidates = []
        for prefix, part in cards.items():
            size = size_of_candidate(Setting.from_dict(part.setting), card, card.n_outputs)
            candidates.append(Candidate.restore(part, size, with_prefix(prefix, tensors), encoders))
        model = cls(card, candidates[: len(card.parts)], candidates[len(card.parts) :])
        if card.online is not None:
            model.online_ensemble(card.online.rule)  # whatever is wrong with it raises now
        return model

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is arranged again when it is first used."""
        return {name: value for name, value in vars(self).items() if name not in ("ensemble", "online")}

    def tensors(self) -> dict[str, Tensor]:
        """Return copies: candidates may share statistics, and a file cannot hold a tensor twice."""
        groups = {"parts": self.parts, "online": self.online_parts}
        return {
            f"{word}.{k}.{name}": tensor.clone()
            for word, parts in groups.items()
            for k, part in enumerate(parts)
            for name, tensor in part.tensors().items()
        }

    def __repr__(self) -> str:
        """Say in a line what the model was made for."""
        card = self.card
        rate = "" if card.sfreq is None else f" at {card.sfreq:g} Hz"
        answer = f"classes {', '.join(map(str, card.classes))}" if card.classes else "a number"
        windows = f"windows of {len(card.channels)} channels × {card.n_times} samples{rate}"
        return f"<Model of {card.name!r}: {windows} → {answer}; {card.subjects} training people>"

    def check(self, X: object, channels: object = None, sfreq: float | None = None) -> Tensor:
        """Return windows (N, channels, times) as float32; refuse those that do not fit the model.

        channels: names of the data's channels, which are then found by name
        """
        return validate_windows(X, self.card, channels, sfreq)

    def read(self, raw: Raw) -> Tensor:
        """Return the windows (N, channels, times) of a reader that the model takes, with a warning for what the data do
        not say, and for what looks unlike training."""
        X = self.check(raw.X, raw.channels, check_sfreq(raw.sfreq))
        named = not all(UNNAMED.fullmatch(name) for name in self.card.channels)
        if named and all(UNNAMED.fullmatch(name) for name in channel_names(raw.channels, X.shape[1])):
            names = shown(", ".join(self.card.channels), 100)
            warnings.warn(
                f"the data do not name their channels, which are taken to be {names}, in this order", stacklevel=2
            )
        if raw.sfreq is None and self.card.sfreq is not None:
            warnings.warn(
                f"the data do not say their sampling rate; the model expects {self.card.sfreq:g} Hz", stacklevel=2
            )
        return self.warn_of(X, raw.subject)

    def warn_of(self, X: Tensor, subject: object = None) -> Tensor:
        """Return checked windows (N, channels, times) as they are, with a warning where they look unlike those of
        training. subject (N,): whose each is, None: one person's."""
        for line in compare_with_training(X, self.card.channels, self.card.scale, subject):
            warnings.warn(line, stacklevel=3)
        return X

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model to a folder, which `load_model` reads; a model that is there is replaced."""
        write_model(Path(folder), self.card, self.tensors())

    @cached_property
    def ensemble(self) -> Ensemble:
        """Return the candidates arranged for prediction."""
        return Ensemble(self.parts, self.card.weights, self.card.constant if self.card.task.is_numeric else None)

    @cached_property
    def online(self) -> OnlineEnsemble | None:
        """Return the online ensemble; None if there is none, or if the model is one person's already."""
        if self.card.online is None or self.is_calibrated:
            return None
        return self.online_ensemble(self.card.online.rule)

    def online_ensemble(self, rule: Any) -> OnlineEnsemble:
        """Return the online ensemble with another rule, or with several."""
        assert self.card.online is not None, "asked for if there is one"
        return OnlineEnsemble([*self.parts, *self.online_parts], self.card.online.weights, rule)

    @property
    def is_calibrated(self) -> bool:
        """Tell whether the model is corrected for one person."""
        return any(part.correction is not None for part in self.parts)

    @property
    def adaptation(self) -> str:
        """Return the adaptation of the candidate that uses most of a new person's windows."""
        return strongest_adaptation(part.setting.adaptation for part in self.parts)

    @property
    def classes_(self) -> NDArray[Any]:
        """Return the classes in the order of the columns of `predict_proba`, (classes,)."""
        return as_array(self.card.classes)

    # ---- one person --------------------------------------------------------------------------------------------------

    def calibrate(self, X: object, y: object) -> Self:
        """Return the model for one person, from a few labeled windows X (n, channels, times) of classes y (n,).

        If this number of labels did not raise the scores of held-out subjects, the model is returned unchanged, with a
        warning.
        """
        self._check_predicts_classes()
        windows = self.check(X)
        return self.calibrate_checked(windows, labels_of(self.card.classes, y, len(windows)))

    def calibrate_checked(self, X: Tensor, y: Tensor) -> Self:
        """Do what `calibrate` does, for windows that `check` gave, and indices of classes (n,)."""
        check_effects(self.parts)
        weight = torch.nn.functional.one_hot(y, len(self.card.classes)).double()
        counts = weight.sum(0)
        least = int(counts[counts > 0].min())
        if (reason := lost_with(self.card, least)) is not None:
            warnings.warn(f"{reason}: the model stays as it is", stacklevel=3)
            return self
        share, sharpness = trust_in(self.card, least)

        def learn(effects: Effects, x: Tensor) -> tuple[Effects, Tensor, Tensor]:
            posterior = effects.posterior(effects.sum_windows(x, weight))
            return posterior, *effects.correction(posterior)

        # Sharpness with further labels is relative to the model, and divided by it.
        trust = {number: [share, sharp / sharpness] for number, (share, sharp) in self.card.trust.items()}
        weights = [sharpness * weight for weight in self.card.weights]
        own = self.corrected(X, learn, share)
        own.card = replace(self.card, weights=weights, trust=trust, seen=calibration_seen(self.card.seen, X))
        return own

    def corrected(self, X: Tensor, learn: Learn, share: float = 1.0) -> Self:
        """Return the model with what `learn` learns from one person's windows; see `Ensemble.corrected`."""
        return type(self)(self.card, self.ensemble.corrected(X, learn, share), self.online_parts)

    # ---- predictions -------------------------------------------------------------------------------------------------

    def predict_proba(
        self, X: object, subjects: object = None, *, adapt: str | None = None, channels: object = None
    ) -> Floats:
        """Map raw windows (N, channels, times), an array or a tensor, to probabilities (N, classes).

        subjects (N,): the subject of each window, in the order of recording, if a candidate adapts to people; by
            default all windows are one person's
        adapt: "all" adapts the online ensemble to all unlabeled windows of each person. If this did not raise the
            scores of held-out people, nothing changes, with a warning
        channels: names of the channels of X; by default those of the model, in its order
        """
        self._check_predicts_classes()
        windows = self.check(X, channels)
        return self.predict_checked(windows, encode_subjects(subjects, len(windows)), adapt)

    def predict_checked(self, X: Tensor, subject: Tensor | None = None, adapt: str | None = None) -> Floats:
        """Return probabilities (N, classes), or numbers (N,), of windows that `check` gave; people are numbers (N,)."""
        if self.card.task.is_numeric:
            return self.ensemble.predict(X, subject).numpy()[:, 0]
        online = None if adapt is None else self._online_for_all_windows(adapt)
        probability = softmax(self.ensemble.predict(X, subject).numpy())
        if online is None:
            return probability
        people = torch.zeros(len(X), dtype=torch.int64) if subject is None else subject
        for person in people.unique():  # type: ignore[no-untyped-call]  # torch's
            rows = (people == person).nonzero()[:, 0]
            probability[rows] = softmax(online.all_at_once(online.zero_shot(X[rows]), probability[rows]))
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
        """Return the likeliest class of each window (N,), one of `classes_`, or its number; X, subjects, adapt and
        channels as in `predict_proba`.

        abstain: share of a person's windows, those with the lowest confidence, for which `unanswered_` is returned
        """
        if self.card.task.is_numeric and abstain is None and adapt is None:
            windows = self.check(X, channels)
            return self.predict_checked(windows, encode_subjects(subjects, len(windows)))
        self._check_predicts_classes()
        least = least_confidence(self.card.thresholds, abstain)
        predicted: NDArray[Any] = decide_classes(
            self.predict_proba(X, subjects, adapt=adapt, channels=channels), self.classes_, least
        )
        return predicted

    def predict_set(self, X: object, coverage: float = 0.9, subjects: object = None) -> NDArray[np.bool_]:
        """Tell whether each class is in the prediction set of each window (N, classes); X and subjects as of
        `predict_proba`. The true class of a new person's window is in its set with about the probability `coverage`
        (docs/decisions.md)."""
        self._check_predicts_classes()
        least = least_probability(self.card.thresholds, coverage)
        return make_sets(self.predict_proba(X, subjects), least)

    def predict_interval(self, X: object, coverage: float = 0.9, subjects: object = None) -> Floats:
        """Return low and high end (N, 2) of an interval about the number of each window; X and subjects as of
        `predict_proba`. It holds the number of a new person's window with about the probability `coverage`, in the mean
        over people like those held out."""
        if not self.card.task.is_numeric:
            raise UserError("the model predicts classes, and no number; use predict_set")
        radius = interval_radius(self.card.intervals, coverage)  # refused before any work
        return make_intervals(self.predict(X, subjects), radius)

    def _check_predicts_classes(self) -> None:
        if self.card.task.is_numeric:
            raise UserError("the model predicts a number, and no classes; use predict or predict_interval")

    @property
    def unanswered_(self) -> Any:
        """Return the value of `predict` for unanswered windows."""
        return unanswered_value(self.card.classes)

    def score(self, X: object, y: object, subjects: object = None) -> float:
        """Return the balanced accuracy for windows X (N, channels, times) of classes y (N,): the mean over
        classes of the share of correct predictions. If y holds numbers, return R².

        `score` of scikit-learn's classifiers is the accuracy, `np.mean(model.predict(X) == y)`. subjects: as in
        `predict_proba`.
        """
        task = self.card.task
        if task.is_numeric:
            predicted = self.predict(X, subjects)
            return task.metric(task.default_metric).score(parse_targets(y, len(predicted)), predicted)
        places, probability = known_and_unknown(self.card.classes, y, self.predict_proba(X, subjects))
        return task.metric(task.default_metric).measure(places, probability, None)

    def features(self, X: object, subjects: object = None) -> Tensor:
        """Return the latent features of all members of all candidates (N, n_features), as `predict_proba` does."""
        windows = self.check(X)
        latents = self.ensemble.latents(windows, encode_subjects(subjects, len(windows)))
        return torch.cat([z.transpose(0, 1).flatten(1) for z in latents], 1)

    @property
    def n_features(self) -> int:
        return sum(len(part.members) * part.members.latent_dim for part in self.parts)

    def graph(self) -> Graph:
        """Make a module of plain operations (see `Graph`); what it cannot hold is refused."""
        refuse_candidates(self.parts, lambda part: part.preprocessing.graph())
        return Graph(self.ensemble).eval()

    def push_to_hub(self, repository: str, **options: Any) -> str:
        """Upload the model to Hugging Face's hub, USER/NAME, with a page with its score on held-out people; return the
        address. options: private and token, as in `models.hub.push_to_hub`."""
        return push_to_hub(self, repository, **options)

    def _online_for_all_windows(self, adapt: str) -> OnlineEnsemble | None:
        """Return the online ensemble for all windows; None, with a warning, if held-out people gained nothing."""
        check_choice("adapt", adapt, (None, ALL))
        card = self.card
        untried = card.online is None and (card.follows in (None, UNTRIED) or self.adaptation != "none")
        if untried or self.is_calibrated:
            raise UserError(
                "the model has no online ensemble that could use all windows of a person (it is one person's already, "
                "adapts by itself, or no run had the time to try it); leave --adapt all (adapt='all') out, or use the "
                "model of a run with the usual --adaptation and a longer --time"
            )
        if card.online is not None and card.online.all_windows:
            return self.online
        warnings.warn(
            "held-out people did not gain by --adapt all (adapt='all'): the model stays as it is", stacklevel=4
        )
        return None
