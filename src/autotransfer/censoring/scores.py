"""Score estimators: ∇ log p at the points of a sample, by kernels.

With a kernel k, b_i = Σ_j ∇_j k(z_i, z_j), block sizes n and the normalised kernel K̃ = D^{-1/2} K D^{-1/2},
D = diag(n), every estimator is one formula with another spectral filter:

    score = −D^{-1/2} · filter(K̃) · D^{-1/2} b

    tikhonov   1/(μ + γ)                            Zhou, Shi and Zhu 2020
    stein      1/(μ + nγ), useful γ fall as 1/n     Li and Turner 2018
    ssge       1/μ where μ > γ, else 0              Shi, Sun and Zhu 2018
    nu_method  the t-step accelerated polynomial, t = ⌊1/√γ⌋ + 1      Zhou, Shi and Zhu 2020

All take z (..., N, D) and return scores of the same shape, without a gradient of their own.

    same            (..., N, N) bool: rows i and j belong to one block; every block is fitted by itself, and a row
                    in no block, not even with itself, gets 0. None: all rows are one block. Several masks of the
                    same points may stand on axes before those of z
    length_scale    "median" of each block's distances, "perplexity" (a scale per row as in t-SNE), or a number σ
    regularization  γ: a number, or a tensor (...) with one for each leading index
    kernel          "rbf", exp(−d²/2σ²), or "imq", (1 + d²/σ²)^(−1/2); `nu_method` also "curl_free_rbf" and
                    "curl_free_imq", whose estimates are gradients of a function
    points          (..., Q, D): evaluate the estimate there instead, with scores (..., Q, D). For one block, and
                    not with perplexity, which defines the kernel on the sample alone
    perplexity      the target; at most (n−1)/3 of a block of n rows is used, and at least 1.5
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .. import gpu
from ..errors import UserError, check_choice
from ..fusing import fused
from ..gpu import pairs
from . import kernels
from .curlfree import CURL_FREE, curl_free_scores
from .filters import cutoff, cutoff_solve, nu_polynomial, nu_solve, positive_part, ridge_solve, spectral_solve
from .kernels import PERPLEXITY, RADIAL


class Fit(NamedTuple):
    """What a filter works on."""

    kernel: Tensor  # (P, N, N) K̃
    zeta: Tensor  # (P, N, D) D^{-1/2} b, or b/n for an estimate at new points
    rows: Tensor  # (P, N) n
    gamma: Tensor  # (P, 1) regularization, float64
    definite: bool  # False: the kernel may have negative eigenvalues


# filter(K̃) ζ, and for new points also g(0): (..., 1) and r(K̃) ζ
Filter = Callable[[Fit], Tensor]
Extension = Callable[[Fit], tuple[Tensor, Tensor]]


def tikhonov(
    z: Tensor, *, same: Tensor | None = None, length_scale: str | float = "median",
    regularization: float | Tensor = 0.01, kernel: str = "rbf", points: Tensor | None = None,
    perplexity: float = PERPLEXITY,
) -> Tensor:  # fmt: skip
    """Ridge regression of the score in the kernel's space; γ is the ridge on K/n."""

    def ridge(fit: Fit) -> Tensor:
        return fit.gamma.to(fit.rows.dtype).expand_as(fit.rows)

    filters = _ridge_filters(ridge)
    return _estimate(z, same, length_scale, regularization, kernel, points, perplexity, *filters)


def stein(
    z: Tensor, *, same: Tensor | None = None, length_scale: str | float = "median",
    regularization: float | Tensor = 0.001, kernel: str = "rbf", points: Tensor | None = None,
    perplexity: float = PERPLEXITY,
) -> Tensor:  # fmt: skip
    """Stein's identity inverted with a ridge n²γ on K: Tikhonov's estimate with nγ in place of γ."""

    def ridge(fit: Fit) -> Tensor:
        return fit.rows * fit.gamma.to(fit.rows.dtype)

    filters = _ridge_filters(ridge)
    return _estimate(z, same, length_scale, regularization, kernel, points, perplexity, *filters)


