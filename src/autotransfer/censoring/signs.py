"""Sign, positive part and spectral projector of symmetric matrices, computed by matrix products alone.

A GPU multiplies small matrices a thousand times faster than it decomposes them. S = sign(A) has the eigenvectors of A
and eigenvalues ±1. (A + S A)/2 is the positive part of A, and (I + S)/2 projects onto the eigenvectors of that part.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import gpu

# Coefficients (a, b, c) of polynomials x (a + b x² + c x⁴), whose composition approximates the sign on [1e-5, 1]. Each
# polynomial is the best approximation of 1 on the image of the interval under the earlier polynomials, extended by 2 %
# for rounding errors. The last one is a Newton–Schulz step. Eigenvalues below 1e-5 are rounding errors of float32.
STEPS = (
    (8.3469, -23.8219, 16.9970), (4.1731, -2.9776, 0.5312), (4.1709, -2.9761, 0.5310), (4.1626, -2.9708, 0.5305),
    (4.1276, -2.9476, 0.5280), (3.9894, -2.8560, 0.5182), (3.5225, -2.5397, 0.4846), (2.5683, -1.8417, 0.4123),
    (1.9248, -1.2812, 0.3600), (15 / 8, -10 / 8, 3 / 8),
)  # fmt: skip
MAX_KERNEL_ROWS = 128  # rows of the largest matrix that the GPU kernel accepts


def sign(matrix: Tensor) -> Tensor:
    """Return the sign of a symmetric matrix with eigenvalues in [−1, 1]: (P, N, N) -> (P, N, N)."""
    if gpu.is_available(matrix) and matrix.shape[-1] <= MAX_KERNEL_ROWS:
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
    shifted = matrix.clone()
    shifted.diagonal(dim1=-2, dim2=-1).sub_(threshold[:, None])
    projector = sign(shifted).mul_(0.5)
    projector.diagonal(dim1=-2, dim2=-1).add_(0.5)
    return projector
