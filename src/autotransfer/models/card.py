"""The card of a saved model: what it was made for, from what, and how good it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .. import schema
from ..errors import UserError, check_positive, shown
from ..recordings.filters import filter_of
from ..settings import Setting
from ..training.centring import CentringRule
from ..training.conformal import FEWEST, LEVELS, Thresholds

DIGEST = "digest"  # the field beside those of a card as a file holds it (see binding.py)
KIND, REGRESSION = "mixture", "regression"
UNTRIED = "untried"  # `follows` of a run that had no time to try adaptation and labels on held-out people
SHARED = ("channels", "classes", "n_times", "sfreq")  # what parts must agree in
MOST = 1e6  # an exponent; with the smallest logarithm it is still a number


@dataclass(frozen=True, kw_only=True)
class CommonCard:
    """Fields of the cards of all kinds of model."""

    name: str  # of the data set
    kind: str  # ensemble, single, mixture or regression
    n_times: int
    channels: list[str]
    sfreq: float | None
    subjects: int  # whom it was trained on
    scores: dict[str, Any]
    filter: dict[str, Any] | None = None  # how its recordings were filtered, where that is known
    scale: float | None = None  # how much their windows vary, in their unit (see recordings.concerns)
    seen: dict[str, Any] = field(default_factory=dict)  # digests of what it was made from (see seen.py)
    made_with: dict[str, Any] = field(default_factory=dict)  # versions, and whether kernels were compiled

    def __post_init__(self) -> None:
        check_positive(self, "sfreq", "n_times", "scale")
        filter_of(self.filter, self.sfreq)
        if not self.channels:
            raise UserError("the model has no channels; make it again with resume")


@dataclass(frozen=True, kw_only=True)
class ClassifierCard(CommonCard):
    """Fields of the cards of both kinds of classifier."""

    members: int  # of all parts together
    classes: list[Any]
    # How a person is followed without labels: "none" where held-out people did not gain, "untried" by a run that had no
    # time for that; None: not measured.
    follows: str | None = None
    calibrates: list[int] | None = None  # labelled windows of each class that they gained by
    thresholds: Thresholds | None = None  # for sets and abstention; None: too few people were held out

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, size in {"members": self.members, "classes": len(self.classes)}.items():
            if size < 1:
                raise UserError(f"{name} of a model is {size}, it must be at least 1; restore the model from a copy")


@dataclass(frozen=True, kw_only=True)
class ModelCard(ClassifierCard):
    """Card of an ensemble."""

    setting: dict[str, Any]


@dataclass(frozen=True)
class OnlineCard:
    """The average that uses a person's windows, in the card of its mixture."""

    exponents: list[float]  # (K + E,): of the mixture's parts, then of its own
    parts: list[ModelCard]  # (E,)
    rule: CentringRule
    session: bool  # whether held-out people gained by it window after window, in every order
    all_windows: bool  # whether they did with all windows at once

    def __post_init__(self) -> None:
        check_exponents(self.exponents)


def check_exponents(exponents: Sequence[float]) -> None:
    """Raise unless every exponent is from 0 to MOST."""
    for value in exponents:
        if not 0 <= value <= MOST:
            raise UserError(f"an exponent of the mixture is {shown(value)}; it must be from 0 to {MOST:g}")


@dataclass(frozen=True, kw_only=True)
class MixtureCard(ClassifierCard):
    """Card of a mixture, with the cards of its parts."""

    exponents: list[float]  # (K,)
    parts: list[ModelCard]  # (K,)
    # For each number of `calibrates`: the share of a correction that counts, and what exponents are multiplied by.
    trust: dict[str, Any] = field(default_factory=dict)
    online: OnlineCard | None = None  # the average that uses a person's windows; None: there is none

    def __post_init__(self) -> None:
        super().__post_init__()
        check_trust(self.trust)
        check_exponents(self.exponents)
        if self.kind != KIND:
            raise UserError(f"the kind of a mixture is {shown(self.kind)}, it must be {KIND!r}")
        if not self.parts or len(self.exponents) != len(self.parts):
            raise UserError(f"the mixture has {len(self.exponents)} exponents for {len(self.parts)} parts")
        if self.online is not None and len(self.online.exponents) != len(self.part_cards()):
            raise UserError("the online average of the mixture has another number of exponents than of parts")
        for number, part in enumerate(self.part_cards().values(), 1):
            for name in SHARED:
                value, common = getattr(part, name), getattr(self, name)
                if value != common:
                    raise UserError(f"{name} of part {number} is {shown(value)}, the mixture has {shown(common)}")
        members = sum(part.members for part in self.parts)
        if self.members != members:
            raise UserError(f"members of the mixture is {self.members}, its parts have {members}")

    def part_cards(self) -> dict[str, ModelCard]:
        """Return the cards of all parts, also of the online average, by the prefix of their tensors: parts.0. …"""
        parts = {f"parts.{k}.": part for k, part in enumerate(self.parts)}
        extra = [] if self.online is None else self.online.parts
        return parts | {f"online.{k}.": part for k, part in enumerate(extra)}

    @classmethod
    def of(cls, parts: Sequence[ModelCard], exponents: Sequence[float] | Tensor, scores: dict[str, Any]) -> Self:
        """Make the card of these parts, at least one; what they have in common is taken from the first."""
        if not parts:
            raise UserError("a mixture needs at least one part")
        first = parts[0]
        return cls(
            name=first.name, kind=KIND, members=sum(part.members for part in parts), n_times=first.n_times,
            channels=first.channels, sfreq=first.sfreq, classes=first.classes, subjects=first.subjects, scores=scores,
            exponents=[float(value) for value in exponents], parts=list(parts), filter=first.filter,
            scale=first.scale,
        )  # fmt: skip


