"""Positive part and projector of a symmetric matrix by matrix products alone.

A GPU multiplies small matrices a thousand times faster than it decomposes them. With S = sign(A), which has A's
eigenvectors and eigenvalues ±1, (A + S A)/2 is the positive part and (I + S)/2 the projector onto its eigenvectors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import gpu

# Polynomials x (a + b x² + c x⁴). Each is the best approximation of 1 on the image of [1e-5, 1] under the earlier ones,
# extended by 2 % at the upper end, beyond which rounding errors would diverge. The last is a Newton–Schulz step.
# Eigenvalues of 1e-5 are distinguished from 0, the precision of float32.
STEPS = (
    (8.3469, -23.8219, 16.9970), (4.1731, -2.9776, 0.5312), (4.1709, -2.9761, 0.5310), (4.1626, -2.9708, 0.5305),
    (4.1276, -2.9476, 0.5280), (3.9894, -2.8560, 0.5182), (3.5225, -2.5397, 0.4846), (2.5683, -1.8417, 0.4123),
    (1.9248, -1.2812, 0.3600), (15 / 8, -10 / 8, 3 / 8),
)  # fmt: skip
ON_CHIP = 128  # largest number of rows for the GPU kernel


def sign(matrix: Tensor) -> Tensor:
    """Return the sign of a symmetric matrix with eigenvalues in [−1, 1]: (P, N, N) -> (P, N, N)."""
    if gpu.is_available(matrix) and matrix.shape[-1] <= ON_CHIP:
        return gpu.sign(matrix, STEPS)
    x = matrix
    for a, b, c in STEPS:
        square = x @ x
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x + x.mT) / 2


def positive_part(matrix: Tensor) -> Tensor:
    """Return the nearest positive semi-definite matrix: (P, N, N) -> (P, N, N)."""
    part = torch.baddbmm(matrix, sign(matrix), matrix, beta=0.25, alpha=0.25)
    return part + part.mT


def project_above(matrix: Tensor, threshold: Tensor) -> Tensor:
    """Return the projector onto the eigenvectors with eigenvalues above a threshold: (P, N, N), (P,) -> (P, N, N)."""
    lowered = matrix.clone()
    lowered.diagonal(dim1=-2, dim2=-1).sub_(threshold[:, None])
    kept = sign(lowered).mul_(0.5)
    kept.diagonal(dim1=-2, dim2=-1).add_(0.5)
    return kept
