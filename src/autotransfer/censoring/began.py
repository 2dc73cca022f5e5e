"""BEGAN discriminator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..randomness import fold_in
from ..settings import Setting
from .critics import MLP, label_width, with_labels
from .groups import Groups, equal_shares, find_groups
from .method import Method, member_numbers
from .terms import Term, TermSpec


class BEGAN(Method):
    k: Tensor  # (P,) or ()
    balance: Tensor  # (P,) or ()
    rate: Tensor
    diversity: Tensor

    def __init__(self, spec: TermSpec, settings: Sequence[Setting]) -> None:
        super().__init__(spec, settings)
        self.contexts, self.nuisances = spec.contexts, spec.nuisances
        self.labelled = settings[0].variant != "paper"
        labels = label_width(spec.contexts, spec.nuisances) if self.labelled else 0
        self.critic = MLP(
            spec.dim + labels, settings[0].critic_hidden or 64, spec.dim, keys=spec.keys, members=spec.members
        )
        self.register_buffer("rate", member_numbers(settings, "control_rate", spec.members))
        self.register_buffer("diversity", member_numbers(settings, "diversity", spec.members))
        self.register_buffer("k", torch.zeros_like(self.rate))
        self.register_buffer("balance", torch.zeros_like(self.rate))

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        real, fake = self.losses(term, term.z, key, frozen=True)
        k = self.k.reshape(-1).to(real.dtype)
        if self.training:
            self.balance.copy_((self.diversity * real.detach() - fake.detach()).reshape(self.k.shape))
        if self.labelled:
            return fake - real
        return fake if term.sign > 0 else k * fake - real

    def critic_loss(self, term: Term, key: Tensor) -> Tensor:
        real, fake = self.losses(term, term.z.detach(), key, frozen=False)
        return real - self.k.reshape(-1).to(real.dtype) * fake

    def after_step(self, active: Tensor) -> None:
        moved = (self.k + self.rate * self.balance).clamp(0, 1)
        self.k.copy_(torch.where(active.reshape(self.k.shape), moved, self.k))
        self.balance.zero_()

    def losses(self, term: Term, z: Tensor, key: Tensor, *, frozen: bool) -> tuple[Tensor, Tensor]:
        groups = find_groups(term, self.min_rows)
        per_group = equal_shares(groups.counts, groups.group_rows)
        if not self.labelled:
            error = (z - self.critic(z, frozen=frozen)).abs().mean(-1)
            per_context = equal_shares(groups.counts, groups.context_rows)
            return (per_context * error).sum(-1), (per_group * error).sum(-1)

        def error_with(subject: Tensor) -> Tensor:
            x = with_labels(z, (term.context, self.contexts), (subject, self.nuisances))
            return (per_group * (z - self.critic(x, frozen=frozen)).abs().mean(-1)).sum(-1)

        return error_with(next_subject(term, groups, key)), error_with(term.nuisance)


def next_subject(term: Term, groups: Groups, key: Tensor) -> Tensor:
    place = fold_in(key[:, None], term.nuisance).long()
    gap = (place[..., None, :] - place[..., :, None]) & 0xFFFFFFFF
    others = groups.context & ~groups.group
    nearest = torch.where(others, gap, 2**32).argmin(-1)
    return term.nuisance.gather(-1, nearest)
