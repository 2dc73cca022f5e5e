"""tangent: log standard deviations of the channels, and the matrix logarithm of their correlations.

The matrix logarithm is the tangent vector at the identity in the affine-invariant geometry of covariances (Barachant et
al. 2012) of channels that are divided by their standard deviations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from .base import LOG_FLOOR, Representation, subtract_means

MIN_SHARE = 1e-9  # smallest ratio of an eigenvalue to the trace for which `logarithm_by_roots` is accurate
ROOTS = 6  # number of square roots, after which eigenvalues are at least 1e-9^(1/64) = .72
TERMS = 16  # number of terms of the series for the logarithm


@dataclass(frozen=True)
class Tangent(Representation):
    display_name = "tangent space"

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 1, channels + channels * (channels + 1) // 2

    def compute(self, x: Tensor) -> Tensor:
        return tangent_vectors(subtract_means(x)[0], int(x.shape[-1]), logarithm)

    def compute_in_graph(self, x: Tensor) -> Tensor:
        return tangent_vectors(subtract_means(x)[0], int(x.shape[-1]), logarithm_by_roots)


def tangent_vectors(signals: Tensor, samples: int | Tensor, matrix_log: Callable[[Tensor], Tensor]) -> Tensor:
    """Map centered signals (..., C, T) to tangent vectors (..., 1, C + C(C + 1)/2), float64.

    samples: number of samples that are not padding, broadcast with (..., 1, 1); matrix_log: logarithm of matrices
    """
    channels = int(signals.shape[-2])
    spread = (signals.square().sum(-1, keepdim=True) / samples).sqrt()
    is_constant = (spread == 0).to(spread.dtype)
    unit = signals / (spread + is_constant)
    identity = torch.eye(channels, dtype=spread.dtype, device=signals.device)
    correlation = unit @ unit.transpose(-1, -2) / samples + is_constant * identity
    logarithm = matrix_log(shrink(correlation, samples)).flatten(-2)
    indices, weight = _upper_triangle(channels)
    upper = logarithm.index_select(-1, indices.to(signals.device)) * weight.to(signals.device)
    return torch.cat([spread[..., 0].clamp(min=LOG_FLOOR).log(), upper], -1)[..., None, :]


@cache
def _upper_triangle(channels: int) -> tuple[Tensor, Tensor]:
    """Return indices of the upper triangle in a flattened matrix, and weights that preserve the matrix's norm."""
    rows, columns = np.triu_indices(channels)
    weight = np.where(rows == columns, 1.0, math.sqrt(2.0))
    return torch.from_numpy(rows * channels + columns), torch.from_numpy(weight)


def shrink(correlation: Tensor, samples: int | Tensor) -> Tensor:
    """Shrink correlations (..., C, C) by oracle approximating shrinkage (Chen et al. 2010)."""
    channels = int(correlation.shape[-1])
    square = correlation.square().mean((-2, -1), keepdim=True)
    denominator = (samples + 1) * (square - 1 / channels)
    shrinkage = ((square + 1) / denominator.clamp(min=1e-12)).clamp(max=1.0)
    identity = torch.eye(channels, dtype=correlation.dtype, device=correlation.device)
    return (1 - shrinkage) * correlation + shrinkage * identity


def logarithm(matrix: Tensor) -> Tensor:
    """Return the logarithm of symmetric positive definite matrices (..., C, C)."""
    values, vectors = torch.linalg.eigh(matrix)
    log: Tensor = (vectors * values.clamp(min=LOG_FLOOR).log()[..., None, :]) @ vectors.mT
    return log


def logarithm_by_roots(matrix: Tensor) -> Tensor:
    """Compute the logarithm of correlations by matrix products: log A = 64 log A^(1/64), with a series for A^(1/64).

    Divided by the trace C, eigenvalues lie in (0, 1], so that the Newton-Schulz iteration converges to the square root:
    Y -> Y (3 − ZY) / 2, Z -> (3 − ZY) Z / 2 from Y = A, Z = 1. Scaling halves the number of steps.
    """
    channels = matrix.shape[-1]
    identity = torch.eye(channels, dtype=matrix.dtype, device=matrix.device)
    root = matrix.reshape(-1, channels, channels) / channels
    for index in range(ROOTS):
        first, *scales = _newton_schulz_scales(MIN_SHARE ** (0.5 ** (index + 1)))
        inverse = 1.5 * first * identity - 0.5 * first**3 * root
        root = root @ inverse
        for scale in scales:  # few operations, because each operation makes the export slower
            factor = torch.baddbmm(identity, inverse, root, beta=1.5 * scale, alpha=-0.5 * scale**3)
            root, inverse = root @ factor, factor @ inverse
    difference = identity - root
    series = identity / (TERMS - 1) + difference / TERMS
    for term in range(TERMS - 2, 0, -1):
        series = torch.baddbmm(identity, difference, series, beta=1 / term)
    log = torch.baddbmm(identity, difference, series, beta=math.log(channels), alpha=-(2.0**ROOTS))
    return log.view(matrix.shape)


def _newton_schulz_scales(lowest: float) -> list[float]:
    """Return the scales of Newton-Schulz steps for eigenvalues in [lowest, 1] (Chen and Chow 2014); the last is 1."""
    # A step x -> αx (3 − α²x²) / 2 with α² = 3 / (1 + l + l²) maps l and 1 to one number, and no number above 1.
    scales = []
    while 1 - lowest > 1e-8:  # the last step squares this difference
        scale = math.sqrt(3 / (1 + lowest + lowest**2))
        lowest *= scale * (3 - (scale * lowest) ** 2) / 2
        scales.append(scale)
    return [*scales, 1.0]
