"""Spectral filters: regularized inverses of symmetric matrices with eigenvalues in [0, 1], applied to vectors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .. import gpu
from . import signs


def ridge_solve_(matrix: Tensor, ridge: Tensor, vectors: Tensor) -> Tensor:
    """Return (matrix + diag(ridge))⁻¹ vectors: (P, N, N), (P, N) or (P, 1), (P, N, D) -> (P, N, D).

    The matrix is overwritten. A smaller ridge than the matrix's rounding error is raised to it.
    """
    matrix.diagonal(dim1=-2, dim2=-1).add_(ridge.clamp(min=32 * torch.finfo(matrix.dtype).eps))
    return definite_solve_(matrix, vectors)


def definite_solve_(matrix: Tensor, vectors: Tensor) -> Tensor:
    """Return matrix⁻¹ vectors, overwriting positive definite matrices: (P, N, N), (P, N, D) -> (P, N, D)."""
    if gpu.is_available(matrix) and matrix.shape[-1] <= gpu.MAX_SOLVE_ROWS:
        return gpu.solve_(matrix, vectors)
    factor, _ = torch.linalg.cholesky_ex(matrix)  # torch.linalg.cholesky would wait for the device
    if matrix.device.type == "cpu":
        return torch.cholesky_solve(vectors, factor)
    half = torch.linalg.solve_triangular(factor, vectors, upper=False)
    solved: Tensor = torch.linalg.solve_triangular(factor.mT, half, upper=True)
    return solved


def positive_part(matrix: Tensor) -> Tensor:
    """Return the nearest positive semi-definite matrix: (P, N, N) -> (P, N, N)."""
    if uses_products(matrix):
        return signs.positive_part(matrix)
    values, basis = _eigh(matrix)
    return (basis * values[..., None, :]) @ basis.mT


def cutoff_solve(matrix: Tensor, threshold: Tensor, vectors: Tensor) -> Tensor:
    """Apply the inverse on eigenvectors with μ > threshold, and 0 elsewhere: (P, N, N), (P, 1), (P, N, D)."""
    if not uses_products(matrix):
        values, basis = _eigh(matrix)
        mu = values.to(torch.float64)  # (P, N)
        inverse = torch.where(mu > threshold, 1 / mu.clamp(min=1e-300), 0.0).to(matrix.dtype)
        return basis @ (inverse[..., None] * (basis.mT @ vectors))
    kept = signs.project_above(matrix, threshold[:, 0].to(matrix.dtype))
    inside = torch.baddbmm(kept, kept @ matrix, kept, beta=-1)
    inside.diagonal(dim1=-2, dim2=-1).add_(1)  # 1 on the complement, so that the inverse exists
    return kept @ definite_solve_(inside, kept @ vectors)


def uses_products(matrix: Tensor) -> bool:
    """Return whether eigenvalues are separated by matrix products (GPU) and not by a decomposition (CPU)."""
    return matrix.device.type != "cpu"


def nu_solve(matrix: Tensor, vectors: Tensor, regularization: Tensor, stops: Sequence[int] | None = None) -> Tensor:
    """Return the ν-method's iterates for K x = vectors, ν = 1, after each member's number of steps t.

        x_t = x_{t−1} + m_t (x_{t−1} − x_{t−2}) + ω_t (vectors − K x_{t−1})

    (P, N, N), (P, N, D), (P, 1) -> (P, N, D). stops: the distinct t if known, as reading them waits for the device.
    """
    t = nu_steps(regularization)[:, 0]
    stops = sorted(set(t.int().tolist())) if stops is None else stops
    if gpu.is_available(matrix) and matrix.shape[-1] <= gpu.MAX_SOLVE_ROWS:
        return gpu.accelerate(matrix, vectors, t, [nu_rates(step) for step in range(1, max(stops) + 1)])
    x, before = torch.zeros_like(vectors), torch.zeros_like(vectors)
    stopped = x.clone()
    for step in range(1, max(stops) + 1):
        momentum, rate = nu_rates(step)
        # `before` becomes the next iterate: (1+m) x − m before + ω (vectors − K x)
        before.mul_(-momentum).add_(x, alpha=1 + momentum).add_(vectors, alpha=rate)
        before.baddbmm_(matrix, x, alpha=-rate)
        x, before = before, x
        if step in stops:
            stopped = torch.where((t == step)[:, None, None], x, stopped)
    return stopped


def _eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    # LAPACK raises for NaN, so that one diverged member would end the training of all members.
    values, basis = torch.linalg.eigh(torch.nan_to_num(matrix))
    return values.clamp(0, 1), basis


def nu_steps(regularization: Tensor) -> Tensor:
    """Return t = ⌊1/√γ⌋ + 1 steps; 1e-6 keeps 1/√0.01 from being rounded to 9.99."""
    return torch.floor(1 / regularization.sqrt() + 1e-6) + 1


def nu_rates(t: int) -> tuple[float, float]:
    """Return momentum m_t and step length ω_t for ν = 1."""
    momentum = (t - 1) * (2 * t - 3) * (2 * t + 1) / ((t + 1) * (2 * t + 3) * (2 * t - 1))
    return momentum, 4 * (2 * t + 1) * t / ((t + 1) * (2 * t + 3))
