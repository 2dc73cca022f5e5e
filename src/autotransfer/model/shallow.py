"""Shallow network of log power, after ShallowConvNet (Schirrmeister et al. 2017).

Each filter mixes channels and convolves the mixture in time. Its signal is normalized, squared, averaged over about
eight segments of the window, log-transformed and normalized again. There is no ELU and no second convolution.

Both filters are linear, so channels are mixed first and all signals are (P, filters, B, times). In training, the power
of the normalized signal is computed from the mean and the mean square of each segment of the signal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .. import gpu
from ..cpu.blocks import BlockOptions
from ..errors import UserError, check_at_most, check_positive
from ..gpu.autograd import apply
from .blocks import first_block
from .encoder import ConvolutionalOptions, default_temporal_kernel
from .filtering import filter_times
from .layers import BatchNorm, constant, fill_uniform, mix_windows
from .moments import padding
from .norm_pool import make_dropout_keys
from .power import FLOOR, compute_power_latents
from .stack import Size, Stack

MIN_TIMES = 8
MIN_SEGMENTS = 8  # per window; in windows of fewer than 16 samples every sample is a segment
PUBLISHED_KERNEL = 25


@dataclass(frozen=True, kw_only=True)
class ShallowOptions(ConvolutionalOptions):
    """Hyperparameters of `Shallow`."""

    display_name = "the shallow network"

    power_filters: int = 32  # number of pairs of a spatial and a temporal filter

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "power_filters")
        check_at_most(self, power_filters=10**4)

    def kernel(self, sfreq: float | None) -> int:
        """Return the length of the temporal filters in samples: by default a fifth of a second, within [3, 64]."""
        return self.temporal_kernel or default_temporal_kernel(sfreq, 5, PUBLISHED_KERNEL)

    def stack(self, size: Size, members: int, seeds: Sequence[int]) -> Shallow:
        return Shallow(self, size, members, seeds)

    def member_bytes(self, size: Size, batch: int, itemsize: int) -> int:
        kernel = self.kernel(size.sfreq)
        signals = batch * size.times * (size.channels + 7 * self.power_filters)
        toeplitz = 4 * self.power_filters * min(size.times, 2 * max(32, kernel)) ** 2
        weights = 12 * self.power_filters * (size.channels + kernel + size.times)
        return itemsize * (signals + toeplitz + weights)


class _Segments(Function):
    """Means and mean squares (N, B, S) of segments (N, B, S, L) after centering, and the subtracted means (N,)."""

    @staticmethod
    def forward(ctx: Any, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        level = v.mean(-1)
        mean = level.mean((1, 2))
        centered = v - mean[:, None, None, None]
        level -= mean[:, None, None]
        ctx.save_for_backward(centered, level)
        ctx.mark_non_differentiable(mean)
        return level.clone(), (centered * centered).mean(-1), mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_level: Tensor, grad_square: Tensor, _: Tensor) -> Tensor:
        centered, level = ctx.saved_tensors
        length = centered.shape[-1]
        slope = grad_square * (2.0 / length)
        constant = grad_level / length
        # Centering removes the mean of the gradient.
        constant -= torch.addcmul(constant, slope, level).mean((1, 2), keepdim=True)
        return torch.addcmul(constant[..., None], centered, slope[..., None])


class _KernelSegments(Function):
    """`_Segments` by GPU kernels, which read signals (N, B, T) without a copy."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
        level, square, mean = gpu.segments_forward(v, length)
        ctx.save_for_backward(v, level, mean)
        ctx.mark_non_differentiable(mean)
        ctx.length = length
        return level, square, mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_level: Tensor, grad_square: Tensor, _: Tensor) -> tuple[Tensor, None]:
        v, level, mean = ctx.saved_tensors
        return gpu.segments_backward(grad_level, grad_square, v, level, mean, ctx.length), None


