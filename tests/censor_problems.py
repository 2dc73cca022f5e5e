"""Batches and distributions with known answers, for the tests of censoring."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autotransfer.censoring.terms import Term, make_terms

MODES = ("marginal", "conditional", "complementary")


def batch(
    seed: int = 0, members: int = 3, rows: int = 40, dim: int = 6, classes: int = 3, subjects: int = 4,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """z (P, B, D) that depends on s, y and s (P, B) of uneven groups; three padding rows in every member."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (members, rows), generator=draw)
    s = torch.randint(0, subjects, (members, rows), generator=draw)
    shift = torch.randn(subjects, dim, generator=draw, dtype=torch.float64)
    z = torch.randn(members, rows, dim, generator=draw, dtype=torch.float64) + shift[s]
    s[:, -3:] = -1
    return z.to(dtype), y, s


def single_term(z: Tensor, y: Tensor, s: Tensor, mode: str = "marginal", index: int = 0) -> Term:
    return make_terms(mode, z, y, s)[index]


def valid_groups(context: list[int], nuisance: list[int], min_rows: int = 2) -> dict[int, dict[int, list[int]]]:
    """Return the valid groups as {context: {nuisance: rows}}, found row by row."""
    found: dict[int, dict[int, list[int]]] = {}
    for row, (c, g) in enumerate(zip(context, nuisance, strict=True)):
        if c >= 0:
            found.setdefault(c, {}).setdefault(g, []).append(row)
    large = {c: {g: rows for g, rows in inside.items() if len(rows) >= min_rows} for c, inside in found.items()}
    return {c: inside for c, inside in large.items() if len(inside) >= 2}


class Mixture:
    """Σ_m N(mean_m, covariance) / M in D dimensions: samples and the exact score."""

    def __init__(self, means: Tensor, covariance: Tensor) -> None:
        self.means, self.covariance = means, covariance
        self.precision = torch.linalg.inv(covariance)

    def sample(self, n: int, seed: int) -> tuple[Tensor, Tensor]:
        """z (n, D) and its component (n,), as even as n allows."""
        draw = torch.Generator().manual_seed(seed)
        s = torch.arange(n) % len(self.means)
        noise = torch.randn(n, self.means.shape[1], generator=draw, dtype=torch.float64)
        return self.means[s] + noise @ torch.linalg.cholesky(self.covariance).T, s

    def score(self, z: Tensor) -> Tensor:
        """∇ log p: (N, D) -> (N, D)."""
        away = z[:, None, :] - self.means  # (N, M, D)
        pull = away @ self.precision
        weight = (-(away * pull).sum(-1) / 2).softmax(-1)
        return -(weight[..., None] * pull).sum(1)


def gaussian(dim: int = 2) -> Mixture:
    draw = torch.Generator().manual_seed(1)
    root = torch.eye(dim, dtype=torch.float64) + 0.4 * torch.randn(dim, dim, generator=draw, dtype=torch.float64)
    return Mixture(torch.ones(1, dim, dtype=torch.float64), root @ root.T)


def two_bumps(dim: int = 2) -> Mixture:
    means = torch.zeros(2, dim, dtype=torch.float64)
    means[0, 0], means[1, 0] = -1.5, 1.5
    return Mixture(means, torch.eye(dim, dtype=torch.float64))


def relative_error(estimate: Tensor, truth: Tensor) -> float:
    return math.sqrt(float((estimate - truth).square().sum() / truth.square().sum()))
