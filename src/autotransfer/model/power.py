"""The power of filtered signals, which a network with ELU has to piece together and a linear classifier cannot.

EEGNet's code says how signals move; with log_power=True it also says how strong each spatial filter's signal is, in the
same steps of time, as a logarithm: what differs between people by a factor then differs by a summand. It is the mean
square, so that an offset counts as power: windows should be standardized, and levels read apart where they differ.
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
from .norm_pool import DropoutKeys, apply_dropout

FLOOR = 1e-3  # of a power that is about 1, so that silence has a logarithm, and not one that drowns all else


class _SquarePool(Function):
    @staticmethod
    def forward(ctx: Any, v: Tensor, pool: int) -> Tensor:
        used = v[..., : v.shape[-1] // pool * pool]
        out = used[..., ::pool].square()
        for i in range(1, pool):  # slices add faster than a strided reduction of so few elements
            out.addcmul_(used[..., i::pool], used[..., i::pool])
        ctx.save_for_backward(v)
        ctx.pool = pool
        return out.div_(pool)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (v,) = ctx.saved_tensors
        used = grad.shape[-1] * ctx.pool
        slope = (grad * (2.0 / ctx.pool))[..., None].expand(*grad.shape, ctx.pool)
        if used == v.shape[-1]:
            return v * slope.flatten(-2), None
        grad_v = torch.zeros_like(v)
        torch.mul(v[..., :used], slope.flatten(-2), out=grad_v[..., :used])
        return grad_v, None


def square_pool(v: Tensor, pool: int) -> Tensor:
    """Average squares over `pool` neighbors: (..., times) to (..., times // pool)."""
    squares: Tensor = apply(_SquarePool, v, pool)
    return squares


def pool_squares(squares: Tensor, pool: int) -> Tensor:
    """Return mean squares (..., times), pooled once more: (..., times // pool)."""
    steps = squares.shape[-1] // pool
    segments = squares[..., : steps * pool].reshape(*squares.shape[:-1], steps, pool)
    return segments.mean(-1)


def log_with_floor(power: Tensor) -> Tensor:
    """Return the logarithm of a power, which is finite for silence."""
    return (power + FLOOR).log()


class _Latents(Function):
    """Logarithms, BatchNorm and dropout by a kernel, in the order of latents."""

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
    norm: BatchNorm,
    power: Tensor,
    layer: int,
    keys: DropoutKeys | None,
    usual: float,
    active: Tensor | None,
    training: bool,
) -> Tensor:
    """Map power (P, F, B, S) to latents (P, B, F·S): logarithms, normalized, with dropout, by a kernel where one serves
    and the normalization learns. layer, keys, usual and training: as of `DropoutKeys` and `dropped`."""
    if keys is not None and norm.training and cpu.available(power):
        size = power.shape[:2]
        gamma, beta = norm.weight.reshape(size), norm.bias.reshape(size)
        latents: Tensor
        dropout = keys.draw(layer, power[0].numel())
        latents, mean, variance = apply(_Latents, power, gamma, beta, dropout, norm.eps)
        norm.update_running(mean, variance, power[0, 0].numel(), active)
        return latents
    power = log_with_floor(power)
    power = norm(power.flatten(2), None, active).view(power.shape)
    return apply_dropout(power, layer, keys, usual, training).transpose(1, 2).flatten(2)
