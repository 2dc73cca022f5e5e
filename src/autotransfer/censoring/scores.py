"""Kernel estimators of the score ∇ log p at the points z of a sample, separately in each block of points.

The estimators differ in the filter of the eigenvalues μ of K̃::

    score = −D^{-1/2} · filter(K̃) · D^{-1/2} b
    K̃ = D^{-1/2} K D^{-1/2},   K_ij = exp(−d²_ij/2σ²),   D = diag(n), n: block sizes,   b_i = Σ_j ∇_j K_ij

    tikhonov   1/(μ + γ)                            Zhou, Shi and Zhu 2020
    stein      1/(μ + nγ), useful γ ∝ 1/n           Li and Turner 2018
    ssge       1/μ where μ > γ, else 0              Shi, Sun and Zhu 2018
    nu_method  the t-step accelerated polynomial, t = ⌊1/√γ⌋ + 1      Zhou, Shi and Zhu 2020

All estimators map z (..., N, D) to scores of the same shape, without a gradient. Their keywords are::

    same            (..., N, N) bool: rows i and j belong to one block. Blocks are fitted separately, and rows in no
                    block get score 0. None: all rows are one block. Additional leading axes are several masks of z
    length_scale    "median" of each block's distances, "perplexity" (a scale per row as in t-SNE), or a number σ
    regularization  γ: a number, or a tensor (...) with one value per leading index
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .. import gpu
from ..errors import UserError
from ..gpu import pairs
from . import kernel_matrices
from .filters import cutoff_solve, nu_solve, positive_part, ridge_solve_


class FilterInput(NamedTuple):
    """Input of a spectral filter."""

    kernel: Tensor  # (P, N, N) K̃; the filter may overwrite it
    zeta: Tensor  # (P, N, D) ζ = D^{-1/2} b
    rows: Tensor  # (P, N) n
    gamma: Tensor  # (P, 1) regularization, float64
    definite: bool  # False: the kernel may have negative eigenvalues

    def positive_kernel(self) -> Tensor:
        """Return K̃ without negative eigenvalues."""
        return self.kernel if self.definite else positive_part(self.kernel)

    def solve_ridge(self, scale: float | Tensor) -> Tensor:
        """Return (K̃ + scale · γ)⁻¹ ζ."""
        return ridge_solve_(self.positive_kernel(), scale * self.gamma.to(self.rows.dtype), self.zeta)


def tikhonov(
    z: Tensor, *, same: Tensor | None = None, length_scale: str | float = "median",
    regularization: float | Tensor = 0.01,
) -> Tensor:  # fmt: skip
    """Estimate scores by kernel ridge regression with the ridge γ on K/n."""
    return _estimate(z, same, length_scale, regularization, lambda inputs: inputs.solve_ridge(1.0))


def stein(
    z: Tensor, *, same: Tensor | None = None, length_scale: str | float = "median",
    regularization: float | Tensor = 0.001,
) -> Tensor:  # fmt: skip
    """Estimate scores by Stein's identity with the ridge n²γ on K; this equals `tikhonov` with nγ instead of γ."""
    return _estimate(z, same, length_scale, regularization, lambda inputs: inputs.solve_ridge(inputs.rows))


def ssge(
    z: Tensor, *, same: Tensor | None = None, length_scale: str | float = "median",
    regularization: float | Tensor = 0.01,
) -> Tensor:  # fmt: skip
    """Estimate scores by Stein's identity in the eigenfunctions of the kernel with eigenvalues above γ."""
    return _estimate(
        z, same, length_scale, regularization, lambda inputs: cutoff_solve(inputs.kernel, inputs.gamma, inputs.zeta)
    )


