"""tangent: log deviations of the channels, and the matrix logarithm of their correlations.

It is the tangent vector of the affine-invariant geometry of covariances at the identity (Barachant et al. 2012), with
every channel in units of its own deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from .base import QUIET, Representation, centered

SMALLEST = 1e-9  # eigenvalue of a correlation by its trace that the logarithm in a graph is made for
ROOTS = 6  # square roots that it takes: eigenvalues are at least 1e-9^(1/64) = .72 by then
TERMS = 16  # of the series of the logarithm


@dataclass(frozen=True)
class Tangent(Representation):
    display_names = ("Tangent space", "tangent space")

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 1, channels + channels * (channels + 1) // 2

    def numbers(self, x: Tensor) -> Tensor:
        return tangent_of(centered(x)[0], int(x.shape[-1]), logarithm)

    def numbers_in_graph(self, x: Tensor) -> Tensor:
        return tangent_of(centered(x)[0], int(x.shape[-1]), logarithm_by_roots)


def tangent_of(signals: Tensor, samples: int | Tensor, log_of: Callable[[Tensor], Tensor]) -> Tensor:
    """Map signals (..., C, T) with mean 0 to tangent vectors (..., 1, C + C(C + 1)/2), float64. samples: how many of T
    count, the others being 0; a tensor that (..., 1, 1) broadcasts with, where that differs. log_of: of matrices."""
    channels = int(signals.shape[-2])
    spread = (signals.square().sum(-1, keepdim=True) / samples).sqrt()
    flat = (spread == 0).to(spread.dtype)
    unit = signals / (spread + flat)
    identity = torch.eye(channels, dtype=spread.dtype, device=signals.device)
    correlation = unit @ unit.transpose(-1, -2) / samples + flat * identity
    logarithm = log_of(shrunk(correlation, samples)).flatten(-2)
    places, weight = _upper(channels)
    upper = logarithm.index_select(-1, places.to(signals.device)) * weight.to(signals.device)
    return torch.cat([spread[..., 0].clamp(min=QUIET).log(), upper], -1)[..., None, :]


@cache
def _upper(channels: int) -> tuple[Tensor, Tensor]:
    """Return places of the upper triangle in a flattened matrix, and weights that keep the matrix's norm."""
    rows, columns = np.triu_indices(channels)
    weight = np.where(rows == columns, 1.0, math.sqrt(2.0))
    return torch.from_numpy(rows * channels + columns), torch.from_numpy(weight)


def shrunk(correlation: Tensor, samples: int | Tensor) -> Tensor:
    """Return correlations (..., C, C) shrunk by the oracle approximating share (Chen et al. 2010)."""
    channels = int(correlation.shape[-1])
    square = correlation.square().mean((-2, -1), keepdim=True)
    below = (samples + 1) * (square - 1 / channels)
    share = ((square + 1) / below.clamp(min=1e-12)).clamp(max=1.0)
    identity = torch.eye(channels, dtype=correlation.dtype, device=correlation.device)
    return (1 - share) * correlation + share * identity


def logarithm(matrix: Tensor) -> Tensor:
    """Return the logarithm of symmetric positive matrices (..., C, C)."""
    values, vectors = torch.linalg.eigh(matrix)
    log: Tensor = (vectors * values.clamp(min=QUIET).log()[..., None, :]) @ vectors.mT
    return log


def logarithm_by_roots(matrix: Tensor) -> Tensor:
    """Compute the logarithm of correlations in products alone: log A = 64 log A^(1/64), and a series for what is near
    1.

    Divided by the trace, C, eigenvalues lie in (0, 1], where the coupled iteration of Newton and Schulz converges to
    the square root: Y -> Y (3 − ZY) / 2, Z -> (3 − ZY) Z / 2 from Y = A, Z = 1. Scaled it takes half the steps.
    """
    channels = matrix.shape[-1]
    identity = torch.eye(channels, dtype=matrix.dtype, device=matrix.device)
    root = matrix.reshape(-1, channels, channels) / channels
    for number in range(ROOTS):
        first, *scales = _scales(SMALLEST ** (0.5 ** (number + 1)))
        inverse = 1.5 * first * identity - 0.5 * first**3 * root
        root = root @ inverse
        for scale in scales:  # few operations, because an exporter takes long over each
            factor = torch.baddbmm(identity, inverse, root, beta=1.5 * scale, alpha=-0.5 * scale**3)
            root, inverse = root @ factor, factor @ inverse
    rest = identity - root
    series = identity / (TERMS - 1) + rest / TERMS
    for term in range(TERMS - 2, 0, -1):
        series = torch.baddbmm(identity, rest, series, beta=1 / term)
    log = torch.baddbmm(identity, rest, series, beta=math.log(channels), alpha=-(2.0**ROOTS))
    return log.view(matrix.shape)


def _scales(lowest: float) -> list[float]:
    """Return what to scale each step of Newton and Schulz by for roots of eigenvalues in [lowest, 1] (Chen and Chow
    2014): a step x -> αx (3 − α²x²) / 2 with α² = 3 / (1 + l + l²) takes l and 1 to the same number and none above
    1, so that a small l grows by 2.6 and not by 1.5. One plain step ends it."""
    scales = []
    while 1 - lowest > 1e-8:  # the step after squares this
        scale = math.sqrt(3 / (1 + lowest + lowest**2))
        lowest *= scale * (3 - (scale * lowest) ** 2) / 2
        scales.append(scale)
    return [*scales, 1.0]
