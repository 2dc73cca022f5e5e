"""Euclidean alignment (He & Wu 2020): a person's windows are multiplied by R^{-1/2}, R the mean of their covariances.

After it the mean covariance of everybody's windows is the identity, so that people differ less in how their channels
vary together. Covariances are second moments X Xᵀ / times of windows that are already standardised, shrunk towards a
multiple of the identity. No label is ever read.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Share of the average variance in every covariance: with more channels than a window has independent samples, R would
# have directions without variance, and R^{-1/2} would turn the noise in them into signal.
SHRINKAGE = 0.01
FLOOR = 1e-10  # of the largest eigenvalue: smaller ones are rounding


def moments(windows: Tensor) -> Tensor:
    """(..., channels, times) -> second moments X Xᵀ / times (..., channels, channels), float64."""
    x = windows.double()
    return x @ x.mT / x.shape[-1]


def shrunk(second: Tensor) -> Tensor:
    """(..., channels, channels) -> the same, drawn towards a multiple of the identity. Linear, so that the mean of
    shrunk moments is the shrunk mean."""
    average = second.diagonal(dim1=-2, dim2=-1).mean(-1)
    identity = torch.eye(second.shape[-1], dtype=second.dtype, device=second.device)
    return (1 - SHRINKAGE) * second + SHRINKAGE * average[..., None, None] * identity


def covariance(windows: Tensor) -> Tensor:
    """(..., channels, times) -> shrunk second moments (..., channels, channels), float64."""
    return shrunk(moments(windows))


def inverse_root(R: Tensor) -> Tensor:
    """R^{-1/2} of symmetric matrices (..., channels, channels), float64: the symmetric one. Of 0, the identity."""
    values, vectors = torch.linalg.eigh(R)
    largest = values[..., -1:]
    values = torch.where(largest > 0, torch.maximum(values, FLOOR * largest), 1.0)
    root: Tensor = (vectors * values.rsqrt()[..., None, :]) @ vectors.mT
    return root
