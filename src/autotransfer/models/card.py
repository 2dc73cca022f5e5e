"""Card of a saved model: its inputs, its candidates and their weights, its training data and its scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import schema
from ..errors import UserError, check_choice, check_positive, shown
from ..recordings.labels import as_list, check_distinct
from ..recordings.signal import Signal
from ..tasks import Task, task_of
from ..tasks.classification import CLASSIFICATION
from ..training.conformal import Intervals, Thresholds
from .adaptation import CENTERED_CLASS_MEANS, CENTERING, METHODS, NO_ADAPTATION, UNTRIED

DIGEST = "digest"  # additional field of a saved card (see saving.py)
MAX_WEIGHT = 1e6  # largest weight; its product with the smallest logarithm is finite


@dataclass(frozen=True)
class CandidateCard:
    """Card of a candidate: its setting and its number of members."""

    setting: dict[str, Any]
    members: int

    def __post_init__(self) -> None:
        if self.members < 1:
            raise UserError(f"a candidate of the model has {self.members} members; restore the model from a copy")


@dataclass(frozen=True)
class OnlineCard:
    """Card of the online ensemble."""

    weights: list[float]  # (K + E,): of the model's K candidates, then of the E candidates below
    candidates: list[CandidateCard]  # (E,)

    def __post_init__(self) -> None:
        check_weights(self.weights)


def check_weights(weights: Sequence[float]) -> None:
    """Raise unless every weight is from 0 to MAX_WEIGHT."""
    for value in weights:
        if not 0 <= value <= MAX_WEIGHT:
            raise UserError(f"a weight of the model is {shown(value)}; it must be from 0 to {MAX_WEIGHT:g}")


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """Card of a model: a weighted ensemble of at least one candidate."""

    name: str  # of the data set
    target: str = CLASSIFICATION  # the value of --target
    n_times: int
    signal: Signal  # of the training recordings
    classes: list[Any]  # empty for regression
    subjects: int  # number of training subjects
    scores: dict[str, Any]
    weights: list[float]  # (K,)
    candidates: list[CandidateCard]  # (K,)
    constant: float = 0.0  # for regression: mean of the training targets
    scale: float | None = None  # typical deviation of a training window, in the unit of the recordings
    seen: dict[str, str] = field(default_factory=dict)  # digests of training and calibration windows (see overlap.py)
    made_with: dict[str, Any] = field(default_factory=dict)  # versions, and whether compiled kernels were used
    # Adaptation methods in online sessions, and with all windows of a subject at once: "none" if no method raised the
    # scores of held-out subjects, UNTRIED if the run had no time to evaluate them, None if the model is not from a run.
    session_method: str | None = None
    transductive_method: str | None = None
    calibrates_with: list[int] | None = None  # labels per class that raised the scores of held-out subjects
    thresholds: Thresholds | None = None  # of prediction sets and abstention; None: too few held-out subjects
    intervals: Intervals | None = None  # of regression; None: too few held-out subjects
    # By number of labels per class: share of the calibration's correction, and sharpness (see search/labels.py).
    trust: dict[str, list[float]] = field(default_factory=dict)
    online: OnlineCard | None = None  # None: there is no online ensemble

    def __post_init__(self) -> None:
        check_positive(self, "n_times", "scale")
        for name in ("session_method", "transductive_method"):
            check_choice(name, getattr(self, name), (None, NO_ADAPTATION, UNTRIED, *METHODS))
        check_trust(self.trust)
        check_weights(self.weights)
        check_distinct(as_list(self.classes, "the classes"), "the classes of the model")
        n_weights, n_candidates, n_channels = len(self.weights), len(self.candidates), len(self.signal.channels)
        if not n_weights == n_candidates > 0 or not n_channels:
            counts = f"{n_weights} weights, {n_candidates} candidates and {n_channels} channels"
            raise UserError(f"the model has {counts}; restore it from a copy")
        if self.online is not None and len(self.online.weights) != len(self.candidate_cards()):
            counts = f"{len(self.online.weights)} weights for {len(self.candidate_cards())} candidates"
            raise UserError(f"the online ensemble has {counts}; restore the model from a copy")
        if self.online is None and {self.session_method, self.transductive_method} & {CENTERING, CENTERED_CLASS_MEANS}:
            raise UserError("the model has no online ensemble, which its adaptation uses; restore it from a copy")
        is_valid = math.isfinite(self.constant) and (self.task.is_numeric or any(self.weights))
        if self.task.is_numeric != (not self.classes) or not is_valid:
            values = f"target {shown(self.target)}, {len(self.classes)} classes, constant {self.constant} and weights"
            raise UserError(f"the model has {values} {shown(self.weights)}, which do not fit; restore it from a copy")

    @property
    def task(self) -> Task:
        return task_of(self.target)

    @property
    def n_outputs(self) -> int:
        """Return the number of outputs of each candidate."""
        return self.task.n_outputs(len(self.classes))

    @property
    def members(self) -> int:
        """Return the number of members of all candidates together."""
        return sum(candidate.members for candidate in self.candidates)

    def candidate_cards(self) -> dict[str, CandidateCard]:
        """Return the cards of all candidates, also of the online ensemble, by the prefix of their tensors."""
        cards = {f"candidates.{k}.": card for k, card in enumerate(self.candidates)}
        online = [] if self.online is None else self.online.candidates
        return cards | {f"online.{k}.": card for k, card in enumerate(online)}


def check_trust(trust: dict[str, list[float]]) -> None:
    """Raise unless there are a share and a sharpness for each number of labels."""
    for labels, pair in trust.items():
        if len(pair) != 2 or not (0 <= pair[0] <= MAX_WEIGHT and 0 < pair[1] <= MAX_WEIGHT):
            raise UserError(f"trust in {shown(labels)} labels is {shown(pair)}; it must be a share and a sharpness")


def read_card(values: Any) -> ModelCard:
    """Read a model card from JSON, with its digest or without; raise if a value is invalid."""
    if not isinstance(values, dict):
        raise UserError(f"the card of the model is {shown(values)}, not a JSON object; restore the model from a copy")
    if "made_with" not in values:  # version 0.2 added this field
        raise UserError("the model was saved by another version of autotransfer; make it again with a new run")
    card: ModelCard = schema.from_values(ModelCard, {k: v for k, v in values.items() if k != DIGEST})
    return card


def as_array(classes: list[Any]) -> NDArray[Any]:
    """Return classes as an array (classes,), which has the type object if NumPy would convert values otherwise."""
    array = np.array(classes) if len({type(value) for value in classes}) == 1 else None
    if array is not None and not (array.dtype.kind == "f" and isinstance(classes[0], int)):
        return array
    objects = np.empty(len(classes), dtype=object)
    objects[:] = classes
    return objects
