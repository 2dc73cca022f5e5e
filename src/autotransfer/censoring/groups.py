"""Groups of rows as masks and weights of B rows, at a cost that does not depend on the number of groups."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .. import gpu
from ..gpu import pairs
from .terms import Term


class Groups(NamedTuple):
    """Masks and sizes of the groups of each row.

    A nuisance group counts if it has at least `min_rows` rows and its context has at least two groups that count. Rows
    of other groups are in no mask; their sizes are 1, for safe division, and their weights are 0.
    """

    counts: Tensor  # (P, B) bool
    context: Tensor  # (P, B, B) bool: both rows count and share their context
    group: Tensor  # (P, B, B) bool: both rows count and share their nuisance group
    context_rows: Tensor  # (P, B) number of rows in row i's context
    group_rows: Tensor  # (P, B) number of rows in row i's nuisance group
    context_groups: Tensor  # (P, B) number of counting groups in row i's context


def find_groups(term: Term, min_rows: int) -> Groups:
    """Return the groups of a term, with sizes in the dtype of z."""

    def find() -> Groups:
        if gpu.is_available(term.z):
            return Groups(*pairs.find_groups(term.context, term.nuisance, min_rows))
        return _find_groups(term.context, term.nuisance, min_rows, term.z.dtype)

    return term.compute_once(("groups", min_rows, term.z.dtype), find)


def _find_groups(contexts: Tensor, nuisances: Tensor, min_rows: int, dtype: torch.dtype) -> Groups:
    present = contexts >= 0
    context = (contexts[..., :, None] == contexts[..., None, :]) & present[..., None]
    group = context & (nuisances[..., :, None] == nuisances[..., None, :])
    rows = group.sum(-1)
    enough = present & (rows >= min_rows)
    # The n rows of a group contribute 1/n each, so the sum is the number of groups.
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
    """Return row weights (P, B) with equal sums in every set, in total 1, or all 0 if no row counts.

    counts: (P, B) bool; rows: (P, B) size of the set that contains row i
    """
    weight = counts.to(rows.dtype) / rows
    return weight / weight.sum(-1, keepdim=True).clamp(min=1)
