"""Wasserstein distance between each subject's latents and the latents of its context."""

from __future__ import annotations

import torch
from torch import Tensor

from .contrast import ContrastMethod, FrequentCriticOptions
from .critics import MLP
from .terms import Term


class Wasserstein(ContrastMethod):
    """dependence = E[f(z, s)] over the joint distribution − E[f(z, s)] over the product, f 1-Lipschitz in z.

    The critic f maximizes it. The maximum is the mean over rows with group g and context c of the Wasserstein-1
    distance W(p(z | g), p(z | c)), and any f gives a lower bound. Distances have the scale of z, so the critic receives
    z with mean 0 and variance 1 in every dimension: an encoder could otherwise shrink z (or inflate it in a term that
    preserves) while subjects stay predictable.
    """

    label = "Wasserstein"
    Options = FrequentCriticOptions

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        return self.distance(term, term.z, frozen=True)

    def critic_loss(self, term: Term, key: Tensor) -> Tensor:
        return -self.distance(term, term.z.detach(), frozen=False)

    def distance(self, term: Term, z: Tensor, *, frozen: bool) -> Tensor:
        """Return the distance (P,)."""
        contrast = self.contrast(term, z, frozen=frozen)
        steepest = steepest_slopes(self.critic, z.shape[-1])
        steepest = steepest.detach() if frozen else steepest
        return contrast._replace(value=contrast.value / steepest[..., None, :]).difference()


def steepest_slopes(critic: MLP, dim: int) -> Tensor:
    """Return a Lipschitz constant of each output in the first `dim` inputs: (P, outputs).

    Output o is Σ_h w2[o, h] · relu(w1[h] · x + b1[h]) + b2[o]. A hidden unit has slopes up to |w1[h]|, so an output has
    slopes up to Σ_h |w2[o, h]| · |w1[h]|, which is reached if the units of an output are parallel. A critic divided by
    it is 1-Lipschitz for any weights.
    """
    first, second = (weight.reshape(-1, *weight.shape[-2:]) for weight in (critic.weight1, critic.weight2))
    units: Tensor = torch.linalg.vector_norm(first[..., :dim], dim=-1, keepdim=True)
    steepest: Tensor = second.abs() @ units
    return steepest[..., 0].clamp(min=1e-12)