def ssge(
    z: Tensor, *, same: Tensor | None = None, length_scale: str | float = "median",
    regularization: float | Tensor = 0.01, kernel: str = "rbf", points: Tensor | None = None,
    perplexity: float = PERPLEXITY,
) -> Tensor:  # fmt: skip
    """Stein's identity in the leading eigenfunctions of the kernel: those with eigenvalue above γ."""

    def filtered(fit: Fit) -> Tensor:
        return cutoff_solve(fit.kernel, fit.gamma, fit.zeta)

    def extended(fit: Fit) -> tuple[Tensor, Tensor]:
        slope = spectral_solve(fit.kernel, fit.zeta, lambda mu: cutoff(mu, fit.gamma).square())
        return torch.zeros_like(fit.gamma), slope

    return _estimate(z, same, length_scale, regularization, kernel, points, perplexity, filtered, extended)


def nu_method(
    z: Tensor, *, same: Tensor | None = None, length_scale: str | float = "median",
    regularization: float | Tensor = 0.01, kernel: str = "rbf", points: Tensor | None = None,
    perplexity: float = PERPLEXITY, stops: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """The accelerated iteration for the same regression, stopped after t steps: no matrix is inverted.

    stops: all the t that occur (filters.nu_steps), if known; spares a look at a regularization on the device.
    """
    if kernel in CURL_FREE:
        return _curl_free(z, same, length_scale, regularization, kernel, points)

    def filtered(fit: Fit) -> Tensor:
        matrix = fit.kernel if fit.definite else positive_part(fit.kernel)
        return nu_solve(matrix, fit.zeta, fit.gamma, stops)

    def extended(fit: Fit) -> tuple[Tensor, Tensor]:
        slope = spectral_solve(fit.kernel, fit.zeta, lambda mu: nu_polynomial(mu, fit.gamma)[1])
        return nu_polynomial(torch.zeros_like(fit.gamma), fit.gamma)[0], slope

    return _estimate(z, same, length_scale, regularization, kernel, points, perplexity, filtered, extended)


ESTIMATORS = {"ssge": ssge, "stein": stein, "tikhonov": tikhonov, "nu_method": nu_method}


def _ridge_filters(ridge: Callable[[Fit], Tensor]) -> tuple[Filter, Extension]:
    def filtered(fit: Fit) -> Tensor:
        matrix = fit.kernel if fit.definite else positive_part(fit.kernel)
        return ridge_solve(matrix, ridge(fit), fit.zeta)

    def extended(fit: Fit) -> tuple[Tensor, Tensor]:
        # 1/(μ+γ) = 1/γ − μ / (γ (μ+γ))
        height = 1 / ridge(fit)[:, :1]
        return height, -height[..., None] * ridge_solve(fit.kernel, ridge(fit), fit.zeta)

    return filtered, extended


@torch.no_grad()
def _estimate(
    z: Tensor, same: Tensor | None, length_scale: str | float, regularization: float | Tensor, kernel: str,
    points: Tensor | None, perplexity: float, filtered: Filter, extended: Extension,
) -> Tensor:  # fmt: skip
    check_choice("kernel", kernel, RADIAL)
    lead, sample, mask, gamma = _flatten(z, same, length_scale, regularization)
    sample = kernels.centred(sample)
    d2 = kernels.own_distances(sample)
    beta = kernels.inverse_scales(d2, mask, length_scale, perplexity)
    masks = len(mask) // len(sample)  # of the same points, one after the other
    sample = sample.repeat(masks, 1, 1)
    if gpu.available(d2):
        normal, pull, sums, rows = pairs.score_matrices(d2, beta, mask, kernel, paired=length_scale == "perplexity")
        zeta = torch.baddbmm(sums[..., None] * sample, pull, sample, alpha=-1)
    else:
        d2 = d2.repeat(masks, 1, 1)
        normal, zeta, rows = _normalised(sample, d2, kernels.pair_scales(beta, length_scale), kernel, mask)
    fit = Fit(normal, zeta, rows, gamma, length_scale != "perplexity")
    if points is None:
        return -(rows.rsqrt()[..., None] * filtered(fit)).reshape(*_leading(z, same), *z.shape[-2:])
    if same is not None or length_scale == "perplexity":
        raise UserError("points= is for one block: without same=, and with length_scale 'median' or a number")
    return _at_points(z, points.reshape(len(lead), *points.shape[-2:]), fit, beta, kernel, extended)


def _at_points(z: Tensor, points: Tensor, fit: Fit, beta: Tensor, kernel: str, extended: Extension) -> Tensor:
    """score(x) = −[g(0) ζ(x) + (1/n) k(x, Z) r(K/n) ζ(Z)], ζ(x) = b(x)/n: points (P, Q, D) -> (..., Q, D)."""
    sample = z.reshape(len(points), *z.shape[-2:])
    middle = sample.mean(-2, keepdim=True)
    sample, points = sample - middle, points - middle
    n = fit.rows[:, :1, None]
    d2 = kernels.squared_distances(points, sample)
    everything = torch.ones_like(d2, dtype=torch.bool)
    gram, b = _kernel_sums(points, sample, d2, beta[:, :1, None], kernel, everything)
    height, slope = extended(fit._replace(zeta=fit.zeta * n.rsqrt()))
    score = -(height.to(z.dtype)[..., None] * b / n + gram @ slope / n)
    return score.reshape(*z.shape[:-2], *points.shape[-2:])


@fused
def _normalised(z: Tensor, d2: Tensor, beta: Tensor, kernel: str, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """K̃ (P, N, N), D^{-1/2} b (P, N, D) and the block sizes n (P, N)."""
    rows = mask.sum(-1).clamp(min=1).to(z.dtype)
    root = rows.rsqrt()[..., None]
    gram, b = _kernel_sums(z, z, d2, beta, kernel, mask)
    return root * gram * root.mT, root * b, rows


def _kernel_sums(x: Tensor, z: Tensor, d2: Tensor, beta: Tensor, kernel: str, mask: Tensor) -> tuple[Tensor, Tensor]:
    """K (P, Q, N) and b_i = Σ_j W_ij (x_i − z_j) (P, Q, D), W = −2 ∂k/∂d² (2βK for rbf), both masked."""
    gram = kernels.radial(kernel, 0, d2, beta) * mask
    pull = 2 * beta * gram if kernel == "rbf" else -2 * kernels.radial(kernel, 1, d2, beta) * mask
    return gram, pull.sum(-1, keepdim=True) * x - pull @ z


def _flatten(
    z: Tensor, same: Tensor | None, length_scale: str | float, regularization: float | Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Leading axes as one: an index of it (M,), z (P, N, D), mask (M, N, N), γ (M, 1) in float64, M = P or R·P."""
    if z.ndim < 2 or not z.is_floating_point():
        raise UserError(f"z has the shape {tuple(z.shape)} and type {z.dtype}; it must be (..., N, D), real")
    kernels.check_length_scale(length_scale)
    if not isinstance(regularization, Tensor) and not regularization > 0:
        raise UserError(f"regularization is {regularization!r}; it must be a positive number")
    leading, (rows, dim) = _leading(z, same), z.shape[-2:]
    sample = z.detach().reshape(-1, rows, dim)
    gamma = torch.as_tensor(regularization, dtype=torch.float64, device=z.device)
    gamma = gamma.expand(leading).reshape(-1, 1)
    if same is None:
        same = torch.ones(rows, rows, dtype=torch.bool, device=z.device)
    mask = same.expand(*leading, rows, rows).reshape(-1, rows, rows)
    return gamma[:, 0], sample, mask, gamma


def _leading(z: Tensor, same: Tensor | None) -> torch.Size:
    """Of the scores: z's leading axes, and before them any more that the mask has."""
    own = z.shape[:-2]
    return same.shape[:-2] if same is not None and same.ndim - 2 > len(own) else own


@torch.no_grad()
def _curl_free(
    z: Tensor, same: Tensor | None, length_scale: str | float, regularization: float | Tensor, kernel: str,
    points: Tensor | None,
) -> Tensor:  # fmt: skip
    if points is not None or isinstance(regularization, Tensor) or length_scale == "perplexity":
        raise UserError(f"{kernel} takes one regularization, length_scale 'median' or a number, and no points=")
    _, sample, mask, _ = _flatten(z, same, length_scale, regularization)
    beta = kernels.inverse_scales(kernels.own_distances(sample), mask, length_scale)
    return curl_free_scores(sample, mask, beta, CURL_FREE[kernel], regularization).reshape(z.shape)
