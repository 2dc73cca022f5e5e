"""Maximum mean discrepancy (MMD) between nuisance groups and their contexts, or between pairs of nuisance groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from .. import gpu
from ..errors import UserError, check_choice, check_positive
from ..gpu import pairs
from ..randomness import fold_in, uniform
from . import printed
from .groups import Groups, equal_shares, find_groups
from .kernel_matrices import KernelMethod, KernelOptions, diagonal, rbf
from .method import MethodOptions
from .printed import PrintedOptions, find_paper_sets
from .terms import Term, TermSpec

PAIRS = ("all", "bernoulli", "clique")


@dataclass(frozen=True, kw_only=True)
class MMDOptions(PrintedOptions, KernelOptions):
    """Options of MMD."""

    @property
    def name_parts(self) -> list[str]:
        """Return the parts of a setting's name that distinguish settings of the method."""
        return [str(self.length_scale), *self._changed_parts("length_scale", "pairs", "fraction", "size")]


@dataclass(frozen=True, kw_only=True)
class PairwiseMMDOptions(MMDOptions):
    """Options of pairwise MMD."""

    pairs: str = "all"
    fraction: float | None = None  # for pairs="bernoulli"; default .5
    size: int | None = None  # for pairs="clique"; default 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("pairs", self.pairs, PAIRS)
        fraction = (0.5 if self.fraction is None else self.fraction) if self.pairs == "bernoulli" else None
        size = (2 if self.size is None else self.size) if self.pairs == "clique" else None
        object.__setattr__(self, "fraction", fraction)
        object.__setattr__(self, "size", size)
        check_positive(self, "fraction")
        if fraction is not None and fraction > 1:
            raise UserError(f"fraction is {fraction}; it must be above 0 and at most 1")
        if size is not None and size < 2:
            raise UserError(f"size is {size}; it must be at least 2 subjects")

    @property
    def name_parts(self) -> list[str]:
        if self.pairs == "all":
            return super().name_parts
        return [*super().name_parts, f"{self.pairs} {self.size if self.fraction is None else self.fraction}"]


def off_diagonal_kernel(d2: Tensor, beta: Tensor) -> Tensor:
    """Return the RBF kernel (P, B, B) with 0 on the diagonal, for β (P, B, B) or (P, B, 1)."""
    return rbf(d2, beta).masked_fill(diagonal(d2), 0.0)


class MMD(KernelMethod):
    """Squared MMD between a nuisance group g and its context c, averaged over all valid groups.

        within(c) + within(g) − 2 · cross(c, g)

    `within` is the mean of K_ij over ordered pairs i ≠ j, `cross` the mean over i ∈ c, j ∈ g, i ≠ j. The estimate is
    unbiased, because no mean includes pairs of a row with itself.
    """

    options: MMDOptions
    label = "MMD"
    Options = MMDOptions
    strengths = (1.0, 3.0, 10.0, 30.0, 100.0)  # published strengths
    core_strengths: ClassVar[dict[str, float]] = {"conditional": 1.0}
    quick_strengths: ClassVar[dict[str, float]] = {"marginal": 0.3, "conditional": 1.0, "complementary": 0.3}
    useful_strengths = (0.3, 1.0)
    sampled_strengths = (0.03, 10.0)

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        if self.options.as_printed:
            sets = find_paper_sets(term)
            return printed.mmd(*self.distances(term.z, sets.context > 0), sets)
        groups = find_groups(term, self.min_rows)
        if gpu.is_available(term.z):
            d2, beta, by_row = self.distances_and_scales(term.z, groups.context)
            return pairs.mean_discrepancy(d2, beta, *groups, by_row=by_row)
        return mean_discrepancy(off_diagonal_kernel(*self.distances(term.z, groups.context)), groups)


def mean_discrepancy(kernel: Tensor, groups: Groups) -> Tensor:
    """Return the squared MMD (P,) between groups and contexts, for a kernel (P, B, B) with 0 on the diagonal."""
    # (P, B): mean kernel between row i and the other rows of its context, and of its group
    to_context = (kernel * groups.context).sum(-1) / (groups.context_rows - 1).clamp(min=1)
    to_group = (kernel * groups.group).sum(-1) / (groups.group_rows - 1).clamp(min=1)
    per_group = equal_shares(groups.valid, groups.group_rows)
    # The weight of a context is its number of groups, because within(c) is added once per group.
    per_context = equal_shares(groups.valid, groups.context_rows / groups.context_groups)
    within_context = (per_context * to_context).sum(-1)
    within_group = (per_group * to_group).sum(-1)
    cross = (per_group * to_context).sum(-1)
    return within_context + within_group - 2 * cross


