"""Layers with the member on axis 0.

Signals are channel-major, (P, channels, B, times): mixing channels and filtering along time are both batched matrix
products, and batch statistics reduce over contiguous memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..gpu.autograd import apply, apply_one
from ..kernels import kernels_for
from .moments import SplitWindows


def copy_transposed(matrix: Tensor) -> Tensor:
    """Transpose (N, i, j) to (N, j, i); on CPUs the result is a copy, because products with views are slow."""
    transposed = matrix.transpose(1, 2)
    return transposed.contiguous() if transposed.device.type == "cpu" else transposed


class _Product(Function):
    """Product of weights (P, i, k) and signals (G, k, n)[group] by kernels, or by torch if kernels are None."""

    @staticmethod
    def forward(ctx: Any, kernels: ModuleType | None, w: Tensor, x: Tensor, group: Tensor | None) -> Tensor:
        ctx.save_for_backward(w, x, group)
        ctx.kernels = kernels
        out: Tensor = torch.bmm(w, x) if kernels is None else kernels.product(w, x, group)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None, None]:
        w, x, group = ctx.saved_tensors
        kernels, grad_w, grad_x = ctx.kernels, None, None
        if ctx.needs_input_grad[1] and kernels is None:
            grad_w = torch.bmm(grad, copy_transposed(x))
        elif ctx.needs_input_grad[1]:
            grad_w = kernels.product(grad, x.transpose(1, 2), group)
        if ctx.needs_input_grad[2]:  # then there is no group
            grad_x = (torch.bmm if kernels is None else kernels.product)(copy_transposed(w), grad)
        return None, grad_w, grad_x, None


def mix_channels(w: Tensor, h: Tensor) -> Tensor:
    """Multiply (P, out, in) × (P, in, n) to (P, out, n)."""
    return apply_one(_Product, kernels_for(h), w, h, None)


def mix_windows(w: Tensor, x: Tensor | SplitWindows, group: Tensor | None) -> Tensor:
    """Mix the channels of windows (G, B, C, T) by weights (P, out, C) to (P, out, B·T); group: (P,), None if G = P."""
    if isinstance(x, Tensor):
        signals = x.transpose(1, 2).flatten(2)
        kernels = None if x.requires_grad else kernels_for(signals)
        if kernels is not None:
            return apply_one(_Product, kernels, w, signals, group)
        return torch.bmm(w, signals if group is None else signals[group])
    channels = x.signals.shape[2]
    mixed = mix_windows(w[..., :channels], x.signals, group)
    constants = x.constants if group is None else x.constants[group]
    mixed_constants = torch.bmm(w[..., channels:], copy_transposed(constants))  # (P, out, B)
    return (mixed.view(*mixed_constants.shape, -1) + mixed_constants[..., None]).flatten(2)


class _Normalize(Function):
    """Batch normalization of v (P, F, n); adding `offset` (P, F) to v has no effect, so its gradient is 0."""

    @staticmethod
    def forward(
        ctx: Any, v: Tensor, gamma: Tensor, beta: Tensor, offset: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean = v.mean(-1)
        centered = v - mean[..., None]
        var = (centered * centered).mean(-1)
        inverse = (var + eps).rsqrt()
        ctx.save_for_backward(centered, inverse, gamma)
        ctx.mark_non_differentiable(mean, var)
        ctx.has_offset = offset is not None
        return torch.addcmul(beta[..., None], centered, (gamma * inverse)[..., None]), mean, var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None, None]:
        centered, inverse, gamma = ctx.saved_tensors
        n = centered.shape[-1]
        grad_beta = grad.sum(-1)
        grad_dot = (grad * centered).sum(-1)
        scale = gamma * inverse
        # grad_v = scale * (grad - mean(grad) - centered / (var + eps) * mean(grad * centered))
        grad_v = torch.addcmul((scale * grad_beta / -n)[..., None], grad, scale[..., None])
        grad_v.addcmul_(centered, (scale * inverse * inverse * grad_dot / -n)[..., None])
        grad_offset = torch.zeros_like(grad_beta) if ctx.has_offset else None
        return grad_v, grad_dot * inverse, grad_beta, grad_offset, None


class _EluPool(Function):
    """ELU, then average pooling: (..., times) -> (..., times // pool)."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, pool: int) -> Tensor:
        times = h.shape[-1]
        # The slope of ELU is exp(min(h, 0)), so forward and backward pass share one exponential.
        slope = h.clamp(max=0.0).exp_()
        value = h.clamp(min=0.0).add_(slope).view(*h.shape[:-1], times // pool, pool)
        out = value[..., 0] + value[..., 1] if pool > 1 else value[..., 0].clone()
        for i in range(2, pool):  # adding slices is faster than summing over a short axis
            out += value[..., i]
        ctx.save_for_backward(slope)
        ctx.pool = pool
        return out.div_(pool).sub_(1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        pool = ctx.pool
        grad_h = (grad / pool)[..., None] * slope.view(*grad.shape, pool)
        return grad_h.flatten(-2), None


def elu_pool(h: Tensor, pool: int) -> Tensor:
    """Apply ELU, then average pooling: (..., times) -> (..., times // pool); remaining samples are dropped."""
    times = h.shape[-1] // pool * pool
    return apply_one(_EluPool, h[..., :times], pool)


class BatchNorm(nn.Module):
    """Batch normalization of signals (P, F, n) per member and feature; members=None: parameters have no axis P."""

    eps = 1e-5
    momentum = 0.1

    def __init__(self, members: int | None, features: int) -> None:
        super().__init__()
        size = (features,) if members is None else (members, features)
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.running_mean, self.running_var = nn.Buffer(torch.zeros(size)), nn.Buffer(torch.ones(size))

    def update_running(
        self, mean: Tensor, var: Tensor, count: int, active: Tensor | None, offset: Tensor | None = None
    ) -> None:
        """Update running statistics of active members from batch statistics (P, F); `offset` is added to the mean."""
        with torch.no_grad():
            mean = mean if offset is None else mean + offset
            rate = self.momentum if active is None else self.momentum * active.to(mean.dtype)[:, None]
            self.running_mean.view(mean.shape).lerp_(mean, rate)
            self.running_var.view(mean.shape).lerp_(var * (count / max(count - 1, 1)), rate)

    def affine(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scale and shift (P, F) that normalize signals with this mean and variance."""
        scale = self.weight.reshape(mean.shape) * (var + self.eps).rsqrt()
        return scale, self.bias.reshape(mean.shape) - mean * scale

    def forward(self, v: Tensor, offset: Tensor | None = None, active: Tensor | None = None) -> Tensor:
        """Normalize v + offset, of shapes (P, F, n) and (P, F)."""
        size = v.shape[:2]
        if self.training:
            weight, bias = self.weight.reshape(size), self.bias.reshape(size)
            h, mean, var = apply(_Normalize, v, weight, bias, offset, self.eps)
            self.update_running(mean, var, v.shape[-1], active, offset)
            return h
        scale, shift = self.running_affine(size, offset)
        return torch.addcmul(shift[..., None], v, scale[..., None])

    def running_affine(
        self, size: Sequence[int], offset: Tensor | None = None, dtype: torch.dtype | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the scale and shift (P, F) of v that normalize v + offset by running statistics."""
        dtype = dtype or self.running_mean.dtype
        scale, shift = self.affine(self.running_mean.view(size).to(dtype), self.running_var.view(size).to(dtype))
        return scale, shift if offset is None else shift + offset * scale


class Linear(nn.Module):
    """Linear layer per member, (P, B, n_in) -> (P, B, n_out), initialized like torch.nn.Linear."""

    def __init__(self, members: int, n_in: int, n_out: int, *, seeds: Sequence[int]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, n_out, n_in))
        self.bias = nn.Parameter(torch.empty(members, n_out))
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        fill_uniform(self.weight, n_in, generators)
        fill_uniform(self.bias, n_in, generators)

    def forward(self, z: Tensor) -> Tensor:
        if self.weight.shape[1] == 1:  # a product with a vector would round differently for P = 1
            return (z * self.weight).sum(-1, keepdim=True) + self.bias[:, None, :]
        return torch.baddbmm(self.bias[:, None, :], z, self.weight.transpose(1, 2))


def fill_uniform(parameter: Tensor, fan_in: int, generators: list[torch.Generator]) -> None:
    """Draw a parameter (P, ...) from torch's default U(±1/√fan_in), with one generator per member.

    Values are drawn in float32 on the CPU, so that weights depend neither on the device nor on the dtype.
    """
    bound = 1.0 / math.sqrt(fan_in)
    with torch.no_grad():
        rows = parameter.view(len(generators), -1)
        for row, generator in zip(rows, generators, strict=True):
            draw = torch.empty(row.shape, dtype=torch.float32).uniform_(-bound, bound, generator=generator)
            row.copy_(draw)


def constant(tensor: Tensor) -> nn.Buffer:
    """Return a copy of a tensor in float32 as a buffer of a graph for export."""
    return nn.Buffer(tensor.detach().to(torch.float32, copy=True).contiguous())
