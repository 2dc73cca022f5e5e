"""Cauchy–Schwarz divergence: the angle between the density of each nuisance group and that of its context."""

from __future__ import annotations

from torch import Tensor

from .groups import equal_shares, find_groups, over_context
from .kernel_matrices import KernelMethod
from .mmd import off_diagonal_kernel
from .terms import Term

_LEAST = 1e-12  # smallest mean kernel value, so that its logarithm is finite


class CauchySchwarz(KernelMethod):
    """Mean over counting nuisance groups g of the divergence of their density p and the density q of their context c.

        −log [(∫pq)² / ∫p² ∫q²] = log within(g) + log within(c) − 2 · log cross(c, g)

    The divergence (Principe et al. 2000) is estimated by kernel densities, with means of K_ij over i ≠ j as in MMD. The
    logarithm of a noisy mean is too small by half its relative variance. For random groups of the context this variance
    is known and added, so that the estimate has mean 0 to second order in the noise if z ⟂ s.
    """

    label = "Cauchy–Schwarz"
    useful_strengths = (1.0, 3.0)
    sampled_strengths = (0.1, 10.0)

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        groups = find_groups(term, self.min_rows)
        d2, beta = self.distances(term.z, groups.context)
        n, N = groups.group_rows, groups.context_rows
        group, context = groups.group.to(d2.dtype), groups.context.to(d2.dtype)
        kernel = context * off_diagonal_kernel(d2, beta)
        # (P, B): mean kernel of row i with other rows of its context and of its group, and means of these
        to_context = kernel.sum(-1) / (N - 1).clamp(min=1)
        to_group = (kernel * group).sum(-1) / (n - 1).clamp(min=1)
        within_context = over_context(to_context, context) / N
        within_group = (group * to_group[..., None, :]).sum(-1) / n
        cross = (group * to_context[..., None, :]).sum(-1) / n
        angle = _log(within_group) + _log(within_context) - 2 * _log(cross) + bias(kernel, context, n, N)
        return (equal_shares(groups.counts, n) * angle).sum(-1)


def bias(kernel: Tensor, context: Tensor, n: Tensor, N: Tensor) -> Tensor:
    """Return the bias of the divergence (P, B) of n rows drawn at random from the N rows of a context.

    It is var within(g) / 2μ² − var cross(c, g) / μ², with μ = within(c) the mean of both over all draws. kernel and
    context (P, B, B): K within contexts, 0 on the diagonal.
    """
    N = N.clamp(min=4)  # a context has at least four rows
    row = kernel.sum(-1)
    squares = over_context(kernel.square().sum(-1), context)  # Σ K_ij², Σ K_ij K_ik and Σ K_ij K_kl over all rows
    rows = over_context(row.square(), context)
    total = over_context(row, context)
    pairs, triples, quadruples = N * (N - 1), N * (N - 1) * (N - 2), N * (N - 1) * (N - 2) * (N - 3)
    mean2 = (total / pairs).square().clamp(min=_LEAST)
    same = squares / pairs
    one_shared = (rows - squares) / triples
    none_shared = (total.square() - 4 * rows + 2 * squares) / quadruples
    of_pairs = (n * (n - 1)).clamp(min=1)
    within = (2 * same + 4 * (n - 2) * one_shared + (n - 2) * (n - 3) * none_shared) / of_pairs - mean2
    spread = rows / N / (N - 1).square() - mean2  # variance of a row's mean kernel in the context
    cross = spread * (N - n) / (n * (N - 1))
    return (within / 2 - cross) / mean2


def _log(mean: Tensor) -> Tensor:
    return mean.clamp(min=_LEAST).log()
