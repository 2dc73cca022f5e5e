"""Network blocks for CPUs: one kernel each for the forward and for the backward pass.

A block equals mix_signals or mix_split_windows, filter_times, BatchNorm, elu_pool and drop_units in sequence, or the
power of Shallow. That sequence is the path without kernels and the reference in tests. Only normalized signals are
saved for the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .. import cpu
from ..cpu.blocks import (
    BlockOptions,
    InterleavedWindows,
    SavedTensors,
    Weights,
    block_backward,
    block_forward,
    lay_out,
    second_backward,
    second_forward,
)  # fmt: skip
from ..gpu import DropoutDraws
from ..gpu.autograd import apply
from .layers import BatchNorm, copy_transposed
from .moments import SplitWindows, padding


class _Block(Function):
    @staticmethod
    def forward(
        ctx: Any, windows: InterleavedWindows, options: BlockOptions, dropout: DropoutDraws | None,
        offset: Tensor | None, spatial: Tensor, constant: Tensor | None, w: Tensor, gamma: Tensor, beta: Tensor,
    ) -> tuple[Tensor | None, Tensor | None, Tensor, Tensor]:  # fmt: skip
        given = (spatial, constant, w, gamma, beta)
        weights = Weights(*(None if tensor is None else tensor.contiguous() for tensor in given))  # type: ignore[arg-type]  # the constant alone
        units, power, saved = block_forward(windows, weights, options, dropout)
        ctx.save_for_backward(*weights, *saved)
        ctx.mark_non_differentiable(saved.mean, saved.variance)
        ctx.set_materialize_grads(False)
        ctx.rest, ctx.has_offset = (windows, options, dropout), offset is not None
        return units, power, saved.mean, saved.variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, grad_power: Tensor | None, *_: Tensor) -> tuple[Tensor | None, ...]:
        windows, options, dropout = ctx.rest
        saved = ctx.saved_tensors
        weights, saved = Weights(*saved[:5]), SavedTensors(*saved[5:])
        per_window = (*saved.mean.shape, windows.batch)
        if options.pool and grad is None:  # nobody reads the units, or the power
            grad = windows.x.new_zeros(*per_window, windows.times // options.pool)
        if options.segments and grad_power is None:
            grad_power = windows.x.new_zeros(*per_window, options.segments)
        grads = block_backward(grad, grad_power, windows, weights, options, dropout, saved)
        no_offset = torch.zeros_like(saved.mean) if ctx.has_offset else None  # it cancels in the normalization
        return None, None, None, no_offset, *grads


def try_interleave(
    x: Tensor | SplitWindows, group: Tensor | None, taps: int, pool: int = 1, most: int | None = None
) -> InterleavedWindows | None:
    """Return windows (G, B, C, T) as kernels of the block read them; None where there are none for these windows,
    filters or this width of pooling, or there are more than `most` channels. group: (P,), None where G = P."""
    signals = x if isinstance(x, Tensor) else x.signals
    if signals.requires_grad or not cpu.available(signals, pool=pool, taps=taps):
        return None
    if most is not None and signals.shape[2] > most:
        return None
    return lay_out(signals.transpose(1, 2), group)


def first_block(
    norm: BatchNorm, x: Tensor | SplitWindows, windows: InterleavedWindows, spatial: Tensor, w: Tensor,
    options: BlockOptions, dropout: DropoutDraws | None = None, offset: Tensor | None = None,
    active: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Map windows x, mixed by `spatial` (P, F, C + L) and filtered by w (P, F / depth, K), to units (P, F, B, T')
    and mean squares of segments (P, F, B, S), of which a options may have but one. `offset` and `active` as in
    BatchNorm, which is in training mode and stands behind the filters."""
    constant = None
    if isinstance(x, SplitWindows):
        channels = x.signals.shape[2]
        constants = copy_transposed(x.constants[windows.group])
        constant = torch.bmm(spatial[..., channels:], constants)  # (P, F, B)
        spatial = spatial[..., :channels]
    size = spatial.shape[:2]
    units, power, mean, variance = apply(
        _Block,
        windows,
        options,
        dropout,
        offset,
        spatial,
        constant,
        w,
        norm.weight.reshape(size),
        norm.bias.reshape(size),
    )
    used = windows.times if options.pool else options.segments * options.length
    norm.update_running(mean, variance, windows.batch * used, active, offset)
    return units, power


class _SecondBlock(Function):
    @staticmethod
    def forward(
        ctx: Any,
        options: BlockOptions,
        dropout: DropoutDraws,
        x: Tensor,
        w: Tensor,
        spatial: Tensor,
        gamma: Tensor,
        beta: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        x, (w, spatial, gamma, beta) = x.contiguous(), (one.contiguous() for one in (w, spatial, gamma, beta))
        units, saved = second_forward(x, Weights(spatial, None, w, gamma, beta), options, dropout)
        ctx.save_for_backward(x, w, spatial, gamma, beta, saved.v, saved.mean, saved.variance)
        ctx.mark_non_differentiable(saved.mean, saved.variance)
        ctx.options, ctx.dropout = options, dropout
        return units, saved.mean, saved.variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, w, spatial, gamma, beta, v, mean, variance = ctx.saved_tensors
        weights, saved = Weights(spatial, None, w, gamma, beta), SavedTensors(v, None, None, mean, variance)
        grad_x, grads = second_backward(grad, x, weights, ctx.options, ctx.dropout, saved)
        return None, None, grad_x, grads.w, grads.spatial, grads.gamma, grads.beta


def second_block(
    norm: BatchNorm, x: Tensor, w: Tensor, spatial: Tensor, pool: int, dropout: DropoutDraws, active: Tensor | None
) -> Tensor | None:
    """Take signals (P, C, B, T), each filtered by its w (P, C, K), mixed by `spatial` (P, F, C), normalized,
    through ELU, pooled, with dropout: (P, B, F, T // pool). None where no kernel serves, or the normalization does
    not learn."""
    if not norm.training or not cpu.available(x, pool=pool, taps=w.shape[-1]):
        return None
    size, options = spatial.shape[:2], BlockOptions(padding(w.shape[-1])[0], pool, 0, 0, norm.eps)
    gamma, beta = norm.weight.reshape(size), norm.bias.reshape(size)
    units: Tensor
    units, mean, variance = apply(_SecondBlock, options, dropout, x, w, spatial, gamma, beta)
    norm.update_running(mean, variance, x[0, 0].numel(), active)
    return units
