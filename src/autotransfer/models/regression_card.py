"""The card of a model of a continuous target."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ..errors import UserError, check_positive, check_types, shown
from ..recordings.filters import filter_of
from ..settings import Setting
from ..training.conformal import FEWEST, LEVELS
from .card import is_cards

REGRESSION = "regression"  # the kind of such a card


@dataclass(frozen=True)
class RegressionPart:
    """A linear model of the average."""

    setting: dict[str, Any]  # how windows are prepared and represented
    strength: float  # of the ridge penalty
    weight: float  # in the average

    def __post_init__(self) -> None:
        check_types(self)
        if not 0 <= self.weight <= 1e6:
            raise UserError(f"a part of the model has weight {self.weight:g}")
        setting = Setting.from_dict(self.setting)
        if setting.encoder != "linear" or not 0 < self.strength < math.inf:
            raise UserError(f"a part of the model has strength {self.strength:g} and is no linear one")


@dataclass(frozen=True)
class RegressionCard:
    """What such a model was made for, with its parts."""

    name: str  # of the data set
    kind: str  # regression
    n_times: int
    channels: list[str]
    sfreq: float | None
    subjects: int  # whom it was trained on
    target: str  # where the numbers were: continuous, or continuous:NAME
    mean: float  # of the training targets
    parts: list[RegressionPart]
    people: int  # whose windows the intervals rest on
    radii: list[Any] | None  # half-widths for coverages of 0.01 … 0.99; None: fewer than 3 people were held out
    scores: dict[str, Any]
    filter: dict[str, Any] | None = None  # how its recordings were filtered, where that is known
    scale: float | None = None  # how much their windows vary, in their unit
    seen: dict[str, Any] = field(default_factory=dict)  # digests of what it was made from (see seen.py)
    made_with: dict[str, Any] = field(default_factory=dict)  # versions, and whether kernels were compiled

    def __post_init__(self) -> None:
        check_types(self)
        check_positive(self, "sfreq", "n_times", "scale")
        filter_of(self.filter, self.sfreq)
        if self.kind != REGRESSION:
            raise UserError(f"the kind of the model is {shown(self.kind)}, it must be {REGRESSION!r}")
        if not self.channels or not all(isinstance(name, str) for name in self.channels):
            raise UserError("the channels of a model are not all names")
        if not all(isinstance(part, RegressionPart) for part in self.parts) or not math.isfinite(self.mean):
            raise UserError("the parts of the model are damaged; make it again")
        if self.radii is not None and not (_rising(self.radii) and self.people >= FEWEST):
            raise UserError("the intervals of the model are damaged; make it again")


def _rising(radii: list[Any]) -> bool:
    """Whether these are LEVELS numbers of at least 0 that rise, the last of which may be infinite (None)."""
    if len(radii) != LEVELS or not all(radius is None or type(radius) in (int, float) for radius in radii):
        return False
    values = [math.inf if radius is None else float(radius) for radius in radii]
    return values[0] >= 0 and all(low <= high for low, high in pairwise(values))


def regression_card(values: dict[str, Any]) -> RegressionCard:
    """From what JSON held, without its digest; whatever is wrong raises."""
    parts: Any = values.get("parts")
    if not is_cards(parts):
        raise UserError(f"parts of the model is {shown(parts)}; it must be a list of cards")
    parts = [{name: value for name, value in part.items() if name != "members"} for part in parts]  # of version 0.1
    return RegressionCard(**values | {"parts": [RegressionPart(**part) for part in parts]})
