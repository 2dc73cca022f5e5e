"""Correlation alignment: covariance and mean of each nuisance group versus its context."""

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
    """Options of CORAL."""

    means: bool = True  # compare means in addition to covariances


class CORAL(Method):
    """Mean over counting nuisance groups g of the distance of their covariance and mean from those of their context c.

        ‖C_g − C_c‖² / (4 D²)  +  |m_g − m_c|² / D

    The first part is CORAL (Sun & Saenko 2016); `means=False` omits the second part. The sum equals MMD with the kernel
    ⟨z_i, z_j⟩²/(4 D²) + ⟨z_i, z_j⟩/D of z less m_c, and is estimated like MMD, without pairs of a row with itself,
    because plain covariances of four rows in 64 dimensions differ by chance alone. C_g is computed about m_c, so it is
    the covariance plus (m_g − m_c)(m_g − m_c)ᵀ: about m_g no unbiased estimate exists for fewer than four rows.

    Every dimension has mean 0 and variance 1 in the context, gradients included, because moments depend on the scale:
    an encoder could otherwise shrink z (or inflate it in a term that preserves) while subjects stay predictable.
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
    """Return z (P, B, D) with mean 0 and variance 1 per dimension and context; 0 in rows that do not count."""
    context, rows = groups.context.to(z.dtype), groups.context_rows[..., None]
    centered = (z - context @ z / rows) * groups.counts[..., None]
    variance = context @ centered.square() / rows
    return centered * (variance + 1e-6).rsqrt()  # a constant dimension is 0
