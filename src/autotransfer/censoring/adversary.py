"""Adversary: a critic predicts the subject from z, and the encoder is trained to make the critic fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from .critics import MLP, CriticOptions, append_labels, label_width
from .groups import equal_shares, find_groups
from .method import Method, MethodOptions
from .printed import find_paper_sets
from .terms import Term, TermSpec


class Adversary(Method):
    """Negative cross-entropy of a critic that predicts the nuisance group from z and the context.

    It bounds the dependence: I(z; s | context) ≥ H(s | context) − cross-entropy. All contexts have equal weight.
    """

    options: CriticOptions
    label = "Adversary"
    Options = CriticOptions
    per_member = ("critic_lr",)
    quick_strengths: ClassVar[dict[str, float]] = {"marginal": 0.03}
    useful_strengths = (0.03, 0.1)

    def __init__(self, spec: TermSpec, options: Sequence[MethodOptions]) -> None:
        super().__init__(spec, options)
        inputs, hidden = spec.dim + label_width(spec.contexts), self.options.critic_hidden
        self.critic = MLP(inputs, hidden, spec.nuisances, keys=spec.keys, members=spec.members)

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        return -self.cross_entropy(term, term.z, frozen=True)

    def critic_loss(self, term: Term, key: Tensor) -> Tensor:
        return self.cross_entropy(term, term.z.detach(), frozen=False)

    def cross_entropy(self, term: Term, z: Tensor, *, frozen: bool) -> Tensor:
        """Return the critic's cross-entropy (P,)."""
        logits: Tensor = self.critic(append_labels(z, (term.context, self.contexts)), frozen=frozen)
        target = term.nuisance.clamp(min=0)[..., None]
        nll = -logits.log_softmax(-1).gather(-1, target)[..., 0]
        return (self.weights(term) * nll).sum(-1)

    def weights(self, term: Term) -> Tensor:
        """Return row weights (P, B)."""
        if self.options.as_printed:
            sets = find_paper_sets(term)  # the weight of a row is 1, or 1/|S_c| if the contexts are classes
            return sets.present if self.contexts == 1 else sets.present / sets.context_rows
        groups = find_groups(term, self.min_rows)
        return term.compute_once("equal contexts", lambda: equal_shares(groups.valid, groups.context_rows))
