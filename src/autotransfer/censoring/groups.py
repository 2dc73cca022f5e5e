"""Masks and weights of groups of rows; their cost does not depend on the number of groups."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .. import gpu
from ..gpu import pairs
from .terms import Term


class Groups(NamedTuple):
    """Masks and sizes of the groups of each row.

    A context is all rows, or the rows of one class. A nuisance group is the rows of one subject in a context. It is
    valid if it has at least `min_rows` rows and its context has at least two such groups. For rows of other groups all
    masks are False and the three counts are 1, so that divisions are safe; `equal_shares` gives them weight 0.
    """

    valid: Tensor  # (P, B) bool: the nuisance group of the row is valid
    context: Tensor  # (P, B, B) bool: both rows are valid and have the same context
    group: Tensor  # (P, B, B) bool: both rows are valid and have the same nuisance group
    context_rows: Tensor  # (P, B) number of rows in row i's context
    group_rows: Tensor  # (P, B) number of rows in row i's nuisance group
    context_groups: Tensor  # (P, B) number of valid groups in row i's context


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
    is_large = present & (rows >= min_rows)
    # The n rows of a group contribute 1/n each, so the sum is the number of groups.
    share = is_large.to(dtype) / rows.clamp(min=1)
    n_groups = (context * share[..., None, :]).sum(-1).round()
    valid = is_large & (n_groups >= 2)
    both_valid = valid[..., :, None] & valid[..., None, :]
    context, group = context & both_valid, group & both_valid
    return Groups(
        valid,
        context,
        group,
        context.sum(-1).clamp(min=1).to(dtype),
        torch.where(valid, rows.to(dtype), 1.0),
        torch.where(valid, n_groups, 1.0),
    )


def equal_shares(valid: Tensor, rows: Tensor) -> Tensor:
    """Return row weights (P, B) whose sums are equal in all sets and 1 in total, or 0 if no row is valid.

    valid: (P, B) bool; rows: (P, B) size of the set that contains row i
    """
    weight = valid.to(rows.dtype) / rows
    return weight / weight.sum(-1, keepdim=True).clamp(min=1)
