"""A delivered model of several kinds: ensembles with settings of their own, averaged in log-probability."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError, check_types, shown
from ..model.encoders import Encoders
from ..preprocessing import strongest
from ..recordings.windows import people_of_windows, windows_for_model
from ..settings import Setting
from ..training.conformal import (
    Thresholds,
    decisions,
    least_confidence,
    least_probability,
    sets_at,
    thresholds_from,
    unanswered_value,
)
from .saved_model import TINY, ModelCard, SavedModel

KIND = "mixture"
SHARED = ("channels", "classes", "n_times", "sfreq")  # what parts must agree in
MOST = 1e6  # an exponent; with the smallest logarithm it is still a number


@dataclass(frozen=True)
class MixtureCard:
    """What a mixture was made for, with the cards of its parts."""

    name: str  # of the data set
    kind: str  # mixture
    members: int  # of all parts together
    n_times: int
    channels: list[str]
    sfreq: float | None
    classes: list[Any]
    subjects: int  # whom it was trained on
    scores: dict[str, Any]
    exponents: list[float]  # (K,)
    parts: list[ModelCard]  # (K,)
    # How a person is followed without labels, "none" where held-out people did not gain; None: nobody has looked.
    follows: str | None = None
    calibrates: list[int] | None = None  # labelled windows of each class that they gained by
    # By such numbers: the share of a correction that counts, and what the exponents are multiplied by beside it.
    trust: dict[str, Any] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)  # digests of what it was made from (see seen.py)
    thresholds: Thresholds | None = None  # for sets and abstention; None: too few people were held out

    def __post_init__(self) -> None:
        check_types(self)
        object.__setattr__(self, "thresholds", thresholds_from(self.thresholds))
        check_trust(self.trust)
        if self.kind != KIND:
            raise UserError(f"the kind of a mixture is {shown(self.kind)}, it must be {KIND!r}")
        if not self.parts or not all(isinstance(part, ModelCard) for part in self.parts):
            raise UserError("a mixture needs at least one part, each with a card of its own")
        if len(self.exponents) != len(self.parts):
            raise UserError(f"the mixture has {len(self.exponents)} exponents for {len(self.parts)} parts")
        for value in self.exponents:
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MOST:
                raise UserError(f"an exponent of the mixture is {shown(value)}; it must be from 0 to {MOST:g}")
        object.__setattr__(self, "exponents", [float(value) for value in self.exponents])
        for number, part in enumerate(self.parts, 1):
            for name in SHARED:
                own, common = getattr(part, name), getattr(self, name)
                if own != common:
                    raise UserError(f"{name} of part {number} is {shown(own)}, the mixture has {shown(common)}")
        members = sum(part.members for part in self.parts)
        if self.members != members:
            raise UserError(f"members of the mixture is {self.members}, its parts have {members}")

    @classmethod
    def of(cls, parts: Sequence[ModelCard], exponents: Sequence[float] | Tensor, scores: dict[str, Any]) -> Self:
        """What parts have in common is taken from the first."""
        if not parts:
            raise UserError("a mixture needs at least one part, each with a card of its own")
        first = parts[0]
        return cls(
            name=first.name, kind=KIND, members=sum(part.members for part in parts), n_times=first.n_times,
            channels=first.channels, sfreq=first.sfreq, classes=first.classes, subjects=first.subjects, scores=scores,
            exponents=[float(value) for value in exponents], parts=list(parts),
        )  # fmt: skip


def check_trust(trust: dict[str, Any]) -> None:
    """Raise unless it is a share and a sharpness for each number of labels."""
    for labels, pair in trust.items():
        known = isinstance(pair, list) and len(pair) == 2 and all(type(value) in (int, float) for value in pair)
        if not known or not (0 <= pair[0] <= MOST and 0 < pair[1] <= MOST):
            raise UserError(f"trust in {shown(labels)} labels is {shown(pair)}; it must be a share and a sharpness")


def card_from(values: Any) -> ModelCard | MixtureCard:
    """The card of either kind of model from what JSON held; whatever is wrong raises."""
    if not isinstance(values, dict) or values.get("kind") != KIND:
        return ModelCard(**values)
    parts = values.get("parts")
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise UserError(f"parts of the mixture is {shown(parts)}; it must be a list of cards")
    return MixtureCard(**values | {"parts": [ModelCard(**part) for part in parts]})


class Mixture:
    """log p(class | window) = Σ exponent · log p of each part, normalised. Takes raw windows; every part prepares them
    in its own way.

    parts: ensembles (K,), which agree in channels, classes, rate and length of windows
    exponents: (K,), at least 0: weights times the sharpness of a calibration, so they need not sum to 1
    """

    def __init__(
        self, parts: Sequence[SavedModel], exponents: Sequence[float] | Tensor, scores: dict[str, Any] | None = None
    ) -> None:
        self.parts = list(parts)
        self.card = MixtureCard.of([part.card for part in self.parts], exponents, scores or {})
        self.exponents = self.card.exponents

    @classmethod
    def restore(cls, card: MixtureCard, tensors: dict[str, Tensor], encoders: Encoders | None = None) -> Self:
        """From what `tensors()` gave."""
        own: list[dict[str, Tensor]] = [{} for _ in card.parts]
        places = {f"{number}": found for number, found in enumerate(own)}
        for name, tensor in tensors.items():
            word, _, rest = name.partition(".")
            number, _, rest = rest.partition(".")
            if word != "parts" or number not in places:
                raise ValueError(f"the tensor {shown(name)} belongs to none of its {len(own)} parts")
            places[number][rest] = tensor
        parts = [SavedModel(one, found, encoders) for one, found in zip(card.parts, own, strict=True)]
        mixture = cls(parts, card.exponents, card.scores)
        mixture.card = card
        return mixture

    def tensors(self) -> dict[str, Tensor]:
        """What `save_model` writes. Copies: parts may share statistics, and a file cannot hold a tensor twice."""
        own = [part.tensors() for part in self.parts]
        return {f"parts.{k}.{name}": tensor.clone() for k, found in enumerate(own) for name, tensor in found.items()}

    @property
    def heaviest(self) -> SavedModel:
        """The part with the largest exponent; the first of equals."""
        return self.parts[int(np.argmax(self.exponents))]

    @property
    def adaptation(self) -> str:
        """As of a setting: that of the part that uses most of a new person's windows."""
        return strongest(part.adaptation for part in self.parts)

    def check(self, X: object, channels: object = None, sfreq: float | None = None) -> Tensor:
        """As `SavedModel.check`."""
        return windows_for_model(X, self.card, channels, sfreq)

    @property
    def classes_(self) -> NDArray[Any]:
        """(classes,): what the columns of `predict_proba` stand for."""
        return self.parts[0].classes_

    def predict(self, X: object, subject: object = None, abstain: float | None = None) -> NDArray[Any]:
        """The likeliest class of each window (N,), one of `classes_`; X and subject as of `predict_proba`.

        abstain: the share of a person's windows to leave unanswered, those that the model is least sure of;
        `unanswered_` stands in their place.
        """
        least = least_confidence(self.card.thresholds, abstain)
        predicted: NDArray[Any] = decisions(self.predict_proba(X, subject), self.classes_, least)
        return predicted

    def predict_set(self, X: object, coverage: float = 0.9, subject: object = None) -> NDArray[np.bool_]:
        """Whether each class is in the prediction set of each window (N, classes); X and subject as of
        `predict_proba`. The true class of a new person's window is in its set with about the probability
        `coverage`."""
        least = least_probability(self.card.thresholds, coverage)
        return sets_at(self.predict_proba(X, subject), least)

    @property
    def unanswered_(self) -> Any:
        """What `predict` gives in place of a class that it does not answer with."""
        return unanswered_value(self.card.classes)

    def predict_proba(self, X: object, subject: object = None) -> NDArray[np.float64]:
        """Raw windows (N, channels, times) of subjects (N,) -> (N, classes), as of `SavedModel.predict_proba`."""
        windows = self.check(X)
        return self.predict_checked(windows, people_of_windows(subject, len(windows)))

    def predict_checked(self, X: Tensor, subject: Tensor | None = None) -> NDArray[np.float64]:
        """The same for windows that `check` gave, and people as numbers (N,)."""
        return combine([part.predict_checked(X, subject) for part in self.parts], self.exponents)

    def latents(self, X: Tensor, subject: Tensor | None = None) -> list[Tensor]:
        """Windows that `check` gave -> the codes of each part (members, N, D), whose D differ."""
        return [part.latents(X, subject) for part in self.parts]

    def features(self, X: object, subject: object = None) -> Tensor:
        """X and subject as of `predict_proba` -> the codes of all members of all parts side by side (N, n_features):
        all that a prediction depends on."""
        return torch.cat([part.features(X, subject) for part in self.parts], 1)

    @property
    def n_features(self) -> int:
        return sum(part.n_features for part in self.parts)


