"""CLUB (Cheng et al. 2020): an upper bound on mutual information from a critic that predicts the subject."""

from __future__ import annotations

from torch import Tensor

from .contrast import ContrastMethod, FrequentCriticOptions
from .terms import Term


class CLUB(ContrastMethod):
    """dependence = E[log q(s | z)] over the joint distribution − E[log q(s | z)] over the product, in each context.

    The critic q(s | z, context) is trained by maximum likelihood as in the adversary. With q = p(s | z) this is

        I(z; s | context) + KL(product ‖ joint) ≥ I(z; s | context)

    The normalizer of q does not depend on the subject and cancels, so the values are the critic's logits. Unlike log q
    they are unbounded: an encoder could lower them by shrinking z, or raise them in a term that preserves. Therefore
    the critic receives z with mean 0 and variance 1 in every dimension.
    """

    label = "CLUB"
    Options = FrequentCriticOptions

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        return self.contrast(term, term.z, frozen=True).difference()

    def critic_loss(self, term: Term, key: Tensor) -> Tensor:
        logits, joint, _, weight = self.contrast(term, term.z.detach(), frozen=False)
        return -(weight * (joint * logits.log_softmax(-1)).sum(-1)).sum(-1)
