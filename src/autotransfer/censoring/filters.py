"""Spectral filters: products of vectors with regularized inverses of symmetric matrices with eigenvalues in [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .. import gpu
from . import signs


def ridge_solve_(matrix: Tensor, ridge: Tensor, vectors: Tensor) -> Tensor:
    """Return (matrix + diag(ridge))⁻¹ vectors: (P, N, N), (P, N) or (P, 1), (P, N, D) -> (P, N, D).

    The matrix is overwritten. A ridge below the rounding error of the matrix is raised to that error.
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
    half_solved = torch.linalg.solve_triangular(factor, vectors, upper=False)
    solution: Tensor = torch.linalg.solve_triangular(factor.mT, half_solved, upper=True)
    return solution


def positive_part(matrix: Tensor) -> Tensor:
    """Return the nearest positive semi-definite matrix: (P, N, N) -> (P, N, N)."""
    if uses_products(matrix):
        return signs.positive_part(matrix)
    values, basis = _eigh(matrix)
    return (basis * values[..., None, :]) @ basis.mT


def cutoff_solve(matrix: Tensor, threshold: Tensor, vectors: Tensor) -> Tensor:
    """Multiply vectors by the inverse on the eigenspaces with μ > threshold: (P, N, N), (P, 1), (P, N, D)."""
    if not uses_products(matrix):
        values, basis = _eigh(matrix)
        mu = values.to(torch.float64)  # (P, N)
        inverse = torch.where(mu > threshold, 1 / mu.clamp(min=1e-300), 0.0).to(matrix.dtype)
        return basis @ (inverse[..., None] * (basis.mT @ vectors))
    projector = signs.project_above(matrix, threshold[:, 0].to(matrix.dtype))
    restricted = torch.baddbmm(projector, projector @ matrix, projector, beta=-1)
    restricted.diagonal(dim1=-2, dim2=-1).add_(1)  # the identity on the complement, so that the inverse exists
    return projector @ definite_solve_(restricted, projector @ vectors)


def uses_products(matrix: Tensor) -> bool:
    """Return whether to use matrix products (GPU) instead of an eigendecomposition (CPU)."""
    return matrix.device.type != "cpu"


def nu_solve(
    matrix: Tensor, vectors: Tensor, regularization: Tensor, step_counts: Sequence[int] | None = None
) -> Tensor:
    """Solve K x = vectors approximately by t steps of the ν-method with ν = 1; t depends on the member.

        x_t = x_{t−1} + m_t (x_{t−1} − x_{t−2}) + ω_t (vectors − K x_{t−1})

    (P, N, N), (P, N, D), (P, 1) -> (P, N, D). step_counts: distinct values of t; None: read from the device
    """
    t = nu_steps(regularization)[:, 0]
    step_counts = sorted(set(t.int().tolist())) if step_counts is None else step_counts
    if gpu.is_available(matrix) and matrix.shape[-1] <= gpu.MAX_SOLVE_ROWS:
        return gpu.accelerate(matrix, vectors, t, [nu_rates(step) for step in range(1, max(step_counts) + 1)])
    x, previous = torch.zeros_like(vectors), torch.zeros_like(vectors)
    result = x.clone()
    for step in range(1, max(step_counts) + 1):
        momentum, rate = nu_rates(step)
        # `previous` becomes the next iterate: (1+m) x − m previous + ω (vectors − K x)
        previous.mul_(-momentum).add_(x, alpha=1 + momentum).add_(vectors, alpha=rate)
        previous.baddbmm_(matrix, x, alpha=-rate)
        x, previous = previous, x
        if step in step_counts:
            result = torch.where((t == step)[:, None, None], x, result)
    return result


def _eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    # NaN of a diverged member is replaced, because an error of LAPACK would end the training of all members.
    values, basis = torch.linalg.eigh(torch.nan_to_num(matrix))
    return values.clamp(0, 1), basis


def nu_steps(regularization: Tensor) -> Tensor:
    """Return the number of steps t = ⌊1/√γ⌋ + 1; 1e-6 is added because 1/√.01 may be rounded to less than 10."""
    return torch.floor(1 / regularization.sqrt() + 1e-6) + 1


def nu_rates(t: int) -> tuple[float, float]:
    """Return momentum m_t and step length ω_t for ν = 1."""
    momentum = (t - 1) * (2 * t - 3) * (2 * t + 1) / ((t + 1) * (2 * t + 3) * (2 * t - 1))
    return momentum, 4 * (2 * t + 1) * t / ((t + 1) * (2 * t + 3))