Model = SavedModel | Mixture


def combine(probabilities: Sequence[NDArray[np.float64]], exponents: Sequence[float]) -> NDArray[np.float64]:
    """K times (N, classes) -> (N, classes): the product of powers, normalised."""
    total = np.zeros(probabilities[0].shape)
    for probability, exponent in zip(probabilities, exponents, strict=True):
        total += exponent * np.log(np.maximum(probability, TINY))
    power: NDArray[np.float64] = np.exp(total - total.max(1, keepdims=True))
    normalised: NDArray[np.float64] = power / power.sum(1, keepdims=True)
    return normalised


def refuse_parts(model: Model, check: Callable[[SavedModel], object]) -> None:
    """Raise where the check refuses the model; of a mixture, each reason once, with the parts that it is about."""
    if isinstance(model, SavedModel):
        check(model)
        return
    refused: dict[str, list[SavedModel]] = {}
    remedies: dict[str, None] = {}
    for part in model.parts:
        try:
            check(part)
        except UserError as error:
            reason, _, remedy = str(error).partition("; ")
            refused.setdefault(reason, []).append(part)
            remedies |= {remedy: None} if remedy else {}
    if refused:
        told = [f"{reason}: {_named(parts)}" for reason, parts in refused.items()]
        raise UserError("; ".join([*told, *remedies]))


def _named(parts: Sequence[SavedModel]) -> str:
    """A few parts by their whole names, many by their kinds."""
    if len(parts) <= 3:
        return ", ".join(repr(name_of(part.setting)) for part in parts)
    counts = Counter(part.setting.kind for part in parts)
    return f"{len(parts)} parts (" + ", ".join(f"{kind} {n}" for kind, n in counts.items()) + ")"


def name_of(setting: Setting) -> str:
    """What tells a part from others: its encoder, penalty, preprocessing and augmentation."""
    plain = Setting(encoder=setting.encoder, network=setting.network, training=setting.training)
    return f"{setting.encoder} {setting.name_beside(plain)}"
