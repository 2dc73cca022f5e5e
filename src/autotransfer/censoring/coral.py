"""Correlation alignment: covariance and mean of each nuisance group against those of its context."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .groups import Groups, find_groups
from .kernel_matrices import diagonal
from .method import Method, MethodOptions
from .mmd import mean_discrepancy
from .terms import Term


@dataclass(frozen=True, kw_only=True)
class CORALOptions(MethodOptions):
    means: bool = True  # compare means as well: covariances hardly see a shift


class CORAL(Method):
    """Mean over counting nuisance groups g, c their context, of

        ‖C_g − C_c‖² / (4 D²)  +  |m_g − m_c|² / D

    (Sun & Saenko 2016), the second part, which CORAL does not have, unless `means` is off. Written out it is
    MMD with the kernel ⟨z_i, z_j⟩²/(4 D²) + ⟨z_i, z_j⟩/D, z less m_c, and estimated as MMD is, without the pairs
    of a row with itself: plain covariances of four rows in 64 dimensions would be far apart by chance alone. For
    the same reason C_g is taken about m_c: it is the covariance plus (m_g − m_c)(m_g − m_c)ᵀ. With a group's own mean
    there is no unbiased estimate from fewer than four rows.

    Every dimension has mean 0 and variance 1 in the context, gradients included: moments have units, and an encoder
    could otherwise shrink z, or inflate it in a term that preserves, and keep every subject readable.
    """

    options: CORALOptions
    label = "CORAL"
    Options = CORALOptions
    useful_strengths = (0.3, 1.0)
    sampled_strengths = (0.1, 10.0)

    def dependence(self, term: Term, key: Tensor) -> Tensor:
        groups = find_groups(term, self.min_rows)
        z, dim = standardized(term.z, groups), term.z.shape[-1]
        product = (z @ z.mT).masked_fill(diagonal(z), 0.0)
        kernel = product.square() / (4 * dim**2)
        return mean_discrepancy(kernel + product / dim if self.options.means else kernel, groups)


def standardized(z: Tensor, groups: Groups) -> Tensor:
    """Return z (P, B, D) with mean 0 and variance 1 in each dimension of each context; 0 in rows that do not count."""
    context, rows = groups.context.to(z.dtype), groups.context_rows[..., None]
    centered = (z - context @ z / rows) * groups.counts[..., None]
    variance = context @ centered.square() / rows
    return centered * (variance + 1e-6).rsqrt()  # a dead dimension stays at 0
