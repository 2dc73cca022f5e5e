"""A delivered model of several kinds: ensembles with settings of their own, averaged in log-probability."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError, check_choice, check_types, shown
from ..model.encoders import Encoders
from ..preprocessing import strongest
from ..recordings.windows import people_of_windows, windows_for_model
from ..settings import Setting
from .online import ALL, Online, OnlineCard, check_exponents, online_card
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
    online: OnlineCard | None = None  # the average that uses a person's windows; None: there is none

    def __post_init__(self) -> None:
        check_types(self)
        check_trust(self.trust)
        if self.kind != KIND:
            raise UserError(f"the kind of a mixture is {shown(self.kind)}, it must be {KIND!r}")
        if not self.parts or not all(isinstance(part, ModelCard) for part in self.parts):
            raise UserError("a mixture needs at least one part, each with a card of its own")
        if len(self.exponents) != len(self.parts):
            raise UserError(f"the mixture has {len(self.exponents)} exponents for {len(self.parts)} parts")
        check_exponents(self.exponents)
        object.__setattr__(self, "exponents", [float(value) for value in self.exponents])
        extra = [] if self.online is None else self.online.parts
        if self.online is not None and len(self.online.exponents) != len(self.parts) + len(extra):
            raise UserError("the online average of the mixture has another number of exponents than of parts")
        for number, part in enumerate([*self.parts, *extra], 1):
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
    online = online_card(values.get("online"))
    return MixtureCard(**values | {"parts": [ModelCard(**part) for part in parts], "online": online})


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
        self.online: Online | None = None

    def with_online(self, card: OnlineCard, parts: Sequence[SavedModel]) -> Self:
        """The same with an average that uses a person's windows; parts: its own."""
        self.online = Online(card, self.parts, parts)
        self.card = replace(self.card, online=card)
        return self

    @classmethod
    def restore(cls, card: MixtureCard, tensors: dict[str, Tensor], encoders: Encoders | None = None) -> Self:
        """From what `tensors()` gave."""
        cards = {"parts": card.parts, "online": [] if card.online is None else card.online.parts}
        places: dict[tuple[str, str], dict[str, Tensor]] = {
            (word, f"{number}"): {} for word, own in cards.items() for number in range(len(own))
        }
        for name, tensor in tensors.items():
            word, _, rest = name.partition(".")
            number, _, rest = rest.partition(".")
            if (word, number) not in places:
                raise ValueError(f"the tensor {shown(name)} belongs to none of its {len(card.parts)} parts")
            places[word, number][rest] = tensor
        parts, own = (
            [SavedModel(one, places[word, f"{number}"], encoders) for number, one in enumerate(cards[word])]
            for word in cards
        )
        mixture = cls(parts, card.exponents, card.scores)
        if card.online is not None:
            mixture.with_online(card.online, own)
        mixture.card = card
        return mixture

    def tensors(self) -> dict[str, Tensor]:
        """What `save_model` writes. Copies: parts may share statistics, and a file cannot hold a tensor twice."""
        every = {"parts": self.parts, "online": [] if self.online is None else self.online.parts}
        return {
            f"{word}.{k}.{name}": tensor.clone()
            for word, parts in every.items()
            for k, part in enumerate(parts)
            for name, tensor in part.tensors().items()
        }

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

    def predict(self, X: object, subject: object = None, *, adapt: str | None = None) -> NDArray[Any]:
        """The likeliest class of each window (N,), one of `classes_`; the rest as of `predict_proba`."""
        predicted: NDArray[Any] = self.classes_[self.predict_proba(X, subject, adapt=adapt).argmax(1)]
        return predicted

    def predict_proba(self, X: object, subject: object = None, *, adapt: str | None = None) -> NDArray[np.float64]:
        """Raw windows (N, channels, times) of subjects (N,) -> (N, classes), as of `SavedModel.predict_proba`.

        adapt: "all" prepares each person by all of their windows, without labels and in no order, where held-out
        people gained by that; where they did not, the probabilities are the usual ones, with a warning
        """
        windows = self.check(X)
        return self.predict_checked(windows, people_of_windows(subject, len(windows)), adapt)

    def predict_checked(
        self, X: Tensor, subject: Tensor | None = None, adapt: str | None = None
    ) -> NDArray[np.float64]:
        """The same for windows that `check` gave, and people as numbers (N,)."""
        online = None if adapt is None else self._for_all_windows(adapt)
        found = combine([part.predict_checked(X, subject) for part in self.parts], self.exponents)
        if online is None:
            return found
        people = torch.zeros(len(X), dtype=torch.int64) if subject is None else subject
        for person in people.unique():  # type: ignore[no-untyped-call]  # torch's
            rows = (people == person).nonzero()[:, 0]
            found[rows] = normalised(online.all_windows(X[rows], found[rows]))
        return found

    def _for_all_windows(self, adapt: str) -> Online | None:
        """What uses all windows of a person; None, with a warning, where held-out people did not gain by it."""
        check_choice("adapt", adapt, (None, ALL))
        if self.online is None:
            raise UserError(
                "the model has no average that could use all windows of a person (it was made by an earlier version, "
                "or adapts already); leave adapt='all' out, or make it again with the usual --preprocessing"
            )
        if any(part.correction is not None for part in self.parts):
            raise UserError("the model is one person's already; leave adapt='all' out, or use the model of the run")
        if self.online.card.all_windows:
            return self.online
        warnings.warn("held-out people did not gain by adapt='all': the model stays as it is", stacklevel=4)
        return None

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
    return normalised(total)


def normalised(log_p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log-probabilities (N, classes), up to a number for each row -> probabilities."""
    power: NDArray[np.float64] = np.exp(log_p - log_p.max(1, keepdims=True))
    found: NDArray[np.float64] = power / power.sum(1, keepdims=True)
    return found


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
