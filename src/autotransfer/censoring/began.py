"""BEGAN discriminator: an autoencoder that distinguishes two distributions by reconstruction errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import check_choice
from ..randomness import fold_in
from .critics import MLP, CriticOptions, append_labels, label_width, to_unit_variance
from .groups import Groups, equal_shares, find_groups
from .method import Method, MethodOptions, stack_option
from .printed import find_paper_sets, paper_weights
from .terms import Term, TermSpec

# Initial k of the variant "labelled". With k = 0 the critic would not learn to distinguish subjects.
LABELLED_K = 0.7
# γ of each variant: the published value for "paper"; for "labelled" the value at which independence means real = fake
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
        diversity = [] if self.diversity == DIVERSITY[self.variant] else [f"diversity {self.diversity}"]
        return [*variant, *diversity, *self._changed_parts("variant", "diversity")]


class BEGAN(Method):
    """Dependence from two mean reconstruction errors, real and fake, of a critic D, an autoencoder of z.

    D minimizes real − k·fake. After each main step k ← clip(k + β(γ·real − fake), 0, 1), with the errors of the latest
    penalty in training mode.

    `labelled`: D receives the subject. real is the mean of |z − D(z, s)| with the row's subject, fake the mean with
    the subject of another group of the context; all groups have equal weight. Both means are over the same z and the
    same subjects in different pairs, so the dependence

        fake − real

    has mean 0 for any D if z ⟂ s. k starts at .7. With γ = 1, k falls while D distinguishes the pairs. D receives z
    standardized over the batch, and gradients flow through the standardization. Otherwise an encoder could lower the
    errors by shrinking z (or raise the errors by inflating z in a term with sign −1) while subjects stay readable.

    `paper`: D does not receive the subject. real is the mean of |z − D(z)| over contexts, fake the mean over nuisance
    groups. The dependence is fake, or −(real − k·fake) in a term with sign −1. This variant only compresses z, and
    fails a control (docs/method.md).
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
        self.has_labels = self.options.variant != "paper"
        labels = label_width(spec.contexts, spec.nuisances) if self.has_labels else 0
        self.critic = MLP(spec.dim + labels, self.options.critic_hidden, spec.dim, keys=spec.keys, members=spec.members)
        self.register_buffer("rate", stack_option(options, "control_rate", spec.members))
        self.register_buffer("diversity", stack_option(options, "diversity", spec.members))
        self.register_buffer("k", torch.full_like(self.rate, LABELLED_K if self.has_labels else 0.0))
        self.register_buffer("balance", torch.zeros_like(self.rate), persistent=False)

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        real, fake = self.losses(term, term.z, key, frozen=True)
        if self.training:
            balance = self.diversity.reshape(-1) * real.detach() - fake.detach()
            self.balance.copy_(balance.reshape(self.balance.shape))
        if self.has_labels:
            return fake - real
        return fake if term.sign > 0 else -self.critic_objective(real, fake)

    def critic_loss(self, term: Term, key: Tensor) -> Tensor:
        return self.critic_objective(*self.losses(term, term.z.detach(), key, frozen=False))

    def critic_objective(self, real: Tensor, fake: Tensor) -> Tensor:
        """Return real − k · fake, the loss of the critic."""
        return real - self.k.reshape(-1).to(real.dtype) * fake

    def after_step(self, active: Tensor) -> None:
        new_k = (self.k + self.rate * self.balance).clamp(0, 1)
        self.k.copy_(torch.where(active.reshape(self.k.shape), new_k, self.k))
        self.balance.zero_()

    def losses(self, term: Term, z: Tensor, key: Tensor, *, frozen: bool) -> tuple[Tensor, Tensor]:
        """Return the means real and fake of reconstruction errors, (P,) each."""
        groups = find_groups(term, self.min_rows)
        per_group = term.compute_once("equal groups", lambda: equal_shares(groups.valid, groups.group_rows))
        if not self.has_labels:
            error = self.errors(z, z, frozen=frozen)
            per_context = term.compute_once("equal contexts", lambda: equal_shares(groups.valid, groups.context_rows))
            if self.options.as_printed:
                per_context, per_group = paper_weights(find_paper_sets(term), self.nuisances)
            return (per_context * error).sum(-1), (per_group * error).sum(-1)

        def encode_labels() -> tuple[Tensor, Tensor]:
            subject = torch.cat([term.nuisance, draw_other_subjects(term, groups, key)], 1)
            labels = (term.context.repeat(1, 2), self.contexts), (subject, self.nuisances)
            return append_labels(z.detach()[..., :0], *labels), per_group.repeat(1, 2)

        z = to_unit_variance(z, per_group).repeat(1, 2, 1)
        # One call of the critic reconstructs all rows with their own subjects, then all rows with other subjects.
        one_hot, weight = term.compute_once("other subjects", encode_labels)  # the key is constant within a step
        errors = weight * self.errors(torch.cat([z, one_hot], -1), z, frozen=frozen)
        real, fake = errors.view(len(z), 2, -1).sum(-1).unbind(1)
        return real, fake

    def errors(self, x: Tensor, z: Tensor, *, frozen: bool) -> Tensor:
        """Return the mean of |z − D(x)| over dimensions: x (P, B, inputs), z (P, B, D) -> (P, B)."""
        reconstruction: Tensor = self.critic(x, frozen=frozen)
        return (z - reconstruction).abs().mean(-1)


def draw_other_subjects(term: Term, groups: Groups, key: Tensor) -> Tensor:
    """Return the subject (P, B) of another group of each row's context.

    The groups of a context form a random cycle in the order of their hashed ids, and each group gets the next id.
    """
    position = fold_in(key[:, None], term.nuisance).long()
    # steps from row i to row j around a cycle of 2³² positions
    distance = (position[..., None, :] - position[..., :, None]) & 0xFFFFFFFF
    is_other_group = groups.context & ~groups.group
    next_row = torch.where(is_other_group, distance, 2**32).argmin(-1)
    return term.nuisance.gather(-1, next_row)