def nu_method(
    z: Tensor, *, same: Tensor | None = None, length_scale: str | float = "median",
    regularization: float | Tensor = 0.01, step_counts: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Estimate scores by t accelerated iterations of kernel regression, without inverting a matrix.

    step_counts: distinct values of t (filters.nu_steps); None: they are read from the device, which takes longer
    """
    return _estimate(
        z, same, length_scale, regularization,
        lambda inputs: nu_solve(inputs.positive_kernel(), inputs.zeta, inputs.gamma, step_counts),
    )  # fmt: skip


ESTIMATORS = {"ssge": ssge, "stein": stein, "tikhonov": tikhonov, "nu_method": nu_method}


@torch.no_grad()
def _estimate(
    z: Tensor, same: Tensor | None, length_scale: str | float, regularization: float | Tensor,
    apply_filter: Callable[[FilterInput], Tensor],
) -> Tensor:  # fmt: skip
    """Return the scores; `apply_filter` computes filter(K̃) ζ."""
    leading, sample, mask, gamma = _flatten(z, same, length_scale, regularization)
    sample = kernel_matrices.center(sample)
    d2 = kernel_matrices.pairwise_distances(sample)
    beta = kernel_matrices.inverse_scales(d2, mask, length_scale)
    n_masks = len(mask) // len(sample)  # per sample
    sample = sample.repeat(n_masks, 1, 1)
    if gpu.is_available(d2):
        kernel, weights, sums, rows = pairs.score_matrices(d2, beta, mask, by_row=length_scale == "perplexity")
        zeta = torch.baddbmm(sums[..., None] * sample, weights, sample, alpha=-1)
    else:
        d2 = d2.repeat(n_masks, 1, 1)
        kernel, zeta, rows = _normalize_kernel(sample, d2, kernel_matrices.pair_scales(beta, length_scale), mask)
    solution = apply_filter(FilterInput(kernel, zeta, rows, gamma, length_scale != "perplexity"))
    return -(rows.rsqrt()[..., None] * solution).reshape(*leading, *z.shape[-2:])


def _normalize_kernel(z: Tensor, d2: Tensor, beta: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return K̃ (P, N, N), D^{-1/2} b (P, N, D) and the block sizes n (P, N); b_i = Σ_j W_ij (z_i − z_j), W = 2βK."""
    rows = mask.sum(-1).clamp(min=1).to(z.dtype)
    inv_root = rows.rsqrt()[..., None]
    gram = kernel_matrices.rbf(d2, beta) * mask
    weights = 2 * beta * gram
    return inv_root * gram * inv_root.mT, inv_root * (weights.sum(-1, keepdim=True) * z - weights @ z), rows


def _flatten(
    z: Tensor, same: Tensor | None, length_scale: str | float, regularization: float | Tensor
) -> tuple[torch.Size, Tensor, Tensor, Tensor]:
    """Return the leading axes of the scores, z (P, N, D), mask (R·P, N, N) and γ (R·P, 1) in float64; R masks per z."""
    if not isinstance(z, Tensor):
        raise UserError(f"z is a {type(z).__name__}; give a tensor (..., N, D)")
    if z.ndim < 2 or z.shape[-2] == 0 or not z.is_floating_point():
        raise UserError(f"z has shape {tuple(z.shape)} and dtype {z.dtype}; give real numbers (..., N, D) with N ≥ 1")
    kernel_matrices.check_length_scale(length_scale)
    if not isinstance(regularization, Tensor) and not regularization > 0:
        raise UserError(f"regularization is {regularization!r}; it must be a positive number")
    leading, (rows, dim) = z.shape[:-2], z.shape[-2:]
    if same is None:
        same = torch.ones(rows, rows, dtype=torch.bool, device=z.device)
    elif same.ndim > z.ndim:
        leading = same.shape[:-2]
    gamma = torch.as_tensor(regularization, dtype=torch.float64, device=z.device).expand(leading).reshape(-1, 1)
    mask = same.expand(*leading, rows, rows).reshape(-1, rows, rows)
    return leading, z.detach().reshape(-1, rows, dim), mask, gamma
