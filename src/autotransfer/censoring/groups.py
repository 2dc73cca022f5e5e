"""Row algebra: groups as weights and masks on B rows, at a cost that does not depend on their number."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .. import gpu
from ..gpu import pairs
from .terms import Term


class Groups(NamedTuple):
    """Masks of the rows that are compared with each other.

    A nuisance group counts when it has at least `min_rows` rows and its context holds at least two
    groups that count. Rows that do not count are in no mask; their sizes are 1, so that dividing
    is safe, and their weights are 0.
    """

    counts: Tensor  # (P, B) bool
    context: Tensor  # (P, B, B) bool: both rows count and share their context
    group: Tensor  # (P, B, B) bool: both rows count and share their nuisance group
    context_rows: Tensor  # (P, B) rows in row i's context
    group_rows: Tensor  # (P, B) rows in row i's nuisance group
    context_groups: Tensor  # (P, B) counting groups in row i's context


def find_groups(term: Term, min_rows: int) -> Groups:
    """Apply the counting rule: groups as masks and sizes in the dtype of z."""

    def find() -> Groups:
        if gpu.available(term.z):
            return Groups(*pairs.find_groups(term.context, term.nuisance, min_rows))
        return _find_groups(term.context, term.nuisance, min_rows, term.z.dtype)

    return term.compute_once(("groups", min_rows, term.z.dtype), find)


def _find_groups(contexts: Tensor, nuisances: Tensor, min_rows: int, dtype: torch.dtype) -> Groups:
    present = contexts >= 0
    context = (contexts[..., :, None] == contexts[..., None, :]) & present[..., None]
    group = context & (nuisances[..., :, None] == nuisances[..., None, :])
    rows = group.sum(-1)
    enough = present & (rows >= min_rows)
    # Every group adds n rows of 1/n: a count of groups without a matrix over groups.
    one_each = enough.to(dtype) / rows.clamp(min=1)
    groups = (context * one_each[..., None, :]).sum(-1).round()
    counts = enough & (groups >= 2)
    both = counts[..., :, None] & counts[..., None, :]
    context, group = context & both, group & both
    one = torch.ones((), dtype=dtype, device=contexts.device)
    return Groups(
        counts,
        context,
        group,
        context.sum(-1).clamp(min=1).to(dtype),
        torch.where(counts, rows.to(dtype), one),
        torch.where(counts, groups, one),
    )


def equal_shares(counts: Tensor, rows: Tensor) -> Tensor:
    """Return row weights that sum to 1 and give every set the same share (all 0 where nothing counts).

    counts (P, B) bool, rows (P, B) the size of the set that holds row i -> (P, B).
    """
    weight = counts.to(rows.dtype) / rows
    return weight / weight.sum(-1, keepdim=True).clamp(min=1)


def over_context(values: Tensor, context: Tensor) -> Tensor:
    """Return for every row the sum over its context: (P, B) and the mask (P, B, B) in the dtype of z -> (P, B)."""
    return (context * values[..., None, :]).sum(-1)
