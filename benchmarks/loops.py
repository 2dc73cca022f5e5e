"""Score estimates and MMD written as loops over subjects: the first thing to write, and the measure of ours."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def median_scale(z: Tensor) -> Tensor:
    """The median distance between rows of z (n, D)."""
    return torch.nn.functional.pdist(z.detach()).quantile(0.5)


def kernel(x: Tensor, y: Tensor, sigma: Tensor) -> Tensor:
    """exp(−|x_i − y_j|²/2σ²): (n, D), (m, D) -> (n, m)."""
    squares = x.square().sum(-1)[:, None] + y.square().sum(-1) - 2 * x @ y.T
    return torch.exp(squares.clamp(min=0) / (-2 * sigma**2))


def score(z: Tensor, estimator: str, gamma: float) -> Tensor:
    """∇ log p at the rows of one subject, z (n, D) -> (n, D)."""
    n, sigma = len(z), median_scale(z)
    K = kernel(z, z, sigma)
    zeta = (K.sum(1, keepdim=True) * z - K @ z) / sigma**2 / n
    K = K / n
    if estimator in ("stein", "tikhonov"):
        ridge = n * gamma if estimator == "stein" else gamma
        solved: Tensor = torch.linalg.solve(K + ridge * torch.eye(n, device=z.device, dtype=z.dtype), zeta)
        return -solved
    if estimator == "ssge":
        values, vectors = torch.linalg.eigh(K)
        kept = values > gamma
        spectral: Tensor = (vectors[:, kept] / values[kept]) @ (vectors[:, kept].T @ zeta)
        return -spectral
    return -nu_iteration(K, zeta, math.floor(1 / math.sqrt(gamma) + 1e-6) + 1)


def nu_iteration(K: Tensor, target: Tensor, steps: int) -> Tensor:
    """`steps` of the ν-method, ν = 1, for K c = target (Engl, Hanke and Neubauer 1996, section 6.3)."""
    before, now = torch.zeros_like(target), torch.zeros_like(target)
    for k in range(1, steps + 1):
        momentum = (k - 1) * (2 * k - 3) * (2 * k + 1) / ((k + 1) * (2 * k + 3) * (2 * k - 1))
        rate = 4 * (2 * k + 1) * k / ((k + 1) * (2 * k + 3))
        before, now = now, now + momentum * (now - before) + rate * (target - K @ now)
    return now


def subjects_of(s: Tensor) -> list[int]:
    return sorted(set(s.tolist()))


def subject_scores(z: Tensor, s: Tensor, estimator: str, gamma: float) -> Tensor:
    """Every subject's rows by themselves: z (B, D), s (B,) -> (B, D)."""
    found = torch.zeros_like(z)
    for subject in subjects_of(s):
        rows = s == subject
        found[rows] = score(z[rows], estimator, gamma)
    return found


def within(z: Tensor, sigma: Tensor) -> Tensor:
    """Mean kernel over pairs of different rows."""
    n = len(z)
    return (kernel(z, z, sigma).sum() - n) / (n * (n - 1))


def mmd(z: Tensor, s: Tensor) -> Tensor:
    """Mean over subjects of the squared MMD between a subject's rows and all rows, no row paired with itself."""
    sigma, n = median_scale(z), len(z)
    everyone = within(z, sigma)
    total = z.new_zeros(())
    subjects = subjects_of(s)
    for subject in subjects:
        own = z[s == subject]
        cross = (kernel(own, z, sigma).sum() - len(own)) / (len(own) * (n - 1))
        total = total + everyone + within(own, sigma) - 2 * cross
    return total / len(subjects)


def pairwise_mmd(z: Tensor, s: Tensor) -> Tensor:
    """Mean over ordered pairs of subjects of the squared MMD between their rows."""
    sigma = median_scale(z)
    groups = [z[s == subject] for subject in subjects_of(s)]
    inside = [within(group, sigma) for group in groups]
    total = z.new_zeros(())
    for i, first in enumerate(groups):
        for j, second in enumerate(groups):
            if i != j:
                total = total + inside[i] + inside[j] - 2 * kernel(first, second, sigma).mean()
    return total / (len(groups) * (len(groups) - 1))
