"""Batch normalisation, ELU, average pooling and dropout as one function with a backward pass of its own.

The same as BatchNorm, elu_pool and the dropout of EEGNet one after the other, which remain the plain path and its
oracle. Fused, the signal is read twice and nothing of its size is written in the forward pass; in the backward pass
it is read twice and its gradient written once.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..fusing import fused
from .layers import BatchNorm, apply


@fused
def _forward(v: Tensor, gamma: Tensor, beta: Tensor, keep: Tensor, pool: int, eps: float) -> tuple[Tensor, ...]:
    """v (P, F, B, T), gamma and beta (P, F), keep (P, F, B, T // pool) -> output, mean, variance."""
    mean = v.mean((-2, -1))
    var = (v - mean[..., None, None]).square().mean((-2, -1))
    h = _normal(v, mean, var, gamma, beta, eps)
    h = h[..., : v.shape[-1] // pool * pool]
    value = h.clamp(min=0.0) + h.clamp(max=0.0).exp()
    pooled = value.view(*h.shape[:-1], -1, pool).mean(-1) - 1.0
    return pooled * keep, mean, var


@fused
def _backward(
    grad: Tensor, v: Tensor, mean: Tensor, var: Tensor, gamma: Tensor, beta: Tensor, keep: Tensor, pool: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of v, gamma and beta."""
    times, n = v.shape[-1], v.shape[-2] * v.shape[-1]
    slope = _normal(v, mean, var, gamma, beta, eps).clamp(max=0.0).exp()  # of ELU, on both sides of 0
    spread = (grad * keep / pool).repeat_interleave(pool, -1)
    g = F.pad(spread, (0, times - spread.shape[-1])) * slope
    centred = v - mean[..., None, None]
    inverse = (var + eps).rsqrt()
    grad_beta = g.sum((-2, -1))
    along = (g * centred).sum((-2, -1))
    scale = gamma * inverse
    # scale * (g - mean(g) - centred / (var + eps) * mean(g * centred))
    shift, pull = scale * grad_beta / n, scale * inverse * inverse * along / n
    grad_v = scale[..., None, None] * g - shift[..., None, None] - pull[..., None, None] * centred
    return grad_v, along * inverse, grad_beta


def _normal(v: Tensor, mean: Tensor, var: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    scale = gamma * (var + eps).rsqrt()
    return (v - mean[..., None, None]) * scale[..., None, None] + beta[..., None, None]


class _NormPool(Function):
    @staticmethod
    def forward(
        ctx: Any, v: Tensor, gamma: Tensor, beta: Tensor, offset: Tensor | None, keep: Tensor, pool: int, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        out, mean, var = _forward(v, gamma, beta, keep, pool, eps)
        ctx.save_for_backward(v, mean, var, gamma, beta, keep)
        ctx.mark_non_differentiable(mean, var)
        ctx.pool, ctx.eps, ctx.has_offset = pool, eps, offset is not None
        return out, mean, var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        v, mean, var, gamma, beta, keep = ctx.saved_tensors
        grad_v, grad_gamma, grad_beta = _backward(grad, v, mean, var, gamma, beta, keep, ctx.pool, ctx.eps)
        no_offset = torch.zeros_like(grad_beta) if ctx.has_offset else None
        return grad_v, grad_gamma, grad_beta, no_offset, None, None, None


def norm_pool(
    norm: BatchNorm, v: Tensor, pool: int, keep: Tensor, offset: Tensor | None = None, active: Tensor | None = None
) -> Tensor:
    """v: (P, F, B, T) -> (P, F, B, T // pool). `keep` holds 0 for units that are dropped, 1/(1 − p) for the others;
    `offset` and `active` as in BatchNorm, which is in training mode."""
    size = v.shape[:2]
    weight, bias = norm.weight.reshape(size), norm.bias.reshape(size)
    out, mean, var = apply(_NormPool, v, weight, bias, offset, keep, pool, norm.eps)
    norm.track(mean if offset is None else mean + offset, var, v.shape[-2] * v.shape[-1], active)
    pooled: Tensor = out
    return pooled
