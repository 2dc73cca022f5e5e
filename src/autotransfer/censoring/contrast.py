"""What critics that have a value for every subject share: the joint distribution of (z, s) beside their product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..fusing import fused
from .critics import MLP, CriticOptions, label_width, to_unit_variance, with_labels
from .groups import Groups, equal_shares, find_groups
from .method import Method, MethodOptions
from .terms import Term, TermSpec


@dataclass(frozen=True, kw_only=True)
class KeenCriticOptions(CriticOptions):
    """Of methods whose dependence is linear in the critic's values, and so has no bound.

    A critic that lags behind then drives the encoder past the point where subjects look alike, and back: with one
    update for each of the encoder's, a linear encoder kept all leakage under `wasserstein` and most of it under `club`.
    """

    critic_steps: int = 5


class Contrast(NamedTuple):
    """A critic's values T(z_i, s), and the weights under which they are means.

    Σ_i weight · Σ_s own · T is the mean of T over the joint distribution of (z, s) inside the contexts, and
    Σ_i weight · Σ_s share · T the mean over the product of their distributions, exactly: nothing is drawn. The two
    have the same z and the same subjects. If z ⟂ s their difference has mean 0, whatever the critic is.
    """

    value: Tensor  # (P, B, subjects): T
    own: Tensor  # (P, B, subjects): 1 where s is the row's own subject, else 0
    share: Tensor  # (P, B, subjects): of the context's counting rows, the share that is subject s's
    weight: Tensor  # (P, B): every context weighs the same

    def difference(self) -> Tensor:
        """Mean of T over the joint less its mean over the product: (P,)."""
        return (self.weight * ((self.own - self.share) * self.value).sum(-1)).sum(-1)


class ContrastMethod(Method):
    """A method whose critic maps (z, context) to a value for every subject, at the cost of the adversary's."""

    unit_variance = True  # whether the critic sees z with mean 0 and variance 1 in every dimension, gradients included
    Options = CriticOptions
    per_member = ("critic_lr",)

    def __init__(self, spec: TermSpec, options: Sequence[MethodOptions]) -> None:
        super().__init__(spec, options)
        own = options[0]
        assert isinstance(own, CriticOptions)
        self.contexts, self.nuisances = spec.contexts, spec.nuisances
        inputs = spec.dim + label_width(spec.contexts)
        self.critic = MLP(inputs, own.critic_hidden, spec.nuisances, keys=spec.keys, members=spec.members)

    def contrast(self, term: Term, z: Tensor, *, frozen: bool) -> Contrast:
        groups = find_groups(term, self.min_rows)
        weight = equal_shares(groups.counts, groups.context_rows)
        if self.unit_variance:
            z = to_unit_variance(z, weight)
        value: Tensor = self.critic(with_labels(z, (term.context, self.contexts)), frozen=frozen)
        return Contrast(value, *own_and_share(term, groups, self.nuisances), weight)


@fused
def own_and_share(term: Term, groups: Groups, nuisances: int) -> tuple[Tensor, Tensor]:
    """Rows × subjects: whether a subject is the row's own, and its share of the row's context; (P, B, subjects)."""
    ids = torch.arange(nuisances, device=term.nuisance.device)
    own = ((term.nuisance[..., None] == ids) & groups.counts[..., None]).to(term.z.dtype)
    return own, groups.context.to(own.dtype) @ own / groups.context_rows[..., None]
