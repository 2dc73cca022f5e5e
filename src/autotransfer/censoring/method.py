"""Base class of censoring methods: options, search space, and an estimate of the dependence in one term."""

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
    """Options of a method but for mode and strength. A subclass adds fields with defaults, and checks them."""

    def __post_init__(self) -> None:
        check_types(self)

    @property
    def name_parts(self) -> list[str]:
        """Return parts of a setting's name that tell settings of this method apart."""
        return self._differing()

    def _differing(self, *without: str) -> list[str]:
        """Return fields that differ from their defaults, without these."""
        values = {field: getattr(self, field.name) for field in fields(self) if field.name not in without}
        differing = {field.name: value for field, value in values.items() if value not in (field.default, None)}
        return [name.replace("_", " ") if value is True else f"{name} {value}" for name, value in differing.items()]


class Method(nn.Module, ABC):
    """One per term. All state is parameters and buffers, with the member on axis 0 if there are members.

    `key` (P,) int32 is a function of each member's seed and step and the only source of randomness.
    """

    options: MethodOptions  # of the first member; a method names the type of its own
    label: ClassVar[str]  # in reports
    Options: ClassVar[type[MethodOptions]] = MethodOptions
    per_member: ClassVar[tuple[str, ...]] = ()  # options that are numbers, one for each stacked member
    # Strengths that are searched: the paper's grid; by mode, the grids few and quick; the extended grid; Optuna
    strengths: ClassVar[tuple[float, ...]] = (1.0, 0.3, 0.1, 0.03, 0.01)
    few_strengths: ClassVar[dict[str, float]] = {}
    quick_strengths: ClassVar[dict[str, float]] = {}
    useful_strengths: ClassVar[tuple[float, float]] = (0.1, 0.3)
    sampled_strengths: ClassVar[tuple[float, float]] = (0.01, 1.0)

    def __init__(self, spec: TermSpec, options: Sequence[MethodOptions]) -> None:
        """options: one for each member; they differ in `per_member` alone."""
        super().__init__()
        self.options = options[0]
        self.contexts, self.nuisances, self.min_rows = spec.contexts, spec.nuisances, spec.min_rows

    @classmethod
    def variations(cls) -> list[MethodOptions]:
        """Return the options that the published grid tries."""
        return [cls.Options()]

    @classmethod
    def suggest(cls, trial: optuna.Trial) -> MethodOptions:
        """Return options that Optuna samples."""
        return cls.Options()

    @abstractmethod
    def dependence(self, term: Term, key: Tensor) -> Tensor:
        """Return the estimate (P,), differentiable in term.z; the critic is frozen."""

    def critic_loss(self, term: Term, key: Tensor) -> Tensor | None:
        """Return what the critic minimizes, (P,), term.z held fixed; None: there is no critic."""
        return None

    def after_step(self, active: Tensor) -> None:
        """Move on after a main step; active (P,) bool: the members that took it."""


def member_numbers(options: Sequence[MethodOptions], name: str, members: int | None) -> Tensor:
    """Return an option of each member: (P,), or () for a single model; float64 so that 0.01 stays 0.01."""
    values = torch.tensor([getattr(of_member, name) for of_member in options], dtype=torch.float64)
    return values[0] if members is None else values
