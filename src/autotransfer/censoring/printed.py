"""The penalties as the paper prints them: sums in place of averages, self-pairs kept, every subject weighing 1/M.

Our own forms differ where print cannot work, or makes a strength depend on the number of subjects (docs/method.md says
where and why). With `as_printed` a method follows the pseudocode, so that published strengths mean what they meant.
Where that would do the opposite, or nothing, it is repaired: the signs of the adversary and of MIGE's entropies, which
would raise the dependence; and the second half of complementary pairwise MMD, printed as the first half once more.
Where text and pseudocode contradict each other we follow the equations: conditional MIGE weighs every class 1/C, and
the critics of complementary censoring do not see the class.

A set that an estimate is not defined for is left out: an empty one, and for MMD one of a single row.
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
    """Options of the methods that the paper has."""

    as_printed: bool | None = None  # None: our form

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "as_printed", self.as_printed or None)


class PaperSets(NamedTuple):
    """S_c and S_cm of the pseudocode, for every row those that hold it. Rows that are padding weigh 0."""

    present: Tensor  # (P, B) 0 or 1
    context: Tensor  # (P, B, B) 0 or 1: both rows are in one S_c
    group: Tensor  # (P, B, B) 0 or 1: both are in one S_cm
    context_rows: Tensor  # (P, B) |S_c|, at least 1
    group_rows: Tensor  # (P, B) |S_cm|, at least 1


def find_paper_sets(term: Term) -> PaperSets:
    """Return every set there is, however small, in the dtype of z."""

    def find() -> PaperSets:
        present = term.context >= 0
        context = (term.context[..., :, None] == term.context[..., None, :]) & present[..., None]
        group = context & (term.nuisance[..., :, None] == term.nuisance[..., None, :])
        numbers = [mask.to(term.z.dtype) for mask in (present, context, group)]
        return PaperSets(*numbers, *(mask.sum(-1).clamp(min=1) for mask in numbers[1:]))

    return term.compute_once("sets", find)


def paper_weights(sets: PaperSets, nuisances: int) -> tuple[Tensor, Tensor]:
    """Return weights of rows in Σ_c mean over S_c, and in Σ_c Σ_m 1/M mean over S_cm: two (P, B)."""
    return sets.present / sets.context_rows, sets.present / (nuisances * sets.group_rows)


def mmd(d2: Tensor, beta: Tensor, sets: PaperSets) -> Tensor:
    """Return Σ over S_cm of at least two rows of MMD²(S_c, S_cm), self-pairs kept in the cross term: (P,)."""
    kernel = rbf(d2, beta)
    to_context, to_group = (kernel * sets.context).sum(-1), (kernel * sets.group).sum(-1)
    self_pairs = kernel.diagonal(dim1=-2, dim2=-1)
    per_group = sets.present * (sets.group_rows >= 2) / sets.group_rows
    n_groups = (sets.context * per_group[..., None, :]).sum(-1)  # that S_c is compared with
    per_context = sets.present * n_groups / sets.context_rows
    within_context = (per_context * (to_context - self_pairs) / (sets.context_rows - 1).clamp(min=1)).sum(-1)
    within_group = (per_group * (to_group - self_pairs) / (sets.group_rows - 1).clamp(min=1)).sum(-1)
    cross = (per_group * to_context / sets.context_rows).sum(-1)
    return within_context + within_group - 2 * cross


def pairwise_mmd(d2: Tensor, beta: Tensor, sets: PaperSets, selection: Tensor) -> Tensor:
    """Return Σ over the selected ordered pairs (r, t) of subjects, and classes c, of MMD²(S_cr, S_ct): (P,).

    selection: (P, B, B) bool, whether the subjects of rows i and j, in this order, are selected.
    """
    kernel = rbf(d2, beta)
    self_pairs = kernel.diagonal(dim1=-2, dim2=-1)
    weight = sets.present * (sets.group_rows >= 2) / sets.group_rows
    # n·m pairs of rows, each 1/(n·m): a pair of sets is 1
    pair = (sets.context - sets.group) * selection * weight[..., :, None] * weight[..., None, :]
    to_group = ((kernel * sets.group).sum(-1) - self_pairs) / (sets.group_rows - 1).clamp(min=1)
    within = ((pair + pair.mT).sum(-1) * to_group).sum(-1)
    return within - 2 * (pair * kernel).sum(-1).sum(-1)
