"""Density ratio: a critic distinguishes observed pairs (z, s) from independent pairs by logistic regression."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn.functional import logsigmoid

from .contrast import Contrast, ContrastMethod
from .terms import Term


class DensityRatio(ContrastMethod):
    """dependence = log 2 − logistic loss of T(z, s, context); the critic minimizes the loss.

        loss = ½ E[softplus(−T)] over the joint distribution + ½ E[softplus(T)] over the product

    The optimal T is the log of the density ratio p(z, s) / (p(z) p(s)) in the context. With it the dependence is the
    Jensen–Shannon divergence of joint and product, at most log 2. Means of T would estimate mutual information, but
    their gradient does not decrease with the loss, so that the encoder oscillates around independence. The gradient of
    the logistic loss decreases. The divergence does not depend on the scale of z, so z is not scaled.
    """

    label = "Density ratio"
    unit_variance = False
    useful_strengths = (0.3, 1.0)
    sampled_strengths = (0.03, 3.0)

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        contrast = self.contrast(term, term.z, frozen=True)
        return math.log(2) * contrast.weight.sum(-1) - logistic_loss(contrast)

    def critic_loss(self, term: Term, key: Tensor) -> Tensor:
        return logistic_loss(self.contrast(term, term.z.detach(), frozen=False))


def logistic_loss(contrast: Contrast) -> Tensor:
    """Return the logistic loss (P,)."""
    value, joint, product, weight = contrast
    # log σ(T) = −softplus(−T); torch rounds logsigmoid equally at all places of a tensor, but not softplus.
    log_odds = joint * logsigmoid(value) + product * logsigmoid(-value)
    return -(weight * log_odds.sum(-1)).sum(-1) / 2
