"""Batch normalization, ELU, average pooling and dropout in one kernel, and dropout from keys.

The kernel computes BatchNorm, elu_pool, drop_units and, optionally, square_pool. Without kernels the encoders call
these functions one after another.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..gpu import DropoutDraws
from ..gpu.autograd import apply
from ..randomness import bits, fold_in
from .layers import BatchNorm


class DropoutKeys(NamedTuple):
    """Random keys and probabilities for the dropout of P members."""

    noise: Tensor  # (G,) int32 random keys
    group: Tensor | None  # (P,) index of a member's key; None if G = P
    drop: Tensor  # (P,) probabilities

    def draw(self, layer: int, units: int) -> DropoutDraws:
        """Draw random numbers for a layer with a number of units per member."""
        # Each unit uses 16 random bits, so probabilities are multiples of 1/65536.
        draws = bits(fold_in(self.noise, layer), (units + 1) // 2).view(torch.int16)[:, :units]
        return DropoutDraws(draws, self.group, self.drop)


def make_dropout_keys(
    noise: Tensor | None, group: Tensor | None, drop: Tensor | None, like: Tensor, probability: float
) -> DropoutKeys:
    """Return the dropout keys of P members, drawn at random if noise is None; like: tensor (P, ...)."""
    if noise is None:
        noise, group = draw_keys(len(like), like.device), None
    return DropoutKeys(noise, group, like.new_full((len(like),), probability) if drop is None else drop)


def draw_keys(members: int, device: torch.device) -> Tensor:
    """Draw int32 keys (P,) from torch's generator."""
    return torch.randint(-(2**31), 2**31, (members,), dtype=torch.int64).to(device, torch.int32)


def drop_units(dropout: DropoutDraws | None, h: Tensor) -> Tensor:
    """Set dropped units of (P, F, B, T) to 0 and scale the other units; dropout=None: return h."""
    if dropout is None:
        return h
    draws = dropout.draws if dropout.group is None else dropout.draws[dropout.group]
    is_kept = (draws >= dropout.threshold[:, None]).view(h.shape)
    return h * is_kept * dropout.keep_scale.to(h.dtype).view(-1, 1, 1, 1)


class _NormPool(Function):
    @staticmethod
    def forward(
        ctx: Any, kernels: ModuleType, v: Tensor, gamma: Tensor, beta: Tensor, offset: Tensor | None,
        dropout: DropoutDraws, times: int, pool: int, eps: float, squared: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:  # fmt: skip
        out, squares, mean, var = kernels.norm_pool_forward(v, gamma, beta, dropout, times, pool, eps, squared)
        ctx.save_for_backward(v, mean, var, gamma, beta)
        ctx.mark_non_differentiable(mean, var)
        ctx.kernels, ctx.options, ctx.has_offset = kernels, (dropout, times, pool, eps), offset is not None
        return out, squares, mean, var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_squares: Tensor | None, *_: Tensor) -> tuple[Tensor | None, ...]:
        grad_v, grad_gamma, grad_beta = ctx.kernels.norm_pool_backward(
            grad, grad_squares, *ctx.saved_tensors, *ctx.options
        )
        grad_offset = torch.zeros_like(grad_beta) if ctx.has_offset else None
        return None, grad_v, grad_gamma, grad_beta, grad_offset, None, None, None, None, None


def norm_pool(
    kernels: ModuleType, norm: BatchNorm, v: Tensor, times: int, pool: int, dropout: DropoutDraws,
    offset: Tensor | None = None, active: Tensor | None = None, *, squared: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Map v (P, F, B·T) to units (P, F, B, T // pool) and, if `squared`, mean squares of v (P, F, B, T // pool)."""
    weight, bias = norm.weight.reshape(v.shape[:2]), norm.bias.reshape(v.shape[:2])
    arguments = kernels, v, weight, bias, offset, dropout, times, pool, norm.eps, squared
    out, squares, mean, var = apply(_NormPool, *arguments)
    norm.update_running(mean, var, v.shape[-1], active, offset)
    return out, squares
