"""Representations: features of windows for linear classifiers, computed in the same way for every subject.

To add a representation, write a subclass of `Representation` (see base.py) and add a line to REPRESENTATIONS.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ...errors import UserError, check_choice, check_positive, check_types, plain_value, shown
from ..transform import FittedTransform, Rows, Transform, TransformedWindows
from .band_tangent import BandTangent
from .bands import Bands, FineBands
from .base import Representation
from .beats import Beats
from .combined import Combined
from .features import Features
from .minirocket import MiniRocket
from .rhythms import Rhythms
from .statistics import Statistics
from .tangent import Tangent
from .tdpsd import TDPSD
from .time_domain import LS9, TimeDomainAR

__all__ = ["REPRESENTATIONS", "Represent", "Representation", "representation_class"]

REPRESENTATIONS: dict[str, type[Representation]] = {
    "features": Features,
    "tangent": Tangent,
    "tdar": TimeDomainAR,
    "ls9": LS9,
    "tdpsd": TDPSD,
    "rhythms": Rhythms,
    "bands": Bands,
    "fine_bands": FineBands,
    "band_tangent": BandTangent,
    "statistics": Statistics,
    "combined": Combined,
    "beats": Beats,
    "minirocket": MiniRocket,
}


@dataclass(frozen=True)
class Represent(Transform):
    name: str = "features"
    sfreq: float | None = None  # sampling rate in Hz; None unless the representation needs it
    constants: tuple[float, ...] | None = None  # numbers defined by the representation; None unless it needs any

    default: ClassVar[object] = "none"

    def __post_init__(self) -> None:
        required = representation_class(self.name).required_fields
        object.__setattr__(self, "constants", _parse_constants(self.constants))
        # Fields that the representation does not need are dropped, so that equal settings compare equal.
        for name in {"sfreq", "constants"} - set(required):
            object.__setattr__(self, name, None)
        check_types(self)
        check_positive(self, "sfreq")
        for name in required:
            if getattr(self, name) is None:
                raise UserError(f"represent {self.name!r} needs {name}; add {name}, or choose another representation")

    @property
    def representation(self) -> Representation:
        return representation_class(self.name)(self.sfreq, self.constants)

    @property
    def depends_on_fold(self) -> bool:
        return self.representation.depends_on_fold

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        min_samples = self.representation.min_samples
        if times < min_samples:
            raise UserError(
                f"represent {self.name!r} needs windows of {min_samples} samples or more; the windows have {times}"
            )
        return self.representation.shape(channels, times)

    def n_signal_channels(self, channels: int, times: int) -> int:
        return 0

    def fit(self, windows: TransformedWindows, training: Sequence[Rows]) -> FittedTransform:
        return self.representation.fit(windows, training)

    def restore(self, tensors: dict[str, Tensor]) -> FittedTransform:
        return self.representation.restore(tensors)


def _parse_constants(value: object) -> tuple[float, ...] | None:
    """Return a number or list of numbers as a tuple of finite floats."""
    if value is None:
        return None
    values = value if isinstance(value, (list, tuple)) else [value]
    numbers = [plain_value(number) for number in values]
    if not all(type(number) in (int, float) and math.isfinite(number) for number in numbers):
        raise UserError(f"constants is {shown(value)}; give a list of finite numbers")
    return tuple(map(float, numbers))


def representation_class(name: str) -> type[Representation]:
    """Return the representation with a name; raise a UserError for an unknown name."""
    check_choice("represent", name, ("none", *REPRESENTATIONS))
    return REPRESENTATIONS[name]
