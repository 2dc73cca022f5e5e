"""Penalties as printed in the paper: sums instead of means, pairs of a row with itself, and weight 1/M per subject.

Methods compute these penalties if `as_printed` is true, so that published strengths apply. docs/method.md explains the
default penalties. Three errors of the pseudocode are corrected: the signs of the adversary and of MIGE's entropies,
which would raise the dependence, and the second half of complementary pairwise MMD, which repeats the first half. If
text and pseudocode contradict each other, the equations are used: in conditional MIGE every class has weight 1/C, and
the critics of complementary censoring do not receive the class.

Sets without a defined estimate are left out: empty sets, and for MMD sets of one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from .kernel_matrices import rbf
from .method import MethodOptions
from .terms import Term


@dataclass(frozen=True, kw_only=True)
class PrintedOptions(MethodOptions):
    """Option of the methods in the paper: whether to compute the penalty as printed."""

    as_printed: bool | None = None  # None: the default penalty

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "as_printed", self.as_printed or None)


class PaperSets(NamedTuple):
    """Masks of the sets S_c (a context) and S_cm (subject m in a context) of the pseudocode. Padding rows are 0."""

    present: Tensor  # (P, B) 0 or 1
    context: Tensor  # (P, B, B) 0 or 1: both rows are in the same S_c
    group: Tensor  # (P, B, B) 0 or 1: both rows are in the same S_cm
    context_rows: Tensor  # (P, B) |S_c|, at least 1
    group_rows: Tensor  # (P, B) |S_cm|, at least 1


def find_paper_sets(term: Term) -> PaperSets:
    """Return the sets of a term in the dtype of z, including sets of one row."""

    def find() -> PaperSets:
        present = term.context >= 0
        context = (term.context[..., :, None] == term.context[..., None, :]) & present[..., None]
        group = context & (term.nuisance[..., :, None] == term.nuisance[..., None, :])
        masks = [mask.to(term.z.dtype) for mask in (present, context, group)]
        return PaperSets(*masks, *(mask.sum(-1).clamp(min=1) for mask in masks[1:]))

    return term.compute_once("sets", find)


def paper_weights(sets: PaperSets, nuisances: int) -> tuple[Tensor, Tensor]:
    """Return two row weights (P, B): for Σ_c (mean over S_c), and for Σ_c Σ_m (mean over S_cm) / M."""
    return sets.present / sets.context_rows, sets.present / (nuisances * sets.group_rows)


def mmd(d2: Tensor, beta: Tensor, sets: PaperSets) -> Tensor:
    """Return Σ MMD²(S_c, S_cm) (P,) over S_cm of at least two rows; cross terms include pairs of a row with itself."""
    kernel = rbf(d2, beta)
    to_context, to_group = (kernel * sets.context).sum(-1), (kernel * sets.group).sum(-1)
    self_pairs = kernel.diagonal(dim1=-2, dim2=-1)
    per_group = sets.present * (sets.group_rows >= 2) / sets.group_rows
    n_groups = (sets.context * per_group[..., None, :]).sum(-1)  # number of sets S_cm in S_c
    per_context = sets.present * n_groups / sets.context_rows
    within_context = (per_context * (to_context - self_pairs) / (sets.context_rows - 1).clamp(min=1)).sum(-1)
    within_group = (per_group * (to_group - self_pairs) / (sets.group_rows - 1).clamp(min=1)).sum(-1)
    cross = (per_group * to_context / sets.context_rows).sum(-1)
    return within_context + within_group - 2 * cross


def pairwise_mmd(d2: Tensor, beta: Tensor, sets: PaperSets, selection: Tensor) -> Tensor:
    """Return Σ MMD²(S_cr, S_ct) (P,) over classes c and selected ordered pairs (r, t) of subjects.

    selection: (P, B, B) bool, True if the subjects of rows i and j, in this order, are a selected pair
    """
    kernel = rbf(d2, beta)
    self_pairs = kernel.diagonal(dim1=-2, dim2=-1)
    row_weight = sets.present * (sets.group_rows >= 2) / sets.group_rows
    # Two sets of n and m rows have n·m pairs of rows with weight 1/(n·m).
    weight = (sets.context - sets.group) * selection * row_weight[..., :, None] * row_weight[..., None, :]
    to_group = ((kernel * sets.group).sum(-1) - self_pairs) / (sets.group_rows - 1).clamp(min=1)
    within = ((weight + weight.mT).sum(-1) * to_group).sum(-1)
    return within - 2 * (weight * kernel).sum(-1).sum(-1)
