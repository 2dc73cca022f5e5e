"""Batch normalization, ELU, average pooling and dropout as one step with a backward pass of its own, by kernels.

The same as BatchNorm, elu_pool, `kept` and, if wanted, square_pool one after the other, which are the plain path and
its oracle. The signal is read and its gradient written once; nothing of its size is kept but the signal itself.
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
    """DropoutKeys that decide which units are dropped: a function of keys and places, not of torch's generator."""

    noise: Tensor  # (G,) int32 keys
    group: Tensor | None  # (P,) whose key a member has; None where G = P
    drop: Tensor  # (P,) probabilities

    def draw(self, layer: int, units: int) -> DropoutDraws:
        """Draw which of so many units are dropped; `layer` tells its keys from those of others."""
        # Two units share a word of 32 bits, so probabilities are resolved to 1/65536.
        draws = bits(fold_in(self.noise, layer), (units + 1) // 2).view(torch.int16)[:, :units]
        return DropoutDraws(draws, self.group, self.drop)


def make_dropout_keys(
    noise: Tensor | None, group: Tensor | None, drop: Tensor | None, like: Tensor, usual: float
) -> DropoutKeys | None:
    """Return the keys of P members with tensors like this one (P, ...); if no probabilities are given, all have the
    usual one."""
    if noise is None:
        return None
    probability = like.new_full((len(like),), usual) if drop is None else drop
    return DropoutKeys(noise, group, probability)


def apply_dropout(h: Tensor, layer: int, keys: DropoutKeys | None, usual: float, training: bool) -> Tensor:
    """Return units (P, F, B, T) of a network after dropout; there are keys in training alone."""
    if keys is None:
        return torch.nn.functional.dropout(h, usual, training)
    return drop_units(keys.draw(layer, h[0].numel()), h)


def drop_units(dropout: DropoutDraws, h: Tensor) -> Tensor:
    """Return units (P, F, B, T) with dropped ones 0 and the others scaled up."""
    draws = dropout.draws if dropout.group is None else dropout.draws[dropout.group]
    keep = (draws >= dropout.threshold[:, None]).view(h.shape)
    return h * keep * dropout.keep_scale.to(h.dtype).view(-1, 1, 1, 1)


class _NormPool(Function):
    @staticmethod
    def forward(
        ctx: Any, kernels: ModuleType, v: Tensor, gamma: Tensor, beta: Tensor, offset: Tensor | None,
        dropout: DropoutDraws, times: int, pool: int, eps: float, squared: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:  # fmt: skip
        out, squares, mean, var = kernels.norm_pool_forward(v, gamma, beta, dropout, times, pool, eps, squared)
        ctx.save_for_backward(v, mean, var, gamma, beta)
        ctx.mark_non_differentiable(mean, var)
        ctx.kernels, ctx.rest, ctx.has_offset = kernels, (dropout, times, pool, eps), offset is not None
        return out, squares, mean, var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_squares: Tensor | None, *_: Tensor) -> tuple[Tensor | None, ...]:
        grad_v, grad_gamma, grad_beta = ctx.kernels.norm_pool_backward(
            grad, grad_squares, *ctx.saved_tensors, *ctx.rest
        )
        no_offset = torch.zeros_like(grad_beta) if ctx.has_offset else None
        return None, grad_v, grad_gamma, grad_beta, no_offset, None, None, None, None, None


def norm_pool(
    kernels: ModuleType, norm: BatchNorm, v: Tensor, times: int, pool: int, dropout: DropoutDraws,
    offset: Tensor | None = None, active: Tensor | None = None, *, squared: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Map v (P, F, B·T) to (P, F, B, T // pool), and if wanted the mean squares of v in the same shape; `offset` and
    `active` as in BatchNorm, which is in training mode."""
    size = v.shape[:2]
    weight, bias = norm.weight.reshape(size), norm.bias.reshape(size)
    out, squares, mean, var = apply(
        _NormPool, kernels, v, weight, bias, offset, dropout, times, pool, norm.eps, squared
    )  # fmt: skip
    norm.update_running(mean, var, v.shape[-1], active, offset)
    return out, squares
