"""A window as numbers that a linear classifier can read, the same for everybody.

To add a representation, write one file with a subclass of `Representation` (see base.py), and add a line to
REPRESENTATIONS.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ...errors import UserError, check_choice, check_positive, check_types, plain_value, shown
from ..transform import Fitted, Rows, Stage, Transform
from .band_tangent import BandTangent
from .bands import Bands, FineBands
from .base import Representation
from .beats import Beats
from .features import Features
from .minirocket import MiniRocket
from .rhythms import Rhythms
from .statistics import Statistics
from .tangent import Tangent
from .tdpsd import TDPSD
from .time_domain import LS4, LS9, Hudgins, TimeDomainAR

__all__ = ["REPRESENTATIONS", "Represent", "Representation", "representation_class"]

REPRESENTATIONS: dict[str, type[Representation]] = {
    "features": Features,
    "tangent": Tangent,
    "hudgins": Hudgins,
    "tdar": TimeDomainAR,
    "ls4": LS4,
    "ls9": LS9,
    "tdpsd": TDPSD,
    "rhythms": Rhythms,
    "bands": Bands,
    "fine_bands": FineBands,
    "band_tangent": BandTangent,
    "statistics": Statistics,
    "beats": Beats,
    "minirocket": MiniRocket,
}


@dataclass(frozen=True)
class Represent(Transform):
    kind: str = "features"
    sfreq: float | None = None  # Hz, for representations that speak of frequencies
    constants: tuple[float, ...] | None = None  # for representations that have some: frequencies, pairs of channels

    default: ClassVar[object] = "none"

    def __post_init__(self) -> None:
        reads = representation_class(self.kind).reads
        object.__setattr__(self, "constants", _numbers(self.constants))
        # What the representation does not read makes no difference, and is forgotten.
        for name in {"sfreq", "constants"} - set(reads):
            object.__setattr__(self, name, None)
        check_types(self)
        check_positive(self, "sfreq")
        for name in reads:
            if getattr(self, name) is None:
                raise UserError(f"represent {self.kind!r} needs {name}; give it, or choose another representation")

    @property
    def of_windows(self) -> Representation:
        return representation_class(self.kind)(self.sfreq, self.constants)

    @property
    def by_fold(self) -> bool:
        return self.of_windows.by_fold

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        shortest = self.of_windows.shortest
        if times < shortest:
            raise UserError(f"represent {self.kind!r} needs windows of at least {shortest} samples; they have {times}")
        return self.of_windows.shape(channels, times)

    def signals(self, channels: int, times: int) -> int:
        return 0

    def fit(self, stage: Stage, training: Sequence[Rows]) -> Fitted:
        return self.of_windows.fit(stage, training)

    def restore(self, tensors: dict[str, Tensor]) -> Fitted:
        return self.of_windows.restore(tensors)


def _numbers(value: object) -> tuple[float, ...] | None:
    """Return constants as a tuple, whatever sequence they came in: JSON knows lists alone."""
    if value is None:
        return None
    many = value if isinstance(value, (list, tuple)) else [value]
    plain = [plain_value(number) for number in many]
    if not all(type(number) in (int, float) and math.isfinite(number) for number in plain):
        raise UserError(f"constants is {shown(value)}; it must be a list of finite numbers")
    return tuple(map(float, plain))


def representation_class(name: str) -> type[Representation]:
    """Return the class of a representation by its name."""
    check_choice("represent", name, ("none", *REPRESENTATIONS))
    return REPRESENTATIONS[name]
