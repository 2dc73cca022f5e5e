"""Spectral filters: functions of a symmetric matrix with eigenvalues in [0, 1], applied to vectors.

A filter g stands for an inverse that does not blow up where the eigenvalues μ are small. Each is given
with its divided difference r(μ) = (g(μ) − g(0)) / μ, which is what an estimate at new points needs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def ridge_solve(matrix: Tensor, ridge: Tensor, vectors: Tensor) -> Tensor:
    """(matrix + diag(ridge))⁻¹ vectors: (P, N, N), (P, N), (P, N, D) -> (P, N, D).

    The ridge is kept above the rounding error of the matrix, so that the factorisation exists.
    """
    ridge = ridge.clamp(min=32 * torch.finfo(matrix.dtype).eps)
    # The checked form would make the host wait for the device.
    factor, _ = torch.linalg.cholesky_ex(matrix + torch.diag_embed(ridge))
    return torch.cholesky_solve(vectors, factor)


def spectral_solve(matrix: Tensor, vectors: Tensor, shape: Callable[[Tensor], Tensor]) -> Tensor:
    """U shape(μ) Uᵀ vectors with negative eigenvalues set to 0: (P, N, N), (P, N, D) -> (P, N, D)."""
    values, basis = _eigh(matrix)
    filtered = shape(values.to(torch.float64)).to(matrix.dtype)  # (P, N): float64 costs nothing here
    return basis @ (filtered[..., None] * (basis.mT @ vectors))


def positive_part(matrix: Tensor) -> Tensor:
    """The nearest positive semi-definite matrix: (P, N, N) -> (P, N, N)."""
    values, basis = _eigh(matrix)
    return (basis * values[..., None, :]) @ basis.mT


def _eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    # A member that has diverged holds NaN, for which LAPACK would raise and end the others' training too.
    values, basis = torch.linalg.eigh(torch.nan_to_num(matrix))
    return values.clamp(0, 1), basis


def cutoff(mu: Tensor, threshold: Tensor) -> Tensor:
    """g = 1/μ where μ > threshold, else 0. Its r is g², for g(0) = 0."""
    return torch.where(mu > threshold, 1 / mu.clamp(min=1e-300), 0.0)


def nu_steps(regularization: Tensor) -> Tensor:
    """t = ⌊1/√γ⌋ + 1 steps; the millionth keeps 1/√0.01 from falling to 9.99…"""
    return torch.floor(1 / regularization.sqrt() + 1e-6) + 1


def nu_polynomial(mu: Tensor, regularization: Tensor) -> tuple[Tensor, Tensor]:
    """g and r of the ν-method, ν = 1, after t steps: (..., N), (..., 1) -> (..., N), (..., N), in float64.

    The residuals 1 − μ g(μ) are Jacobi polynomials (Engl, Hanke and Neubauer 1996, section 6.3), for ν = 1

        1 − μ g(μ) = ₂F₁(−t, t+2; 5/2; μ) = 3 (sin nθ cos θ − n cos nθ sin θ) / ((n²−1) n sin³θ)

    with n = 2t + 2 and sin²θ = μ: no loop over steps, hence members with different γ cost the same.
    """
    t = nu_steps(regularization)
    n = 2 * t + 2
    theta = mu.sqrt().asin()
    sine = theta.sin().clamp(min=1e-100)
    wave = torch.sin(n * theta) * theta.cos() - n * torch.cos(n * theta) * sine
    residual = 3 * wave / ((n * n - 1) * n * sine**3)
    c = [torch.ones_like(t)]  # coefficients of the series, for small n²μ where the formula cancels
    for k in range(5):
        c.append(c[-1] * (k - t) * (t + 2 + k) / ((2.5 + k) * (k + 1)))
    g_small = -(c[1] + mu * (c[2] + mu * (c[3] + mu * (c[4] + mu * c[5]))))
    r_small = -(c[2] + mu * (c[3] + mu * (c[4] + mu * c[5])))
    small = n * n * mu < 1e-2
    safe = torch.where(small, 1.0, mu)
    g = torch.where(small, g_small, (1 - residual) / safe)
    return g, torch.where(small, r_small, (g + c[1]) / safe)  # g(0) = −c₁ = 2t(t+2)/5
