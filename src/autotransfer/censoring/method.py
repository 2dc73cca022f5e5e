"""Base classes of censoring methods and of their options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from ..errors import check_types
from .terms import Term, TermSpec

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """Options of a method except mode and strength. Subclasses add fields with defaults, and checks of the fields."""

    def __post_init__(self) -> None:
        check_types(self)

    @property
    def name_parts(self) -> list[str]:
        """Return the parts of a setting's name that distinguish settings of the method."""
        return self._changed_parts()

    def _changed_parts(self, *excluded: str) -> list[str]:
        """Return name parts of the fields that differ from their defaults, without the excluded fields."""
        values = {field: getattr(self, field.name) for field in fields(self) if field.name not in excluded}
        changed = {field.name: value for field, value in values.items() if value not in (field.default, None)}
        return [name.replace("_", " ") if value is True else f"{name} {value}" for name, value in changed.items()]


class Method(nn.Module, ABC):
    """Estimator of the dependence in one term. All state is in parameters and buffers with the member on axis 0.

    The only source of randomness is `key` (P,) int32, a function of each member's seed and step.
    """

    options: MethodOptions  # options of the first member; subclasses narrow the type
    label: ClassVar[str]  # name in reports
    Options: ClassVar[type[MethodOptions]] = MethodOptions
    per_member: ClassVar[tuple[str, ...]] = ()  # options that may differ between stacked members
    strengths: ClassVar[tuple[float, ...]] = (1.0, 0.3, 0.1, 0.03, 0.01)  # strengths in the paper's grid
    core_strengths: ClassVar[dict[str, float]] = {}  # strength by mode in the grid `core`
    quick_strengths: ClassVar[dict[str, float]] = {}  # strength by mode in the grid `quick`
    useful_strengths: ClassVar[tuple[float, float]] = (0.1, 0.3)  # strengths in the extended grid
    sampled_strengths: ClassVar[tuple[float, float]] = (0.01, 1.0)  # range for Optuna

    def __init__(self, spec: TermSpec, options: Sequence[MethodOptions]) -> None:
        """Store the options of the members, which may differ only in `per_member`."""
        super().__init__()
        self.options = options[0]
        self.contexts, self.nuisances, self.min_rows = spec.contexts, spec.nuisances, spec.min_rows

    @classmethod
    def variations(cls) -> list[MethodOptions]:
        """Return the options in the published grid."""
        return [cls.Options()]

    @classmethod
    def suggest(cls, trial: optuna.Trial) -> MethodOptions:
        """Return options sampled by Optuna."""
        return cls.Options()

    @abstractmethod
    def dependence(self, term: Term, key: Tensor) -> Tensor:
        """Return the estimate (P,), differentiable in term.z with a frozen critic."""

    def critic_loss(self, term: Term, key: Tensor) -> Tensor | None:
        """Return the loss of the critic (P,), without gradient in term.z; None if the method has no critic."""
        return None

    def after_step(self, active: Tensor) -> None:
        """Update the state of the members that took a main step; active: (P,) bool."""


def stack_option(options: Sequence[MethodOptions], name: str, members: int | None) -> Tensor:
    """Return the values of an option for all members (P,), or () for a single model, in float64."""
    values = torch.tensor([getattr(member_options, name) for member_options in options], dtype=torch.float64)
    return values[0] if members is None else values
