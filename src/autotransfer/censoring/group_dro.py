"""GroupDRO: the people who have done worst so far weigh most (Sagawa et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import check_positive
from .method import MethodOptions, member_numbers
from .risks import RiskMethod, Risks, average, tilted
from .terms import Term, TermSpec

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True, kw_only=True)
class GroupDROOptions(MethodOptions):
    group_rate: float = 0.01  # η, how quickly the weights of people follow their losses

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "group_rate")


class GroupDRO(RiskMethod):
    """With mean losses R_g of the counting groups g of a context,

        Σ_g q_g R_g − mean_g R_g,   q_g ∝ exp(gain_g),   gain_g ← gain_g + η R_g

    averaged over contexts by their rows. Where groups are equally large the task's loss is mean_g R_g, so that at
    strength 1 the two together are GroupDRO's Σ_g q_g R_g; below it they lie between the mean and that.

    As published, a step's own losses are part of its weights. They join the gains once per main step, whatever
    else is evaluated; q is over the groups of the batch, and people who are absent keep their gains.
    """

    gains: Tensor  # (P, C·M) or (C·M,): of every context and nuisance, less the context's largest
    earned: Tensor  # the same of the latest penalty in training mode: η R_g, 0 where nothing was measured
    rate: Tensor  # η, (P,) or ()

    label = "GroupDRO"
    Options = GroupDROOptions
    per_member = ("group_rate",)

    def __init__(self, spec: TermSpec, options: Sequence[MethodOptions]) -> None:
        super().__init__(spec, options)
        self.register_buffer("rate", member_numbers(options, "group_rate", spec.members))
        gains = self.rate.new_zeros(*self.rate.shape, spec.contexts * spec.nuisances)
        self.register_buffer("gains", gains)
        self.register_buffer("earned", torch.zeros_like(gains), persistent=False)

    @classmethod
    def suggest(cls, trial: optuna.Trial) -> MethodOptions:
        return GroupDROOptions(group_rate=trial.suggest_float("group_rate", 1e-3, 1e-1, log=True))

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        risks = self.risks(term)
        return average(risks, self.weights(term, risks) - risks.share)

    @torch.no_grad()
    def weights(self, term: Term, risks: Risks) -> Tensor:
        """q as row weights (P, C, B), a group's spread evenly over its rows."""
        cells = self.contexts * self.nuisances
        place = term.context.clamp(min=0) * self.nuisances + term.nuisance.clamp(min=0)
        earned = self.rate.reshape(-1, 1).to(risks.risk.dtype) * risks.risk
        if self.training:
            # All rows of a group write the same number; those that do not count write to a column that is cut off.
            table = earned.new_zeros(len(earned), cells + 1)
            table = table.scatter(1, torch.where(risks.counts, place, cells), earned)[:, :cells]
            self.earned.copy_(table.reshape(self.earned.shape))
        gains = self.gains.reshape(-1, cells).gather(1, place).to(earned.dtype)
        return tilted(risks.share, (gains + earned)[:, None])

    def after_step(self, active: Tensor) -> None:
        gains = (self.gains + self.earned).reshape(-1, self.contexts, self.nuisances)
        gains = (gains - gains.amax(-1, keepdim=True)).flatten(1)  # only differences matter: they stay small
        before = self.gains.reshape(gains.shape)
        self.gains.copy_(torch.where(active[:, None], gains, before).reshape(self.gains.shape))
        self.earned.zero_()
