"""Maximum mean discrepancy: each nuisance group against its context, or against the other groups."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .. import gpu
from ..errors import UserError
from ..fusing import fused
from ..gpu import pairs
from ..randomness import fold_in, uniform
from ..settings import Setting
from .groups import Groups, equal_shares, find_groups
from .kernels import check_length_scale, diagonal, inverse_scales, own_distances, pair_scales, radial
from .method import Method
from .terms import Term, TermSpec


def other_rows_kernel(d2: Tensor, beta: Tensor) -> Tensor:
    """RBF kernel with nothing on the diagonal: (P, B, B), β (P, B, B) or (P, B, 1) -> (P, B, B)."""
    return radial("rbf", 0, d2, beta).masked_fill(diagonal(d2), 0.0)


class MMD(Method):
    """Mean over counting nuisance groups g, c their context, of

        within(c) + within(g) − 2 · cross(c, g)

    with within = mean of K_ij over ordered pairs i ≠ j and cross = mean over i ∈ c, j ∈ g, i ≠ j. Leaving
    out a row's pair with itself, also in the cross term, makes the estimate unbiased.
    """

    def __init__(self, spec: TermSpec, settings: Sequence[Setting]) -> None:
        super().__init__(spec, settings)
        self.length_scale = settings[0].length_scale or "median"
        check_length_scale(self.length_scale)

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        groups = find_groups(term, self.min_rows)
        d2 = own_distances(term.z)
        beta = inverse_scales(d2, groups.context, self.length_scale)
        if gpu.available(d2):
            return pairs.groups_against_contexts(d2, beta, *groups, paired=self.length_scale == "perplexity")
        return groups_against_contexts(d2, pair_scales(beta, self.length_scale), groups)


@fused
def groups_against_contexts(d2: Tensor, beta: Tensor, groups: Groups) -> Tensor:
    """The estimate of MMD from distances (P, B, B) and inverse scales of pairs: -> (P,)."""
    kernel = other_rows_kernel(d2, beta)
    # What row i shares with the others of its context and of its group, on average: (P, B)
    to_context = (kernel * groups.context).sum(-1) / (groups.context_rows - 1).clamp(min=1)
    to_group = (kernel * groups.group).sum(-1) / (groups.group_rows - 1).clamp(min=1)
    per_group = equal_shares(groups.counts, groups.group_rows)
    # within(c) appears once for each group of c, so a context weighs as much as it has groups.
    per_context = equal_shares(groups.counts, groups.context_rows / groups.context_groups)
    within_context = (per_context * to_context).sum(-1)
    within_group = (per_group * to_group).sum(-1)
    cross = (per_group * to_context).sum(-1)
    return within_context + within_group - 2 * cross


class PairwiseMMD(Method):
    """Mean over selected ordered pairs (g, h) of counting groups of one context of

        within(g) + within(h) − 2 · cross(g, h)

    Pairs of subjects are drawn anew at every step, alike in all contexts and terms: `all`, each with
    probability `fraction` (`bernoulli`), or those among `size` subjects of the context (`clique`).
    """

    def __init__(self, spec: TermSpec, settings: Sequence[Setting]) -> None:
        super().__init__(spec, settings)
        setting = settings[0]
        self.length_scale = setting.length_scale or "median"
        check_length_scale(self.length_scale)
        self.pairs, self.fraction, self.size = setting.pairs, setting.fraction, setting.size
        if self.size is not None and self.size > spec.nuisances:
            raise UserError(
                f"size is {self.size}; a clique has 2 to {spec.nuisances} subjects, for that is all there are"
            )

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        groups = find_groups(term, self.min_rows)
        d2 = own_distances(term.z)
        beta = inverse_scales(d2, groups.context, self.length_scale)
        selection = self.selection(term, groups, key)
        if gpu.available(d2):
            masks = (groups.context, groups.group, selection)
            return pairs.groups_against_groups(
                d2, beta, *masks, groups.group_rows, paired=self.length_scale == "perplexity"
            )
        return groups_against_groups(d2, pair_scales(beta, self.length_scale), groups, selection)

    def selection(self, term: Term, groups: Groups, key: Tensor) -> Tensor:
        """(P, B, B) bool: whether the subjects of rows i and j, in this order, form a selected pair."""
        subject = fold_in(key[:, None], term.nuisance)  # (P, B): distinct for distinct subjects
        if self.fraction is not None:
            pair = fold_in(subject[..., :, None], term.nuisance[..., None, :])
            return uniform(pair, 1)[..., 0] < self.fraction
        if self.size is not None:
            # The first subjects of a random order, among those that count, so that a clique is never
            # empty because its subjects are not in the batch.
            before = groups.context & (subject[..., None, :] < subject[..., :, None])
            rank = (before / groups.group_rows[..., None, :]).sum(-1).round()
            chosen = rank < self.size
            return chosen[..., :, None] & chosen[..., None, :]
        return torch.ones_like(groups.context)


@fused
def groups_against_groups(d2: Tensor, beta: Tensor, groups: Groups, selection: Tensor) -> Tensor:
    """The estimate of pairwise MMD over the selected pairs of rows (P, B, B) bool: -> (P,)."""
    kernel = other_rows_kernel(d2, beta)
    selected = groups.context & ~groups.group & selection
    weight = 1 / groups.group_rows
    # n·m pairs of rows, each 1/(n·m): a pair of groups is 1
    pair = selected * weight[..., :, None] * weight[..., None, :]
    pair = pair / pair.sum(-1).sum(-1).round().clamp(min=1)[:, None, None]
    to_group = (kernel * groups.group).sum(-1) / (groups.group_rows - 1).clamp(min=1)
    within = ((pair + pair.mT).sum(-1) * to_group).sum(-1)
    cross = (pair * kernel).sum(-1).sum(-1)
    return within - 2 * cross
