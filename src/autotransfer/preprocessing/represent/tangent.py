"""tangent: log standard deviations of the channels, and the matrix logarithm of their correlations.

It is the tangent vector at the identity in the affine-invariant geometry of covariances (Barachant et al. 2012), with
every channel in units of its own standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from .base import QUIET, Representation, subtract_means

SMALLEST = 1e-9  # eigenvalue divided by the trace for which the logarithm by roots is accurate
ROOTS = 6  # number of square roots, after which eigenvalues are at least 1e-9^(1/64) = .72
TERMS = 16  # of the logarithm's series


@dataclass(frozen=True)
class Tangent(Representation):
    display_name = "tangent space"

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 1, channels + channels * (channels + 1) // 2

    def compute(self, x: Tensor) -> Tensor:
        return tangent_vectors(subtract_means(x)[0], int(x.shape[-1]), logarithm)

    def compute_in_graph(self, x: Tensor) -> Tensor:
        return tangent_vectors(subtract_means(x)[0], int(x.shape[-1]), logarithm_by_roots)


def tangent_vectors(signals: Tensor, samples: int | Tensor, log_of: Callable[[Tensor], Tensor]) -> Tensor:
    """Map centered signals (..., C, T) to tangent vectors (..., 1, C + C(C + 1)/2), float64.

    samples: number of samples that are not padding, which broadcasts with (..., 1, 1); log_of: matrix logarithm
    """
    channels = int(signals.shape[-2])
    spread = (signals.square().sum(-1, keepdim=True) / samples).sqrt()
    flat = (spread == 0).to(spread.dtype)
    unit = signals / (spread + flat)
    identity = torch.eye(channels, dtype=spread.dtype, device=signals.device)
    correlation = unit @ unit.transpose(-1, -2) / samples + flat * identity
    logarithm = log_of(shrink(correlation, samples)).flatten(-2)
    places, weight = _upper(channels)
    upper = logarithm.index_select(-1, places.to(signals.device)) * weight.to(signals.device)
    return torch.cat([spread[..., 0].clamp(min=QUIET).log(), upper], -1)[..., None, :]


@cache
def _upper(channels: int) -> tuple[Tensor, Tensor]:
    """Return indices of the upper triangle in a flattened matrix, and weights that preserve the matrix's norm."""
    rows, columns = np.triu_indices(channels)
    weight = np.where(rows == columns, 1.0, math.sqrt(2.0))
    return torch.from_numpy(rows * channels + columns), torch.from_numpy(weight)


def shrink(correlation: Tensor, samples: int | Tensor) -> Tensor:
    """Shrink correlations (..., C, C) by oracle approximating shrinkage (Chen et al. 2010)."""
    channels = int(correlation.shape[-1])
    square = correlation.square().mean((-2, -1), keepdim=True)
    below = (samples + 1) * (square - 1 / channels)
    share = ((square + 1) / below.clamp(min=1e-12)).clamp(max=1.0)
    identity = torch.eye(channels, dtype=correlation.dtype, device=correlation.device)
    return (1 - share) * correlation + share * identity


def logarithm(matrix: Tensor) -> Tensor:
    """Return the logarithm of symmetric positive definite matrices (..., C, C)."""
    values, vectors = torch.linalg.eigh(matrix)
    log: Tensor = (vectors * values.clamp(min=QUIET).log()[..., None, :]) @ vectors.mT
    return log


def logarithm_by_roots(matrix: Tensor) -> Tensor:
    """Compute the logarithm of correlations by matrix products alone: log A = 64 log A^(1/64), the latter by a series.

    Divided by the trace C, eigenvalues lie in (0, 1], so that the Newton-Schulz iteration converges to the square root:
    Y -> Y (3 − ZY) / 2, Z -> (3 − ZY) Z / 2 from Y = A, Z = 1. Scaled steps halve their number.
    """
    channels = matrix.shape[-1]
    identity = torch.eye(channels, dtype=matrix.dtype, device=matrix.device)
    root = matrix.reshape(-1, channels, channels) / channels
    for number in range(ROOTS):
        first, *scales = _scales(SMALLEST ** (0.5 ** (number + 1)))
        inverse = 1.5 * first * identity - 0.5 * first**3 * root
        root = root @ inverse
        for scale in scales:  # few operations, because each makes the export slower
            factor = torch.baddbmm(identity, inverse, root, beta=1.5 * scale, alpha=-0.5 * scale**3)
            root, inverse = root @ factor, factor @ inverse
    rest = identity - root
    series = identity / (TERMS - 1) + rest / TERMS
    for term in range(TERMS - 2, 0, -1):
        series = torch.baddbmm(identity, rest, series, beta=1 / term)
    log = torch.baddbmm(identity, rest, series, beta=math.log(channels), alpha=-(2.0**ROOTS))
    return log.view(matrix.shape)


def _scales(lowest: float) -> list[float]:
    """Return factors of Newton-Schulz steps for eigenvalues in [lowest, 1] (Chen and Chow 2014); the last is 1."""
    # A step x -> αx (3 − α²x²) / 2 with α² = 3 / (1 + l + l²) maps l and 1 to the same number and none above 1.
    scales = []
    while 1 - lowest > 1e-8:  # the last step squares this difference
        scale = math.sqrt(3 / (1 + lowest + lowest**2))
        lowest *= scale * (3 - (scale * lowest) ** 2) / 2
        scales.append(scale)
    return [*scales, 1.0]
