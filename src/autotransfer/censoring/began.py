"""BEGAN discriminator: an autoencoder that distinguishes two distributions by its reconstruction errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import check_choice
from ..randomness import fold_in
from .critics import MLP, CriticOptions, label_width, to_unit_variance, with_labels
from .groups import Groups, equal_shares, find_groups
from .method import Method, MethodOptions, member_numbers
from .printed import find_paper_sets, paper_weights
from .terms import Term, TermSpec

# With k = 0 and γ = 1 the labeled critic would have no gradient towards distinguishing subjects.
LABELLED_START = 0.7
# γ: the published value for "paper", and for "labelled" the value at which real = fake under independence
DIVERSITY = {"labelled": 1.0, "paper": 0.7}


@dataclass(frozen=True, kw_only=True)
class BEGANOptions(CriticOptions):
    """Options of BEGAN."""

    variant: str = "labelled"
    control_rate: float = 0.001  # β
    diversity: float | None = None  # γ; None: the default of the variant

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("variant", self.variant, DIVERSITY)
        if self.as_printed:
            object.__setattr__(self, "variant", "paper")
        if self.diversity is None:
            object.__setattr__(self, "diversity", DIVERSITY[self.variant])

    @property
    def name_parts(self) -> list[str]:
        variant = [] if self.variant == "labelled" or self.as_printed else [self.variant]
        usual = self.diversity == DIVERSITY[self.variant]
        return [*variant, *([] if usual else [f"diversity {self.diversity}"]), *self._differing("variant", "diversity")]


class BEGAN(Method):
    """The critic D minimizes real − k·fake; k ← clip(k + β(γ·real − fake), 0, 1) once per main step.

    `labelled`: D receives the subject. real = mean |z − D(z, s)| with the row's subject, fake = this error with
    the subject of another group of the context, every group weighing the same. Both samples have the same z and
    the same subjects in different pairs, so that the dependence

        fake − real

    has mean 0 for any D if z ⟂ s. k starts at .7, and γ = 1 aims at real = fake: the better D distinguishes the
    pairs, the less it is trained to. D receives z with mean 0 and variance 1 in every dimension of the batch,
    gradients included, because errors are lengths: an encoder could otherwise shrink z (or inflate it in a term
    that preserves) while subjects stay predictable.

    `paper`: D does not receive the subject. real = mean of |z − D(z)| over contexts, fake = over nuisance groups,
    and the dependence is fake, or −(real − k·fake) in a term that preserves. It only compresses z, and fails a
    control (docs/method.md).

    k is updated by the losses of the latest penalty in training mode, independently of the number of critic steps.
    """

    k: Tensor  # (P,) or ()
    balance: Tensor  # γ·real − fake of the latest penalty, (P,) or (); 0 after an update of k
    rate: Tensor  # β
    diversity: Tensor  # γ

    options: BEGANOptions
    label = "BEGAN"
    Options = BEGANOptions
    per_member = ("critic_lr", "control_rate", "diversity")
    quick_strengths: ClassVar[dict[str, float]] = {"marginal": 0.1, "conditional": 0.3}

    def __init__(self, spec: TermSpec, options: Sequence[MethodOptions]) -> None:
        super().__init__(spec, options)
        self.labeled = self.options.variant != "paper"
        labels = label_width(spec.contexts, spec.nuisances) if self.labeled else 0
        self.critic = MLP(spec.dim + labels, self.options.critic_hidden, spec.dim, keys=spec.keys, members=spec.members)
        self.register_buffer("rate", member_numbers(options, "control_rate", spec.members))
        self.register_buffer("diversity", member_numbers(options, "diversity", spec.members))
        self.register_buffer("k", torch.full_like(self.rate, LABELLED_START if self.labeled else 0.0))
        self.register_buffer("balance", torch.zeros_like(self.rate), persistent=False)

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        real, fake = self.losses(term, term.z, key, frozen=True)
        if self.training:
            measured = self.diversity.reshape(-1) * real.detach() - fake.detach()
            self.balance.copy_(measured.reshape(self.balance.shape))
        if self.labeled:
            return fake - real
        return fake if term.sign > 0 else -self.critic_objective(real, fake)

    def critic_loss(self, term: Term, key: Tensor) -> Tensor:
        return self.critic_objective(*self.losses(term, term.z.detach(), key, frozen=False))

    def critic_objective(self, real: Tensor, fake: Tensor) -> Tensor:
        """Return real − k · fake, which the critic minimizes."""
        return real - self.k.reshape(-1).to(real.dtype) * fake

    def after_step(self, active: Tensor) -> None:
        moved = (self.k + self.rate * self.balance).clamp(0, 1)
        self.k.copy_(torch.where(active.reshape(self.k.shape), moved, self.k))
        self.balance.zero_()

    def losses(self, term: Term, z: Tensor, key: Tensor, *, frozen: bool) -> tuple[Tensor, Tensor]:
        """Return the losses of real and fake samples, (P,) each."""
        groups = find_groups(term, self.min_rows)
        per_group = term.compute_once("equal groups", lambda: equal_shares(groups.counts, groups.group_rows))
        if not self.labeled:
            error = self.errors(z, z, frozen=frozen)
            per_context = term.compute_once("equal contexts", lambda: equal_shares(groups.counts, groups.context_rows))
            if self.options.as_printed:
                per_context, per_group = paper_weights(find_paper_sets(term), self.nuisances)
            return (per_context * error).sum(-1), (per_group * error).sum(-1)

        # One pass of the critic for both samples: rows with their subject, then rows with another subject
        def label_rows() -> tuple[Tensor, Tensor]:
            subject = torch.cat([term.nuisance, another_subject(term, groups, key)], 1)
            labels = (term.context.repeat(1, 2), self.contexts), (subject, self.nuisances)
            return with_labels(z.detach()[..., :0], *labels), per_group.repeat(1, 2)

        z = to_unit_variance(z, per_group).repeat(1, 2, 1)
        latents, weight = term.compute_once("other subjects", label_rows)  # the key depends on the step alone
        errors = weight * self.errors(torch.cat([z, latents], -1), z, frozen=frozen)
        real, fake = errors.view(len(z), 2, -1).sum(-1).unbind(1)
        return real, fake

    def errors(self, x: Tensor, z: Tensor, *, frozen: bool) -> Tensor:
        """Return the mean of |z − D(x)| over dimensions: x (P, B, inputs), z (P, B, D) -> (P, B)."""
        restored: Tensor = self.critic(x, frozen=frozen)
        return (z - restored).abs().mean(-1)


def another_subject(term: Term, groups: Groups, key: Tensor) -> Tensor:
    """Return for every row the subject of another group of its context (P, B).

    Groups of a context form a random cycle by hashes of their ids, and each group gets the id of the next one.
    """
    place = fold_in(key[:, None], term.nuisance).long()
    # distance from row i to row j around a cycle of 2³² places
    ahead = (place[..., None, :] - place[..., :, None]) & 0xFFFFFFFF
    others = groups.context & ~groups.group
    nearest = torch.where(others, ahead, 2**32).argmin(-1)
    return term.nuisance.gather(-1, nearest)
