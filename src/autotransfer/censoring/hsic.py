"""Hilbert–Schmidt independence criterion (HSIC) of latents and subjects."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from .groups import Groups, equal_shares, find_groups, over_context
from .kernel_matrices import KernelMethod, diagonal, rbf
from .terms import Term


class HSIC(KernelMethod):
    """Mean over contexts of HSIC(z, s) / HSIC(s, s), with an RBF kernel K on z and a kernel L on the nuisance.

    Both are the unbiased estimate HSIC₁ of Song et al. (2012): for the m rows of a context, with 0 on the diagonals of
    K and L,

        HSIC = [ tr KL + (1ᵀK1)(1ᵀL1) / (m−1)(m−2) − 2 · 1ᵀKL1 / (m−2) ] / m(m−3)

    HSIC(z, s) has mean 0 if z ⟂ s. It decreases as 1/M with the number M of subjects, and so does HSIC(s, s), which
    does not depend on z, so that the strength does not depend on M. HSIC(s, s) is a mean of squares and positive.
    """

    label = "HSIC"
    useful_strengths = (1.0, 3.0)
    sampled_strengths = (0.1, 10.0)

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        groups = find_groups(term, self.min_rows)
        d2, beta = self.distances(term.z, groups.context)
        nuisance = term.compute_once("hsic", lambda: make_nuisance_kernel(term, groups))
        own = hsic(nuisance.others * rbf(d2, beta), nuisance.kernel, nuisance.context)
        return (nuisance.weight * own).sum(-1)


class NuisanceKernel(NamedTuple):
    """Tensors of HSIC that do not depend on z."""

    others: Tensor  # (P, B, B) bool: pairs of different rows of a context
    context: Tensor  # (P, B, B) in the dtype of z
    kernel: Tensor  # (P, B, B) L, 0 outside `others`
    weight: Tensor  # (P, B) share of a row's context over its HSIC(s, s)


def make_nuisance_kernel(term: Term, groups: Groups) -> NuisanceKernel:
    """Return the kernel of the nuisance and its weights."""
    kernel = (term.nuisance[..., :, None] == term.nuisance[..., None, :]).to(term.z.dtype)
    others = groups.context & ~diagonal(kernel)
    context, kernel = groups.context.to(kernel.dtype), others * kernel
    weight = equal_shares(groups.counts, groups.context_rows) / hsic(kernel, kernel, context).clamp(min=1e-12)
    return NuisanceKernel(others, context, kernel, weight)


def hsic(k: Tensor, l: Tensor, context: Tensor) -> Tensor:  # noqa: E741
    """Return the estimate in each row's context (P, B); kernels (P, B, B) are 0 at i = j and between contexts."""
    m = context.sum(-1).clamp(min=4)  # a context has at least four rows
    k1, l1 = k.sum(-1), l.sum(-1)
    trace, of_k, of_l, of_both = (over_context(rows, context) for rows in ((k * l).sum(-1), k1, l1, k1 * l1))
    return (trace + of_k * of_l / ((m - 1) * (m - 2)) - 2 * of_both / (m - 2)) / (m * (m - 3))
