"""Batch normalisation, ELU, average pooling and dropout as one function with a backward pass of its own.

The same as BatchNorm, elu_pool and the dropout of EEGNet one after the other, which remain the plain path and its
oracle. Fused, the signal is read twice and nothing of its size is written in the forward pass; in the backward pass
it is read twice and its gradient written once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..fusing import fused
from .layers import BatchNorm, apply


class Dropping(NamedTuple):
    """Which units are dropped: unit i of member p where halves[group[p], i] lies below the member's threshold."""

    halves: Tensor  # (G, n) int16, uniform
    group: Tensor | None  # (P,); None: G = P
    drop: Tensor  # (P,) probabilities


def kept(dropping: Dropping, h: Tensor) -> Tensor:
    """Units (P, F, B, T) with dropped ones 0 and the others scaled up."""
    halves, group, drop = dropping
    halves = halves if group is None else halves[group]
    threshold = (drop * 65536.0).round().to(torch.int32) - 32768
    keep = (halves >= threshold[:, None]).view(h.shape)
    return h * keep * (1.0 / (1.0 - drop)).view(-1, 1, 1, 1)


@fused
def _forward(
    v: Tensor, gamma: Tensor, beta: Tensor, dropping: Dropping, times: int, pool: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """v (P, F, B·T), gamma and beta (P, F) -> output (P, F, B, T // pool), mean and variance (P, F)."""
    mean = v.mean(-1)
    var = (v - mean[..., None]).square().mean(-1)
    h = _normal(v, mean, var, gamma, beta, eps).view(*v.shape[:2], -1, times)
    steps = times // pool
    h = h[..., : steps * pool]
    value = (h.clamp(min=0.0) + h.clamp(max=0.0).exp()).reshape(*h.shape[:3], steps, pool)
    out = value[..., 0]
    for i in range(1, pool):  # slices add faster than a reduction of so few elements
        out = out + value[..., i]
    return kept(dropping, out / pool - 1.0), mean, var


@fused
def _backward(
    grad: Tensor, v: Tensor, mean: Tensor, var: Tensor, gamma: Tensor, beta: Tensor, dropping: Dropping, times: int,
    pool: int, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of v, gamma and beta."""
    n, steps = v.shape[-1], times // pool
    slope = _normal(v, mean, var, gamma, beta, eps).clamp(max=0.0).exp()  # of ELU, on both sides of 0
    slope = slope.view(*v.shape[:2], -1, times)[..., : steps * pool]
    g = ((kept(dropping, grad) / pool)[..., None] * slope.reshape(*slope.shape[:3], steps, pool)).flatten(-2)
    if steps * pool < times:
        g = F.pad(g, (0, times - steps * pool))
    g = g.flatten(-2)
    centred = v - mean[..., None]
    inverse = (var + eps).rsqrt()
    grad_beta = g.sum(-1)
    along = (g * centred).sum(-1)
    scale = gamma * inverse
    # scale * (g - mean(g) - centred / (var + eps) * mean(g * centred))
    shift, pull = scale * grad_beta / n, scale * inverse * inverse * along / n
    grad_v = scale[..., None] * g - shift[..., None] - pull[..., None] * centred
    return grad_v, along * inverse, grad_beta


def _normal(v: Tensor, mean: Tensor, var: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    scale = gamma * (var + eps).rsqrt()
    return (v - mean[..., None]) * scale[..., None] + beta[..., None]


class _NormPool(Function):
    @staticmethod
    def forward(
        ctx: Any, v: Tensor, gamma: Tensor, beta: Tensor, offset: Tensor | None, dropping: Dropping, times: int,
        pool: int, eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        out, mean, var = _forward(v, gamma, beta, dropping, times, pool, eps)
        ctx.save_for_backward(v, mean, var, gamma, beta)
        ctx.mark_non_differentiable(mean, var)
        ctx.rest, ctx.has_offset = (dropping, times, pool, eps), offset is not None
        return out, mean, var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        v, mean, var, gamma, beta = ctx.saved_tensors
        dropping, times, pool, eps = ctx.rest
        grad_v, grad_gamma, grad_beta = _backward(grad, v, mean, var, gamma, beta, dropping, times, pool, eps)
        no_offset = torch.zeros_like(grad_beta) if ctx.has_offset else None
        return grad_v, grad_gamma, grad_beta, no_offset, None, None, None, None


def norm_pool(
    norm: BatchNorm, v: Tensor, times: int, pool: int, dropping: Dropping, offset: Tensor | None = None,
    active: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """v: (P, F, B·T) -> (P, F, B, T // pool); `offset` and `active` as in BatchNorm, which is in training mode."""
    size = v.shape[:2]
    weight, bias = norm.weight.reshape(size), norm.bias.reshape(size)
    out, mean, var = apply(_NormPool, v, weight, bias, offset, dropping, times, pool, norm.eps)
    norm.track(mean if offset is None else mean + offset, var, v.shape[-1], active)
    pooled: Tensor = out
    return pooled
