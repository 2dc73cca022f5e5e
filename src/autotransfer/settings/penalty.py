"""Penalty: the part of a setting that describes the penalty on latents."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..censoring import CENSORS, MODES, MethodOptions
from ..errors import UserError, check_at_most, check_choice, check_types, shown
from .fields import select_values


@dataclass(frozen=True, kw_only=True)
class Penalty:
    """Penalty on latents z. `options` are the fields of the method; the other fields are common to all methods."""

    method: str
    mode: str = "marginal"
    strength: float = 1.0
    warm_up: int = 0  # number of epochs over which strength rises linearly from 0
    shuffle_subjects: bool = False  # whether subject labels are shuffled within class, as a control
    options: MethodOptions

    def __post_init__(self) -> None:
        check_types(self)
        check_choice("mode", self.mode, MODES)
        if self.warm_up < 0:
            raise UserError(f"warm_up is {self.warm_up}; it must be at least 0 epochs")
        check_at_most(self, warm_up=10**6)


def penalty_of(values: dict[str, Any]) -> Penalty | None:
    """Return the penalty of a setting from its keywords; None if there is none."""
    method, strength = values.get("method"), values.get("strength")
    if isinstance(strength, np.generic):
        strength = values["strength"] = strength.item()
    if strength is not None:
        if isinstance(strength, bool) or not isinstance(strength, (int, float)):
            raise UserError(f"strength is {shown(strength)}; it must be of type float | None")
        if not 0 <= strength < math.inf:
            raise UserError(f"strength is {shown(strength)}; it must be a finite number of at least 0")
    if method in (None, "none"):
        return None
    check_choice("method", method, CENSORS)
    if strength == 0:
        return None
    options = CENSORS[method].Options(**select_values(values, CENSORS[method].Options))
    fields = {name: value for name, value in select_values(values, Penalty).items() if value is not None}
    return Penalty(**fields, options=options)


def default_batches(penalty: Penalty | None) -> str:
    """Return the default of `batches`; penalties need several windows of several subjects in each batch."""
    if penalty is None or getattr(penalty.options, "as_printed", None):
        return "shuffled"
    return "balanced" if penalty.mode == "conditional" else "people"
