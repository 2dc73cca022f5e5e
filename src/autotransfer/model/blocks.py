"""Blocks of a network as one step each with a backward pass of its own, by kernels for a CPU.

The same as mix_signals or mix_leveled, filter_times, and BatchNorm, elu_pool and `kept`, or Shallow's power, one after
the other, which are the plain path and its oracle. Signals stay in the cache; of all of them only those that are
normalized are kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .. import cpu
from ..cpu.blocks import (
    Form,
    Kept,
    LaidOut,
    Weights,
    block_backward,
    block_forward,
    lay_out,
    second_backward,
    second_forward,
)  # fmt: skip
from ..gpu import Dropping
from ..gpu.autograd import apply
from .layers import BatchNorm, transposed
from .moments import Leveled, padding


class _Block(Function):
    @staticmethod
    def forward(
        ctx: Any, windows: LaidOut, form: Form, dropping: Dropping | None, offset: Tensor | None, spatial: Tensor,
        constant: Tensor | None, w: Tensor, gamma: Tensor, beta: Tensor,
    ) -> tuple[Tensor | None, Tensor | None, Tensor, Tensor]:  # fmt: skip
        given = (spatial, constant, w, gamma, beta)
        weights = Weights(*(None if tensor is None else tensor.contiguous() for tensor in given))  # type: ignore[arg-type]  # the constant alone
        units, power, kept = block_forward(windows, weights, form, dropping)
        ctx.save_for_backward(*weights, *kept)
        ctx.mark_non_differentiable(kept.mean, kept.variance)
        ctx.set_materialize_grads(False)
        ctx.rest, ctx.has_offset = (windows, form, dropping), offset is not None
        return units, power, kept.mean, kept.variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, grad_power: Tensor | None, *_: Tensor) -> tuple[Tensor | None, ...]:
        windows, form, dropping = ctx.rest
        saved = ctx.saved_tensors
        weights, kept = Weights(*saved[:5]), Kept(*saved[5:])
        per_window = (*kept.mean.shape, windows.batch)
        if form.pool and grad is None:  # nobody reads the units, or the power
            grad = windows.x.new_zeros(*per_window, windows.times // form.pool)
        if form.stretches and grad_power is None:
            grad_power = windows.x.new_zeros(*per_window, form.stretches)
        grads = block_backward(grad, grad_power, windows, weights, form, dropping, kept)
        no_offset = torch.zeros_like(kept.mean) if ctx.has_offset else None  # it cancels in the normalization
        return None, None, None, no_offset, *grads


def laid_out(
    x: Tensor | Leveled, group: Tensor | None, taps: int, pool: int = 1, most: int | None = None
) -> LaidOut | None:
    """Return windows (G, B, C, T) as kernels of the block read them; None where there are none for these windows,
    filters or this width of pooling, or there are more than `most` channels. group: (P,), None where G = P."""
    signals = x if isinstance(x, Tensor) else x.signals
    if signals.requires_grad or not cpu.available(signals, pool=pool, taps=taps):
        return None
    if most is not None and signals.shape[2] > most:
        return None
    return lay_out(signals.transpose(1, 2), group)


def first_block(
    norm: BatchNorm, x: Tensor | Leveled, windows: LaidOut, spatial: Tensor, w: Tensor, form: Form,
    dropping: Dropping | None = None, offset: Tensor | None = None, active: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Map windows x, mixed by `spatial` (P, F, C + L) and filtered by w (P, F / depth, K), to units (P, F, B, T')
    and mean squares of stretches (P, F, B, S), of which a form may have but one. `offset` and `active` as in
    BatchNorm, which is in training mode and stands behind the filters."""
    constant = None
    if isinstance(x, Leveled):
        channels = x.signals.shape[2]
        levels = transposed(x.levels[windows.group])
        constant = torch.bmm(spatial[..., channels:], levels)  # (P, F, B)
        spatial = spatial[..., :channels]
    size = spatial.shape[:2]
    units, power, mean, variance = apply(
        _Block,
        windows,
        form,
        dropping,
        offset,
        spatial,
        constant,
        w,
        norm.weight.reshape(size),
        norm.bias.reshape(size),
    )
    used = windows.times if form.pool else form.stretches * form.length
    norm.track(mean, variance, windows.batch * used, active, offset)
    return units, power


class _SecondBlock(Function):
    @staticmethod
    def forward(
        ctx: Any, form: Form, dropping: Dropping, x: Tensor, w: Tensor, spatial: Tensor, gamma: Tensor, beta: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        x, (w, spatial, gamma, beta) = x.contiguous(), (one.contiguous() for one in (w, spatial, gamma, beta))
        units, kept = second_forward(x, Weights(spatial, None, w, gamma, beta), form, dropping)
        ctx.save_for_backward(x, w, spatial, gamma, beta, kept.v, kept.mean, kept.variance)
        ctx.mark_non_differentiable(kept.mean, kept.variance)
        ctx.form, ctx.dropping = form, dropping
        return units, kept.mean, kept.variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, w, spatial, gamma, beta, v, mean, variance = ctx.saved_tensors
        weights, kept = Weights(spatial, None, w, gamma, beta), Kept(v, None, None, mean, variance)
        grad_x, grads = second_backward(grad, x, weights, ctx.form, ctx.dropping, kept)
        return None, None, grad_x, grads.w, grads.spatial, grads.gamma, grads.beta


def second_block(
    norm: BatchNorm, x: Tensor, w: Tensor, spatial: Tensor, pool: int, dropping: Dropping, active: Tensor | None
) -> Tensor | None:
    """Take signals (P, C, B, T), each filtered by its w (P, C, K), mixed by `spatial` (P, F, C), normalized,
    through ELU, pooled, with dropout: (P, B, F, T // pool). None where no kernel serves, or the normalization does
    not learn."""
    if not norm.training or not cpu.available(x, pool=pool, taps=w.shape[-1]):
        return None
    size, form = spatial.shape[:2], Form(padding(w.shape[-1])[0], pool, 0, 0, norm.eps)
    gamma, beta = norm.weight.reshape(size), norm.bias.reshape(size)
    units: Tensor
    units, mean, variance = apply(_SecondBlock, form, dropping, x, w, spatial, gamma, beta)
    norm.track(mean, variance, x[0, 0].numel(), active)
    return units
