"""V-REx: the variance of risks between people (Krueger et al. 2021)."""

from __future__ import annotations

from torch import Tensor

from ..fusing import fused
from .risks import RiskMethod, Risks
from .terms import Term


class VREx(RiskMethod):
    """Variance over counting groups g of their mean losses R_g,

        mean_g (R_g − mean_g R_g)²

    in each context, averaged over contexts by their rows.
    """

    label = "V-REx"
    strengths = (1.0, 3.0, 10.0, 30.0, 100.0)
    useful = (1.0, 10.0)
    sampled = (0.1, 100.0)

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        return variance(self.risks(term))


@fused
def variance(risks: Risks) -> Tensor:
    """Of the groups' risks, averaged over contexts: (P,)."""
    risk = risks.risk[:, None]
    mean = (risks.share * risk).sum(-1, keepdim=True)
    return (risks.weight * (risks.share * (risk - mean).square()).sum(-1)).sum(-1)
