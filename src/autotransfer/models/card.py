"""The card of a saved model: what it was made for, from what, and how good it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import schema
from ..errors import UserError, check_positive, shown
from ..recordings.filters import parse_filter
from ..tasks import Task, task_of
from ..tasks.classification import CLASSIFICATION
from ..training.centering import CenteringRule
from ..training.conformal import Intervals, Thresholds

DIGEST = "digest"  # the field beside those of a card as a file holds it (see binding.py)
UNTRIED = "untried"  # `follows` of a run that had no time to try adaptation and labels on held-out people
MOST = 1e6  # an weight; with the smallest logarithm it is still a number


@dataclass(frozen=True)
class CandidateCard:
    """Card of a candidate of a model: members of one setting."""

    setting: dict[str, Any]
    members: int

    def __post_init__(self) -> None:
        if self.members < 1:
            raise UserError(f"a candidate of the model has {self.members} members; restore the model from a copy")


@dataclass(frozen=True)
class OnlineCard:
    """The online ensemble, in the card of its model."""

    weights: list[float]  # (K + E,): of the model's candidates, then of its own
    parts: list[CandidateCard]  # (E,)
    rule: CenteringRule
    session: bool  # whether held-out people gained by it window after window, in every order
    all_windows: bool  # whether they did with all windows at once

    def __post_init__(self) -> None:
        check_weights(self.weights)


def check_weights(weights: Sequence[float]) -> None:
    """Raise unless every weight is from 0 to MOST."""
    for value in weights:
        if not 0 <= value <= MOST:
            raise UserError(f"an weight of the model is {shown(value)}; it must be from 0 to {MOST:g}")


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """Card of a model: a weighted ensemble of at least one candidate."""

    name: str  # of the data set
    target: str = CLASSIFICATION  # what is predicted, as --target names it
    n_times: int
    channels: list[str]
    sfreq: float | None
    classes: list[Any]  # none if a number is predicted
    subjects: int  # whom it was trained on
    scores: dict[str, Any]
    weights: list[float]  # (K,); weights if a number is predicted
    parts: list[CandidateCard]  # (K,)
    constant: float = 0.0  # predicted number that has the rest of the weight: the mean of the training targets
    filter: dict[str, Any] | None = None  # how its recordings were filtered, where that is known
    scale: float | None = None  # how much their windows vary, in their unit (see recordings.concerns)
    seen: dict[str, Any] = field(default_factory=dict)  # digests of what it was made from (see seen.py)
    made_with: dict[str, Any] = field(default_factory=dict)  # versions, and whether kernels were compiled
    # How a person is followed without labels: "none" where held-out people did not gain, "untried" by a run that had no
    # time for that; None: not measured.
    follows: str | None = None
    calibrates: list[int] | None = None  # labeled windows of each class that they gained by
    thresholds: Thresholds | None = None  # for sets and abstention; None: too few people were held out
    intervals: Intervals | None = None  # about numbers; None: too few people were held out
    # For each number of `calibrates`: the share of a correction that counts, and what weights are multiplied by.
    trust: dict[str, Any] = field(default_factory=dict)
    online: OnlineCard | None = None  # None: there is no online ensemble

    def __post_init__(self) -> None:
        check_positive(self, "sfreq", "n_times", "scale")
        parse_filter(self.filter, self.sfreq)
        if not self.channels:
            raise UserError("the model has no channels; make it again with resume")
        check_trust(self.trust)
        check_weights(self.weights)
        if self.task.is_numeric != (not self.classes):
            raise UserError("the model has no classes, or too many for its target; restore it from a copy")
        if not math.isfinite(self.constant):
            raise UserError("the constant of the model is not finite; restore it from a copy")
        if not self.parts or len(self.weights) != len(self.parts):
            raise UserError(f"the model has {len(self.weights)} weights for {len(self.parts)} candidates")
        if self.online is not None and len(self.online.weights) != len(self.part_cards()):
            raise UserError("the online ensemble of the model has another number of weights than of candidates")

    @property
    def task(self) -> Task:
        return task_of(self.target)

    @property
    def n_outputs(self) -> int:
        """Return the number of outputs of each candidate."""
        return self.task.n_outputs(len(self.classes))

    @property
    def members(self) -> int:
        """Return the number of trained models of all candidates together."""
        return sum(part.members for part in self.parts)

    def part_cards(self) -> dict[str, CandidateCard]:
        """Return the cards of all candidates, also of the online ensemble, by the prefix of their tensors."""
        parts = {f"parts.{k}.": part for k, part in enumerate(self.parts)}
        extra = [] if self.online is None else self.online.parts
        return parts | {f"online.{k}.": part for k, part in enumerate(extra)}


def check_trust(trust: dict[str, Any]) -> None:
    """Raise unless it is a share and a sharpness for each number of labels."""
    for labels, pair in trust.items():
        known = isinstance(pair, list) and len(pair) == 2 and all(type(value) in (int, float) for value in pair)
        if not known or not (0 <= pair[0] <= MOST and 0 < pair[1] <= MOST):
            raise UserError(f"trust in {shown(labels)} labels is {shown(pair)}; it must be a share and a sharpness")


def card_from(values: Any) -> ModelCard:
    """Read the card of a model from JSON, with its digest or without; whatever is wrong raises."""
    if not isinstance(values, dict):
        raise UserError("the card of a model is no JSON object")
    if "made_with" not in values:  # which every card has had since 0.2
        raise UserError("the model was saved by another version of autotransfer; make it again with a new run")
    card: ModelCard = schema.from_values(ModelCard, {k: v for k, v in values.items() if k != DIGEST})
    return card


def as_array(classes: list[Any]) -> NDArray[Any]:
    """Return an array (classes,), of objects where their types differ, or where no type of integers holds all of
    them: NumPy would turn numbers into text if there is text as well, and the integers into floats."""
    array = np.array(classes) if len({type(value) for value in classes}) == 1 else None
    if array is not None and not (array.dtype.kind == "f" and isinstance(classes[0], int)):
        return array
    objects = np.empty(len(classes), dtype=object)
    objects[:] = classes
    return objects
