"""Quantile risk: the risk that a share of people stays below (EQRM, Eastwood et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import UserError
from ..fusing import fused
from .method import MethodOptions, member_numbers
from .risks import RiskMethod, Risks, average, tilted
from .terms import Term, TermSpec

if TYPE_CHECKING:
    import optuna

SILVERMAN = (4 / 3) ** 0.2  # 1.06: times the deviation and n^(−1/5), the best bandwidth for a normal density
SECTIONS, PASSES = 8, 13  # each pass cuts the interval that holds the quantile into sections: 39 bits


@dataclass(frozen=True, kw_only=True)
class QuantileRiskOptions(MethodOptions):
    quantile: float = 0.75  # α, the share of people whose risk is to lie below

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.quantile < 1:
            raise UserError(f"quantile is {self.quantile}; it must lie between 0 and 1")


class QuantileRisk(RiskMethod):
    """With mean losses R_g of the counting groups g of a context,

        quantile_α − mean_g R_g,   Σ_g Φ((quantile_α − R_g)/h) / G = α

    averaged over contexts by their rows: the α-quantile of a Gaussian kernel density estimate, h by Silverman's
    rule. Where groups are equally large the task's loss is mean_g R_g, so that at strength 1 the two together are
    the quantile. With h held fixed its gradient is a weighted mean of the groups' own,

        ∇quantile_α = Σ_g φ_g ∇R_g / Σ_g φ_g,   φ_g = φ((quantile_α − R_g)/h)
    """

    alpha: Tensor  # (P,) or ()

    label = "Quantile risk"
    Options = QuantileRiskOptions
    per_member = ("quantile",)

    def __init__(self, spec: TermSpec, options: Sequence[MethodOptions]) -> None:
        super().__init__(spec, options)
        self.register_buffer("alpha", member_numbers(options, "quantile", spec.members))

    @classmethod
    def suggest(cls, trial: optuna.Trial) -> MethodOptions:
        return QuantileRiskOptions(quantile=trial.suggest_float("quantile", 0.5, 0.95))

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        risks = self.risks(term)
        fixed = risks._replace(risk=risks.risk.detach())
        quantile, weights = kde_quantile(fixed, self.alpha.reshape(-1, 1).to(fixed.risk.dtype))
        # The value is the quantile; the gradient is that of the weighted mean, whose own value is subtracted.
        return (risks.weight * quantile).sum(-1) + average(risks, weights - risks.share) - average(fixed, weights)


@fused
@torch.no_grad()
def kde_quantile(risks: Risks, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """The quantile of every context (P, C), and φ_g/Σφ_g as row weights (P, C, B); alpha (P, 1)."""
    risk, share, some = risks.risk[:, None], risks.share, risks.groups > 0
    h = bandwidth(risks)
    lowest = torch.where(share > 0, risk, torch.inf).amin(-1)
    highest = torch.where(share > 0, risk, -torch.inf).amax(-1)
    # A mixture's quantile lies between those of its parts, R_g + h Φ⁻¹(α).
    low = torch.where(some, lowest, 0) + h * torch.special.ndtri(alpha)
    width = torch.where(some, highest - lowest, 0)
    steps = torch.arange(1, SECTIONS, device=risk.device, dtype=risk.dtype) / SECTIONS
    for _ in range(PASSES):
        points = low[..., None] + width[..., None] * steps  # (P, C, SECTIONS − 1)
        below = torch.special.ndtr((points[..., None] - risk[:, :, None]) / h[..., None, None])
        passed = ((share[:, :, None] * below).sum(-1) < alpha[..., None]).sum(-1)
        width = width / SECTIONS
        low = low + width * passed
    quantile = low + width / 2
    return torch.where(some, quantile, 0), tilted(share, -((quantile[..., None] - risk) / h[..., None]).square() / 2)


def bandwidth(risks: Risks) -> Tensor:
    """Silverman's rule for the groups of every context: (P, C), above 0 also where all risks are equal."""
    risk, groups = risks.risk[:, None], risks.groups.clamp(min=2)
    mean = (risks.share * risk).sum(-1, keepdim=True)
    variance = (risks.share * (risk - mean).square()).sum(-1) * groups / (groups - 1)
    number = torch.finfo(risk.dtype)
    least = number.eps * risk.abs().amax(-1) + number.tiny
    return torch.maximum(SILVERMAN * variance.sqrt() * groups**-0.2, least)