class Shallow(Stack):
    """Stack of P shallow networks for windows of at least 8 samples.

    A segment has times // 8 samples, so a window has 8 to 15 segments; remaining samples are not used. The length D of
    latents is the number of filters times the number of segments.
    """

    def __init__(self, options: ShallowOptions, size: Size, members: int, seeds: Sequence[int]) -> None:
        super().__init__()
        if size.times < MIN_TIMES:
            raise UserError(f"windows of {size.times} samples are too short; the encoder needs at least {MIN_TIMES}")
        filters, kernel = options.power_filters, options.kernel(size.sfreq)
        self.members, self.filters, self.kernel, self.dropout = members, filters, kernel, options.dropout
        self.length = size.times // MIN_SEGMENTS
        self.segments = size.times // self.length
        self.latent_dim = filters * self.segments
        self.spatial = nn.Parameter(torch.empty(members, filters, size.channels))
        self.temporal = nn.Parameter(torch.empty(members, filters, kernel))
        self.norm = BatchNorm(members, filters)
        self.power_norm = BatchNorm(members, filters)
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        fill_uniform(self.spatial, size.channels, generators)
        fill_uniform(self.temporal, kernel, generators)

    def forward(
        self, x: Tensor, *, group: Tensor | None = None, noise: Tensor | None = None, drop: Tensor | None = None,
        active: Tensor | None = None, **_: object,
    ) -> Tensor:  # fmt: skip
        """Return latents (P, B, D). See `EEGNet.forward` for keywords; `moments` is ignored."""
        members = self.spatial.shape[0]
        if x.dim() == 3:
            x, group = x[None], torch.zeros(members, dtype=torch.long, device=x.device)
        options = BlockOptions(padding(self.kernel)[0], 0, self.segments, self.length, self.norm.eps)
        output = first_block(self.norm, x, group, self.spatial, self.temporal, options, active=active)
        power = self._compute_power(x, group, active) if output is None else output[1]
        keys = make_dropout_keys(noise, group, drop, power, self.dropout) if self.training else None
        return compute_power_latents(self.power_norm, power, 1, keys, active)

    def _compute_power(self, x: Tensor, group: Tensor | None, active: Tensor | None) -> Tensor:
        """Map windows (G, B, C, T) to mean squares (P, F, B, S) of segments of the normalized signals."""
        members, batch, times = self.spatial.shape[0], x.shape[1], x.shape[3]
        u = mix_windows(self.spatial, x, group).view(members * self.filters, batch, times)
        v = filter_times(u, self.temporal.reshape(members * self.filters, self.kernel))
        norm, shape = self.norm, (-1, self.filters, v.shape[1], self.segments)
        if not self.training:
            scale, shift = norm.running_affine(norm.running_mean.shape)
            normalized = torch.addcmul(shift.view(-1, 1, 1, 1), self._cut_segments(v), scale.view(-1, 1, 1, 1))
            return normalized.square().mean(-1).view(shape)
        if gpu.is_available(v):
            level, square, mean = apply(_KernelSegments, v, self.length)
        else:
            level, square, mean = apply(_Segments, self._cut_segments(v))
        level, square = level.view(shape), square.view(shape)
        var = square.mean((2, 3))
        norm.update_running(mean.view(var.shape), var, v.shape[1] * self.segments * self.length, active)
        scale, shift = norm.affine(torch.zeros_like(var), var)
        # Power is the variance in the segment plus the squared mean, so no term is a difference of large numbers.
        segment_var = torch.addcmul(square, level, level, value=-1.0)
        level = torch.addcmul(shift[..., None, None], level, scale[..., None, None])
        return torch.addcmul(level.square(), segment_var, scale.square()[..., None, None])

    def _cut_segments(self, v: Tensor) -> Tensor:
        """Cut signals (N, B, T) into segments (N, B, S, L)."""
        return v[..., : self.segments * self.length].reshape(*v.shape[:2], self.segments, self.length)

    def graph(self) -> nn.Module:
        return ShallowGraph(self)


class ShallowGraph(nn.Module):
    """Graph for export: windows (P or 1, N, C, T) -> latents (P, N, D), with member × filter on axis 1 of signals.

    The first normalization is folded into the temporal filters in float64.
    """

    def __init__(self, net: Shallow) -> None:
        super().__init__()
        self.members, self.length, self.padding = net.members, net.length, padding(net.kernel)
        size = net.members, -1
        scale, shift = net.norm.running_affine(size, dtype=torch.float64)
        power_scale, power_shift = net.power_norm.running_affine(size, dtype=torch.float64)
        self.spatial = constant(net.spatial.flatten(0, 1)[..., None])
        self.temporal = constant((net.temporal.double() * scale[..., None]).flatten(0, 1)[:, None])
        self.bias = constant(shift.flatten())
        self.power_scale, self.power_shift = constant(power_scale.view(-1, 1)), constant(power_shift.view(-1, 1))

    def forward(self, x: Tensor) -> Tensor:
        h = F.conv1d(x.transpose(0, 1).flatten(1, 2), self.spatial, groups=x.shape[0])
        h = F.conv1d(F.pad(h, self.padding), self.temporal, self.bias, groups=self.temporal.shape[0])
        h = (F.avg_pool1d(h.square(), self.length) + FLOOR).log()
        h = h * self.power_scale + self.power_shift
        return h.reshape(h.shape[0], self.members, -1).transpose(0, 1)
