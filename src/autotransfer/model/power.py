"""Log power of filtered signals as latents of EEGNet (log_power=True) and Shallow.

Power is the mean square over a segment. Windows should be standardized, because an offset contributes to the power. If
the amplitudes of two subjects differ by a factor, their log powers differ by a constant.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .. import cpu
from ..cpu.blocks import SavedLatents, latents_backward, latents_forward
from ..gpu import DropoutDraws
from ..gpu.autograd import apply
from .layers import BatchNorm
from .norm_pool import DropoutKeys, drop_units

FLOOR = 1e-3  # added to the power of a normalized signal, so that the logarithm of 0 is finite and not too large


def square_pool(v: Tensor, pool: int) -> Tensor:
    """Average the squares of `pool` neighboring samples: (..., times) -> (..., times // pool)."""
    steps = v.shape[-1] // pool
    first, *others = v[..., : steps * pool].reshape(*v.shape[:-1], steps, pool).unbind(-1)
    total = first.square()
    for samples in others:  # adding slices is faster than summing over a short axis
        total = torch.addcmul(total, samples, samples)
    return total / pool


def pool_squares(squares: Tensor, pool: int) -> Tensor:
    """Average `pool` neighboring mean squares: (..., times) -> (..., times // pool)."""
    steps = squares.shape[-1] // pool
    return squares[..., : steps * pool].reshape(*squares.shape[:-1], steps, pool).mean(-1)


class _Latents(Function):
    """Logarithm, batch normalization and dropout by a kernel: (P, F, B, S) -> (P, B, F·S)."""

    @staticmethod
    def forward(
        ctx: Any, power: Tensor, gamma: Tensor, beta: Tensor, dropout: DropoutDraws, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        power, gamma, beta = power.contiguous(), gamma.contiguous(), beta.contiguous()
        latents, saved = latents_forward(power, gamma, beta, dropout, FLOOR, eps)
        ctx.save_for_backward(power, gamma, beta, *saved)
        ctx.mark_non_differentiable(saved.mean, saved.variance)
        ctx.dropout, ctx.eps = dropout, eps
        return latents, saved.mean, saved.variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        power, gamma, beta, *saved = ctx.saved_tensors
        grads = latents_backward(grad, power, gamma, beta, ctx.dropout, SavedLatents(*saved), FLOOR, ctx.eps)
        return *grads, None, None


def compute_power_latents(
    norm: BatchNorm, power: Tensor, layer: int, keys: DropoutKeys | None, active: Tensor | None
) -> Tensor:
    """Map power (P, F, B, S) to latents (P, B, F·S) by logarithm, batch normalization and dropout."""
    dropout = None if keys is None else keys.draw(layer, power[0].numel())
    if dropout is not None and norm.training and cpu.is_available(power):
        size = power.shape[:2]
        gamma, beta = norm.weight.reshape(size), norm.bias.reshape(size)
        latents, mean, variance = apply(_Latents, power, gamma, beta, dropout, norm.eps)
        norm.update_running(mean, variance, power[0, 0].numel(), active)
        return latents
    logs = norm((power + FLOOR).log().flatten(2), None, active).view(power.shape)
    return drop_units(dropout, logs).transpose(1, 2).flatten(2)