class PairwiseMMD(KernelMethod):
    """Squared MMD between two valid groups g and h of one context, averaged over selected ordered pairs (g, h).

        within(g) + within(h) − 2 · cross(g, h)

    Pairs of subjects are selected in every step, equally for all contexts and terms: all pairs (`all`), each pair with
    probability `fraction` (`bernoulli`), or all pairs of `size` random subjects of the context (`clique`).
    """

    options: PairwiseMMDOptions
    label = "Pairwise MMD"
    Options = PairwiseMMDOptions
    strengths, useful_strengths = MMD.strengths, MMD.useful_strengths
    sampled_strengths = MMD.sampled_strengths
    core_strengths: ClassVar[dict[str, float]] = {"conditional": 1.0}
    quick_strengths: ClassVar[dict[str, float]] = {"marginal": 0.3, "conditional": 1.0}

    def __init__(self, spec: TermSpec, options: Sequence[MethodOptions]) -> None:
        super().__init__(spec, options)
        size = self.options.size
        if size is not None and size > spec.nuisances:
            raise UserError(
                f"size is {size}; a clique has 2 to {spec.nuisances} subjects, the number of training subjects"
            )

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        if self.options.as_printed:
            sets = find_paper_sets(term)
            selection = self.select_pairs(term, key, self.rank_all_subjects)
            return printed.pairwise_mmd(*self.distances(term.z, sets.context > 0), sets, selection)
        groups = find_groups(term, self.min_rows)
        selection = self.select_pairs(term, key, partial(self.rank_valid_subjects, groups))
        if gpu.is_available(term.z):
            d2, beta, by_row = self.distances_and_scales(term.z, groups.context)
            masks = (groups.context, groups.group, selection)
            return pairs.pairwise_discrepancy(d2, beta, *masks, groups.group_rows, by_row=by_row)
        return pairwise_discrepancy(*self.distances(term.z, groups.context), groups, selection)

    def select_pairs(self, term: Term, key: Tensor, rank: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Return a mask (P, B, B) that is True if the subjects of rows i and j, in this order, are a selected pair.

        rank: maps key (P,) and hashed subjects (P, B) to the rank of each row's subject in a random order (P, B)
        """
        subject = fold_in(key[:, None], term.nuisance)  # (P, B) hashes, one to one
        if self.options.fraction is not None:
            pair = fold_in(subject[..., :, None], term.nuisance[..., None, :])
            return uniform(pair, 1)[..., 0] < self.options.fraction
        if self.options.size is not None:
            in_clique = rank(key, subject) < self.options.size
            return in_clique[..., :, None] & in_clique[..., None, :]
        return torch.ones((*subject.shape, subject.shape[-1]), dtype=torch.bool, device=subject.device)

    def rank_valid_subjects(self, groups: Groups, key: Tensor, subject: Tensor) -> Tensor:
        """Return the ranks of subjects among all subjects with a valid group in the context."""
        is_smaller = groups.context & (subject[..., None, :] < subject[..., :, None])
        return (is_smaller / groups.group_rows[..., None, :]).sum(-1).round()

    def rank_all_subjects(self, key: Tensor, subject: Tensor) -> Tensor:
        """Return the ranks of subjects among all training subjects, as printed in the paper."""
        all_subjects = fold_in(key[:, None], torch.arange(self.nuisances, device=key.device))  # (P, M)
        return (all_subjects[:, None, :] < subject[..., None]).sum(-1)


def pairwise_discrepancy(d2: Tensor, beta: Tensor, groups: Groups, selection: Tensor) -> Tensor:
    """Return the squared MMD (P,) between selected pairs of groups; selection: (P, B, B) bool, pairs of rows."""
    kernel = off_diagonal_kernel(d2, beta)
    is_pair = groups.context & ~groups.group & selection
    row_weight = 1 / groups.group_rows
    # Two groups of n and m rows have n·m pairs of rows with weight 1/(n·m).
    weight = is_pair * row_weight[..., :, None] * row_weight[..., None, :]
    weight = weight / weight.sum(-1).sum(-1).round().clamp(min=1)[:, None, None]
    to_group = (kernel * groups.group).sum(-1) / (groups.group_rows - 1).clamp(min=1)
    within = ((weight + weight.mT).sum(-1) * to_group).sum(-1)
    cross = (weight * kernel).sum(-1).sum(-1)
    return within - 2 * cross
