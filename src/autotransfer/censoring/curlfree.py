"""Curl-free kernels: matrix-valued, K(x, y) = −∇∇ᵀ f(|x − y|²), so that an estimated score is a gradient.

Zhou, Shi and Zhu (2020). The (N·D)² matrix is never built: with u = |x_i − x_j|², r = x_i − x_j,

    K(x_i, x_j) v = −2 f′(u) v − 4 f″(u) r ⟨r, v⟩

and ⟨r, v_j⟩ = x_i·v_j − x_j·v_j, so a product with all v_j is three N×N matrix products.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .filters import nu_rates, nu_steps
from .kernels import centred, own_distances, radial

CURL_FREE = {"curl_free_rbf": "rbf", "curl_free_imq": "imq"}


def curl_free_scores(z: Tensor, mask: Tensor, beta: Tensor, kernel: str, regularization: float) -> Tensor:
    """The ν-method's estimate (ν = 1) in the sample: z (P, N, D), mask (P, N, N), β (P, N) -> (P, N, D).

    x_t = x_{t−1} + u_t (x_{t−1} − x_{t−2}) + ω_t (ζ − L x_{t−1}), score = −x_T, L = K/n.
    """
    x = centred(z)
    d2, beta = own_distances(x), beta[..., None]
    n = mask.sum(-1, keepdim=True).clamp(min=1)
    unit = 2 * beta  # −2f′(0) for both kernels: K(x, x) = I and L ≤ 1, as the iteration needs
    first, second, third = (mask * radial(kernel, order, d2, beta) / unit for order in (1, 2, 3))

    def product(v: Tensor) -> Tensor:
        along = -4 * second * (x @ v.mT - (x * v).sum(-1)[..., None, :])
        return (-2 * (first @ v) + along.sum(-1, keepdim=True) * x - along @ x) / n

    pull = 2 * ((2 * z.shape[-1] + 4) * second + 4 * d2 * third)  # ∇ of the Laplacian of f, along r
    zeta = (pull.sum(-1, keepdim=True) * x - pull @ x) / n
    before = now = torch.zeros_like(x)
    for t in range(1, int(nu_steps(torch.tensor(regularization, dtype=torch.float64))) + 1):
        momentum, rate = nu_rates(t)
        before, now = now, now + momentum * (now - before) + rate * (zeta - product(now))
    return -now