def check_trust(trust: dict[str, Any]) -> None:
    """Raise unless it is a share and a sharpness for each number of labels."""
    for labels, pair in trust.items():
        known = isinstance(pair, list) and len(pair) == 2 and all(type(value) in (int, float) for value in pair)
        if not known or not (0 <= pair[0] <= MOST and 0 < pair[1] <= MOST):
            raise UserError(f"trust in {shown(labels)} labels is {shown(pair)}; it must be a share and a sharpness")


@dataclass(frozen=True)
class RegressionPart:
    """A linear model of the average."""

    setting: dict[str, Any]  # how windows are prepared and represented
    strength: float  # of the ridge penalty
    weight: float  # in the average

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= MOST:
            raise UserError(f"a part of the model has weight {self.weight:g}")
        setting = Setting.from_dict(self.setting)
        if setting.encoder != "linear" or not 0 < self.strength < math.inf:
            raise UserError(f"a part of the model has strength {self.strength:g} and is no linear one")


@dataclass(frozen=True, kw_only=True)
class RegressionCard(CommonCard):
    """Card of a model of a continuous target, with its parts."""

    target: str  # where the numbers were: continuous, or continuous:NAME
    mean: float  # of the training targets
    parts: list[RegressionPart]
    people: int  # whose windows the intervals rest on
    radii: list[float | None] | None  # half-widths for coverages of 0.01 … 0.99; None: fewer than 3 people held out

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind != REGRESSION:
            raise UserError(f"the kind of the model is {shown(self.kind)}, it must be {REGRESSION!r}")
        if not math.isfinite(self.mean):
            raise UserError("the parts of the model are damaged; make it again")
        if self.radii is not None and not (_rising(self.radii) and self.people >= FEWEST):
            raise UserError("the intervals of the model are damaged; make it again")


def _rising(radii: list[float | None]) -> bool:
    """Tell whether these are LEVELS numbers of at least 0 that rise, the last of which may be infinite (None)."""
    values = [math.inf if radius is None else radius for radius in radii]
    return len(values) == LEVELS and values[0] >= 0 and all(low <= high for low, high in pairwise(values))


Card = ModelCard | MixtureCard


def card_from(values: Any) -> Card | RegressionCard:
    """Read the card of any kind of model from JSON, with its digest or without; whatever is wrong raises."""
    if not isinstance(values, dict):
        raise UserError("the card of a model is no JSON object")
    if "made_with" not in values:  # which every card has had since 0.2
        raise UserError("the model was saved by another version of autotransfer; make it again with a new run")
    kinds: dict[object, type[Card | RegressionCard]] = {KIND: MixtureCard, REGRESSION: RegressionCard}
    kind = kinds.get(str(values.get("kind")), ModelCard)
    card: Card | RegressionCard = schema.from_values(kind, {k: v for k, v in values.items() if k != DIGEST})
    return card


def as_array(classes: list[Any]) -> NDArray[Any]:
    """(classes,), of objects where their types differ, or where no type of integers holds all of them: NumPy would turn
    numbers into text if there is text as well, and the integers into floats."""
    array = np.array(classes) if len({type(value) for value in classes}) == 1 else None
    if array is not None and not (array.dtype.kind == "f" and isinstance(classes[0], int)):
        return array
    objects = np.empty(len(classes), dtype=object)
    objects[:] = classes
    return objects
