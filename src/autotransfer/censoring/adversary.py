"""Adversary: a critic reads the subject from z, and the encoder makes it fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from .critics import MLP, CriticOptions, label_width, one_rate_in_print, with_labels
from .groups import equal_shares, find_groups
from .method import Method, MethodOptions
from .printed import PrintedOptions, row_sums
from .terms import Term, TermSpec


@dataclass(frozen=True, kw_only=True)
class AdversaryOptions(PrintedOptions, CriticOptions):
    def __post_init__(self) -> None:
        super().__post_init__()
        one_rate_in_print(self)


class Adversary(Method):
    """dependence = −cross-entropy(critic(z, context), nuisance); the critic minimises the cross-entropy.

    I(z; s | context) ≥ H(s | context) − cross-entropy. Row weights let every context count the same.
    """

    label = "Adversary"
    Options = AdversaryOptions
    per_member = ("critic_lr",)
    quick: ClassVar[dict[str, float]] = {"marginal": 0.03}
    useful = (0.03, 0.1)

    def __init__(self, spec: TermSpec, options: Sequence[MethodOptions]) -> None:
        super().__init__(spec, options)
        shared = options[0]
        assert isinstance(shared, AdversaryOptions)
        self.contexts, self.printed = spec.contexts, shared.as_printed
        inputs = spec.dim + label_width(spec.contexts)
        self.critic = MLP(inputs, shared.critic_hidden, spec.nuisances, keys=spec.keys, members=spec.members)

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        return -self.cross_entropy(term, term.z, frozen=True)

    def critic_loss(self, term: Term, key: Tensor) -> Tensor:
        return self.cross_entropy(term, term.z.detach(), frozen=False)

    def cross_entropy(self, term: Term, z: Tensor, *, frozen: bool) -> Tensor:
        """(P,)"""
        logits: Tensor = self.critic(with_labels(z, (term.context, self.contexts)), frozen=frozen)
        target = term.nuisance.clamp(min=0)[..., None]
        nll = -logits.log_softmax(-1).gather(-1, target)[..., 0]
        return (self.weights(term) * nll).sum(-1)

    def weights(self, term: Term) -> Tensor:
        """Of rows, (P, B)."""
        if self.printed:
            return row_sums(term, self.contexts)
        groups = find_groups(term, self.min_rows)
        return term.once("equal contexts", lambda: equal_shares(groups.counts, groups.context_rows))
