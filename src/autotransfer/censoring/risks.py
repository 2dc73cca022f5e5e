"""Risks: the mean loss of every group that counts, and weights of the groups inside their contexts."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..fusing import fused
from .groups import Groups, find_groups
from .method import Method
from .terms import Term


class Risks(NamedTuple):
    """Of C contexts, which are few: a (P, C, B) tensor is smaller than the masks that groups are found with.

    Rows of groups that do not count have weight 0 everywhere; a context in which none counts has weight 0.
    """

    counts: Tensor  # (P, B) bool
    risk: Tensor  # (P, B) mean loss of row i's group
    share: Tensor  # (P, C, B) row weights that sum to 1 and give every counting group of the context the same
    groups: Tensor  # (P, C) how many there are
    weight: Tensor  # (P, C) share of a context in all rows that count, as it has in the task's loss


class RiskMethod(Method):
    """A method that reads the losses of rows."""

    modes = ("marginal", "conditional")  # a risk belongs to the whole code: there are no halves to treat differently
    reads_losses = True
    useful = (0.3, 1.0)
    sampled = (0.1, 1.0)

    def risks(self, term: Term) -> Risks:
        assert term.loss is not None  # Censor sees to it
        return _risks(term.loss, term.context, find_groups(term, self.min_rows), self.contexts)


@fused
def _risks(loss: Tensor, context: Tensor, groups: Groups, contexts: int) -> Risks:
    risk = (groups.group * loss[..., None, :]).sum(-1) / groups.group_rows
    ids = torch.arange(contexts, device=context.device)[:, None]
    inside = groups.counts[:, None] & (context[:, None] == ids)
    share = inside.to(loss.dtype) / groups.group_rows[:, None]  # n rows of 1/n: a group is 1
    number = share.sum(-1).round()
    rows = inside.sum(-1).to(loss.dtype)
    weight = rows / rows.sum(-1, keepdim=True).clamp(min=1)
    return Risks(groups.counts, risk, share / number.clamp(min=1)[..., None], number, weight)


def average(risks: Risks, weights: Tensor) -> Tensor:
    """Risks weighed inside each context by row weights (P, C, B), and averaged over contexts: (P,)."""
    return (risks.weight * (weights * risks.risk[:, None]).sum(-1)).sum(-1)


def tilted(share: Tensor, log_weight: Tensor) -> Tensor:
    """Weights ∝ share · exp(log_weight) that sum to 1 in every context: (P, C, B), (P, 1 or C, B) -> (P, C, B)."""
    weights = (share.log() + log_weight).softmax(-1)
    return torch.where(share > 0, weights, torch.zeros_like(share))  # also where a context is empty
