"""Filters along time, one per member and signal, computed by matrix products or compiled kernels."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..gpu.autograd import apply_one
from ..kernels import kernels_for
from .layers import copy_transposed
from .moments import padding

TILE = 32  # minimum number of samples per tile of a long signal


def _toeplitz(w: Tensor, times: int, offset: int, rows: int) -> Tensor:
    """Return Toeplitz matrices (N, rows, times) of filters w (N, K) with entries w[i - t + offset]."""
    taps = w.shape[-1]
    g = F.pad(w, (times - 1 - offset, rows - taps + offset))
    return g.unfold(-1, times, 1).flip(-1)


class _ToeplitzProduct(Function):
    """Product of signals (N, R, I) and the Toeplitz matrices of filters (N, K) -> (N, R, times)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, times: int, offset: int) -> Tensor:
        matrix = _toeplitz(w, times, offset, x.shape[-1])
        ctx.save_for_backward(x, matrix)
        ctx.taps, ctx.offset = w.shape[-1], offset
        return torch.bmm(x, matrix)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, matrix = ctx.saved_tensors
        grad_x = torch.bmm(grad, copy_transposed(matrix)) if ctx.needs_input_grad[0] else None
        grad_w = None
        if ctx.needs_input_grad[1]:
            # The gradient of a tap is the sum of a diagonal of (N, I, times).
            grad_w = _sum_diagonals(torch.bmm(x.transpose(1, 2), grad), ctx.taps, ctx.offset)
        return grad_x, grad_w, None, None


def _sum_diagonals(full: Tensor, taps: int, offset: int) -> Tensor:
    """Map (N, rows, times) to sums (N, taps) with entries Σ_t full[t + k - offset, t]."""
    rows, times = full.shape[1:]
    bottom = max(times + taps - 1 - offset - rows, 0)
    full = F.pad(full, (0, 0, offset, bottom))
    return full.as_strided((full.shape[0], taps, times), (full.stride(0), times, times + 1)).sum(-1)


class _Correlate(Function):
    """Implementation of `filter_times` by compiled kernels."""

    @staticmethod
    def forward(ctx: Any, kernels: ModuleType, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.kernels = kernels
        out: Tensor = kernels.correlate(x, w, padding(w.shape[-1])[0])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        x, w = ctx.saved_tensors
        kernels = ctx.kernels
        left, right = padding(w.shape[-1])
        grad_x = kernels.correlate(grad, w, right, flipped=True) if ctx.needs_input_grad[1] else None
        grad_w = kernels.correlate_gradient(x, grad, w.shape[-1], left) if ctx.needs_input_grad[2] else None
        return None, grad_x, grad_w


def filter_times(x: Tensor, w: Tensor) -> Tensor:
    """Correlate along time with "same" zero padding: x (N, R, times), w (N, K) -> (N, R, times).

    Without compiled kernels, long signals are cut into overlapping tiles, so that the cost is linear in times.
    """
    times, taps = x.shape[-1], w.shape[-1]
    left, _ = padding(taps)
    tile = max(TILE, -(-(taps - 1) // 16) * 16)  # at least the overlap, and divisible by 16 for faster products
    kernels = kernels_for(x, taps=taps)
    if kernels is not None:
        return apply_one(_Correlate, kernels, x, w)
    if times <= 2 * tile:
        return apply_one(_ToeplitzProduct, x, w, times, left)
    n, rows = x.shape[:2]
    tiles = math.ceil(times / tile)
    padded = F.pad(x, (left, (tiles + 1) * tile - times - left)).view(n, rows, tiles + 1, tile)
    windows = torch.cat([padded[:, :, :-1], padded[:, :, 1:, : taps - 1]], -1)
    out = apply_one(_ToeplitzProduct, windows.reshape(n, rows * tiles, -1), w, tile, 0)
    return out.view(n, rows, tiles * tile)[..., :times]
