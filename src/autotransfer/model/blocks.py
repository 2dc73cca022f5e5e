"""Network blocks for CPUs, with one kernel for the forward pass and one for the backward pass.

A block computes mix_windows, filter_times, BatchNorm, elu_pool and drop_units, or the power of Shallow. Without kernels
the encoders call these functions one after another.
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
        tensors = (spatial, constant, w, gamma, beta)
        weights = Weights(*(None if tensor is None else tensor.contiguous() for tensor in tensors))  # type: ignore[arg-type]  # only the constant is optional
        units, power, saved = block_forward(windows, weights, options, dropout)
        ctx.save_for_backward(*weights, *saved)
        ctx.mark_non_differentiable(saved.mean, saved.variance)
        ctx.arguments, ctx.has_offset = (windows, options, dropout), offset is not None
        return units, power, saved.mean, saved.variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, grad_power: Tensor | None, *_: Tensor) -> tuple[Tensor | None, ...]:
        windows, options, dropout = ctx.arguments
        weights, saved = Weights(*ctx.saved_tensors[:5]), SavedTensors(*ctx.saved_tensors[5:])
        grads = block_backward(grad, grad_power, windows, weights, options, dropout, saved)
        grad_offset = torch.zeros_like(saved.mean) if ctx.has_offset else None  # the normalization removes the offset
        return None, None, None, grad_offset, *grads


def first_block(
    norm: BatchNorm, x: Tensor | SplitWindows, group: Tensor | None, spatial: Tensor, w: Tensor, options: BlockOptions,
    dropout: DropoutDraws | None = None, offset: Tensor | None = None, active: Tensor | None = None,
) -> tuple[Tensor, Tensor] | None:  # fmt: skip
    """Mix windows by `spatial` (P, F, C + L), filter by w (P, F / depth, K), and return units and power.

    Units are (P, F, B, T'), power is mean squares of segments (P, F, B, S). Return None if there are no kernels for
    these windows, or if `norm` is in evaluation mode.
    """
    signals = x if isinstance(x, Tensor) else x.signals
    channels = signals.shape[2]
    if not norm.training or signals.requires_grad or not cpu.is_available(signals, pool=options.pool, taps=w.shape[-1]):
        return None
    windows = lay_out(signals.transpose(1, 2), group)
    constant = None
    if isinstance(x, SplitWindows):
        constants = copy_transposed(x.constants[windows.group])
        constant = torch.bmm(spatial[..., channels:], constants)  # (P, F, B)
        spatial = spatial[..., :channels]
    size = spatial.shape[:2]
    gamma, beta = norm.weight.reshape(size), norm.bias.reshape(size)
    arguments = windows, options, dropout, offset, spatial, constant, w, gamma, beta
    units, power, mean, variance = apply(_Block, *arguments)
    n_used = windows.times if options.pool else options.segments * options.length
    norm.update_running(mean, variance, windows.batch * n_used, active, offset)
    return units, power


class _SecondBlock(Function):
    @staticmethod
    def forward(
        ctx: Any, options: BlockOptions, dropout: DropoutDraws, x: Tensor, w: Tensor, spatial: Tensor, gamma: Tensor,
        beta: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        x, (w, spatial, gamma, beta) = x.contiguous(), (tensor.contiguous() for tensor in (w, spatial, gamma, beta))
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
    """Filter signals (P, C, B, T) by w (P, C, K), mix them by `spatial` (P, F, C), and return units (P, B, F, T').

    Return None if there are no kernels for these signals, or if `norm` is in evaluation mode.
    """
    if not norm.training or not cpu.is_available(x, pool=pool, taps=w.shape[-1]):
        return None
    size, options = spatial.shape[:2], BlockOptions(padding(w.shape[-1])[0], pool, 0, 0, norm.eps)
    gamma, beta = norm.weight.reshape(size), norm.bias.reshape(size)
    units, mean, variance = apply(_SecondBlock, options, dropout, x, w, spatial, gamma, beta)
    norm.update_running(mean, variance, x[0, 0].numel(), active)
    return units
