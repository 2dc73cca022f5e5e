"""Critics with a value for every subject: the joint distribution of (z, s) against the product of both."""

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
    """Options of methods whose dependence is linear in the critic's values, and so has no bound.

    A critic that lags behind then drives the encoder past the point where subjects look alike, and back: with one
    update for each of the encoder's, a linear encoder kept all leakage under `wasserstein` and most of it under `club`.
    """

    critic_steps: int = 5


class Contrast(NamedTuple):
    """A critic's values T(z_i, s), and the weights under which they are means.

    Σ_i weight · Σ_s joint · T is the mean of T over the joint distribution of (z, s) inside the contexts, and
    Σ_i weight · Σ_s product · T the mean over the product of their distributions, exactly: nothing is drawn. The two
    have the same z and the same subjects. If z ⟂ s their difference has mean 0, whatever the critic is.
    """

    value: Tensor  # (P, B, subjects): T
    joint: Tensor  # (P, B, subjects): 1 where s is the row's subject, else 0
    product: Tensor  # (P, B, subjects): share of subject s in the counting rows of the context
    weight: Tensor  # (P, B): every context weighs the same

    def difference(self) -> Tensor:
        """Return the mean of T over the joint less its mean over the product: (P,)."""
        return (self.weight * ((self.joint - self.product) * self.value).sum(-1)).sum(-1)


class ContrastMethod(SubjectCritic):
    """A method whose critic has a value for every subject, at the cost of the adversary's."""

    unit_variance = True  # whether the critic sees z with mean 0 and variance 1 in every dimension, gradients included

    def contrast(self, term: Term, z: Tensor, *, frozen: bool) -> Contrast:
        groups = find_groups(term, self.min_rows)
        weight = term.compute_once("equal contexts", lambda: equal_shares(groups.counts, groups.context_rows))

        def seen() -> Tensor:
            scaled = to_unit_variance(z, weight) if self.unit_variance else z
            return with_labels(scaled, (term.context, self.contexts))

        def shares() -> tuple[Tensor, Tensor]:
            ids = torch.arange(self.nuisances, device=term.nuisance.device)
            joint = ((term.nuisance[..., None] == ids) & groups.counts[..., None]).to(groups.context_rows.dtype)
            return joint, groups.context.to(joint.dtype) @ joint / groups.context_rows[..., None]

        # The critic's updates in a step see the same term; the encoder goes on from the last.
        value: Tensor = self.critic(seen() if frozen else term.compute_once(("seen", term.z), seen), frozen=frozen)
        joint, product = term.compute_once("shares", shares)
        return Contrast(value, joint, product, weight)
