"""Critics with one value per subject: the joint distribution of (z, s) versus the product of the marginals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .critics import CriticOptions, SubjectCritic, to_unit_variance, with_labels
from .groups import equal_shares, find_groups
from .terms import Term


@dataclass(frozen=True, kw_only=True)
class FrequentCriticOptions(CriticOptions):
    """Options with five critic updates per step, for dependences that are linear in the critic's values.

    With one update per step the encoder oscillates around independence: a linear encoder kept all leakage under
    `wasserstein` and most of it under `club`.
    """

    critic_steps: int = 5


class Contrast(NamedTuple):
    """A critic's values T(z_i, s) and weights for their means.

    Σ_i weight · Σ_s joint · T is the mean of T over the joint distribution of (z, s) in the contexts, and
    Σ_i weight · Σ_s product · T the exact mean over the product of the marginals. If z ⟂ s, their difference has mean 0
    for any critic.
    """

    value: Tensor  # (P, B, subjects): T
    joint: Tensor  # (P, B, subjects): 1 for the row's subject, else 0
    product: Tensor  # (P, B, subjects): share of subject s in the counting rows of the context
    weight: Tensor  # (P, B): row weights, every context weighing the same

    def difference(self) -> Tensor:
        """Return the mean of T over the joint less its mean over the product: (P,)."""
        return (self.weight * ((self.joint - self.product) * self.value).sum(-1)).sum(-1)


class ContrastMethod(SubjectCritic):
    """Method whose critic has one value per subject, at the cost of the adversary's critic."""

    unit_variance = True  # whether z is scaled to mean 0 and variance 1 per dimension, gradients included

    def contrast(self, term: Term, z: Tensor, *, frozen: bool) -> Contrast:
        """Return the critic's values of a term and their weights."""
        groups = find_groups(term, self.min_rows)
        weight = term.compute_once("equal contexts", lambda: equal_shares(groups.counts, groups.context_rows))

        def critic_input() -> Tensor:
            scaled = to_unit_variance(z, weight) if self.unit_variance else z
            return with_labels(scaled, (term.context, self.contexts))

        def shares() -> tuple[Tensor, Tensor]:
            ids = torch.arange(self.nuisances, device=term.nuisance.device)
            joint = ((term.nuisance[..., None] == ids) & groups.counts[..., None]).to(groups.context_rows.dtype)
            return joint, groups.context.to(joint.dtype) @ joint / groups.context_rows[..., None]

        # All critic updates of a step share one input.
        inputs = critic_input() if frozen else term.compute_once(("critic input", term.z), critic_input)
        value: Tensor = self.critic(inputs, frozen=frozen)
        joint, product = term.compute_once("shares", shares)
        return Contrast(value, joint, product, weight)
