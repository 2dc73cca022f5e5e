"""EEGNet (Lawhern et al. 2018) for P stacked members, with the spatial filter applied first.

The published order is temporal filter, normalization, spatial filter. The statistics of the normalization follow from
moments of the input (moments.py). With known statistics all three operations are linear, so the spatial filter can be
applied first, with equal outputs and gradients and about a tenth of the arithmetic. Signals are (P, F1·D, B, times).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import gpu
from ..cpu.blocks import BlockOptions
from ..errors import UserError, check_at_most, check_positive
from ..gpu import DropoutDraws
from ..kernels import kernels_for
from .blocks import first_block, second_block
from .encoder import ConvolutionalOptions, default_temporal_kernel
from .filtering import filter_times
from .layers import BatchNorm, constant, elu_pool, fill_uniform, mix_channels, mix_windows
from .moments import Moments, SplitWindows, padding, window_moments
from .norm_pool import DropoutKeys, drop_units, make_dropout_keys, norm_pool
from .power import FLOOR, compute_power_latents, pool_squares, square_pool
from .stack import Size, Stack

MIN_TIMES = 8
FIRST_POOL, SECOND_POOL = 4, 8
SECOND_KERNEL = 16
MAX_FUSED_CHANNELS = 40  # with more channels separate kernels are faster, because a block mixes channels twice


@dataclass(frozen=True, kw_only=True)
class EEGNetOptions(ConvolutionalOptions):
    """Hyperparameters of `EEGNet`, by default as in the published EEGNet-8,2."""

    display_name = "EEGNet"

    temporal_filters: int = 8
    spatial_depth: int = 2
    latent_filters: int = 16
    log_power: bool = False  # whether latents include the log power of each spatial filter's signal

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "temporal_filters", "spatial_depth", "latent_filters")
        check_at_most(self, temporal_filters=10**4, spatial_depth=10**4, latent_filters=10**4)

    def kernel(self, sfreq: float | None) -> int:
        """Return the length of the temporal filters in samples: by default half a second, within [3, 64]."""
        return self.temporal_kernel or default_temporal_kernel(sfreq)

    def moments_kernel(self, sfreq: float | None) -> int:
        return self.kernel(sfreq)

    def stack(self, size: Size, members: int, seeds: Sequence[int]) -> EEGNet:
        return EEGNet(
            size.channels, size.times, members, temporal_kernel=self.kernel(size.sfreq),
            temporal_filters=self.temporal_filters, spatial_depth=self.spatial_depth,
            latent_filters=self.latent_filters, log_power=self.log_power, seeds=seeds,
        )  # fmt: skip

    def member_bytes(self, size: Size, batch: int, itemsize: int) -> int:
        features = self.temporal_filters * self.spatial_depth
        signals = batch * size.times * (size.channels + (7 if self.log_power else 6) * features)
        toeplitz = 4 * self.temporal_filters * min(size.times, 192) ** 2
        weights = 12 * (self.temporal_filters * 64 + features * (size.channels + 80) + features * size.times)
        return itemsize * (signals + toeplitz + weights)


class EEGNet(Stack):
    """EEGNet encoder: one network, or a stack of P members that share every operation.

    A single network maps windows (B, n_channels, n_times) to latents (B, latent_dim). A stack maps windows
    (P, B, n_channels, n_times), or (B, n_channels, n_times) for all members, to latents (P, B, latent_dim). Parameters
    and buffers of a stack have the member on axis 0.

    Parameters
    ----------
    n_channels : int
        Number of channels.
    n_times : int
        Number of samples per window, at least 8.
    members : int or None
        Number of members of the stack; None: a single network without member axis.
    sfreq : float or None
        Sampling rate in Hz, which sets the default of `temporal_kernel`.
    temporal_kernel : int or None
        Length of the temporal filters in samples; None: half a second within [3, 64], or 64 without `sfreq`.
    temporal_filters, spatial_depth, latent_filters : int
        F1, D and F2 of the paper.
    log_power : bool
        Whether latents include the log power of each spatial filter's signal.
    dropout : float
        Dropout probability.
    seeds : sequence of int or None
        Seed of the initial weights of each member; None: drawn from torch's generator.

    Examples
    --------
    >>> import torch
    >>> import autotransfer as at
    >>> net = at.EEGNet(n_channels=8, n_times=128)
    >>> net(torch.zeros(5, 8, 128)).shape
    torch.Size([5, 64])
    """

    takes_split_windows = True

    def __init__(
        self,
        n_channels: int,
        n_times: int,
        members: int | None = None,
        *,
        sfreq: float | None = None,
        temporal_kernel: int | None = None,
        temporal_filters: int = 8,
        spatial_depth: int = 2,
        latent_filters: int = 16,
        log_power: bool = False,
        dropout: float = 0.25,
        seeds: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        if n_times < MIN_TIMES:
            raise UserError(f"windows of {n_times} samples are too short; EEGNet needs at least {MIN_TIMES}")
        self.n_channels, self.n_times, self.members = n_channels, n_times, members
        self.kernel = default_temporal_kernel(sfreq) if temporal_kernel is None else temporal_kernel
        for name, size in (("n_channels", n_channels), ("temporal_kernel", self.kernel)):
            if size < 1:
                raise UserError(f"{name} is {size}; EEGNet needs at least 1")
        self.filters, self.depth = temporal_filters, spatial_depth
        self.pools = (FIRST_POOL, min(SECOND_POOL, n_times // FIRST_POOL))
        self.dropout = dropout
        features = temporal_filters * spatial_depth
        steps = n_times // self.pools[0] // self.pools[1]
        self.branches = tuple(width * steps for width in (latent_filters, features if log_power else 0) if width)
        self.latent_dim = sum(self.branches)

        stack = () if members is None else (members,)
        self.temporal = nn.Parameter(torch.empty(*stack, temporal_filters, self.kernel))
        self.norm1 = BatchNorm(members, temporal_filters)
        self.spatial = nn.Parameter(torch.empty(*stack, features, n_channels))
        self.norm2 = BatchNorm(members, features)
        self.depthwise = nn.Parameter(torch.empty(*stack, features, SECOND_KERNEL))
        self.pointwise = nn.Parameter(torch.empty(*stack, latent_filters, features))
        self.norm3 = BatchNorm(members, latent_filters)
        self.power_norm = BatchNorm(members, features) if log_power else None
        if seeds is None:
            seeds = torch.randint(2**62, (1 if members is None else members,)).tolist()
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        fill_uniform(self.temporal, self.kernel, generators)
        fill_uniform(self.spatial, self.n_channels, generators)
        fill_uniform(self.depthwise, SECOND_KERNEL, generators)
        fill_uniform(self.pointwise, self.pointwise.shape[-1], generators)

    def forward(
        self,
        x: Tensor | SplitWindows,
        *,
        group: Tensor | None = None,
        moments: Moments | None = None,
        noise: Tensor | None = None,
        drop: Tensor | None = None,
        active: Tensor | None = None,
    ) -> Tensor:
        """Return latents (B, D), or (P, B, D) for a stack. Only stacked training needs the keywords.

        Parameters
        ----------
        x : windows (B, C, T) for all members, (P, B, C, T), (G, B, C, T) with `group`, or SplitWindows
        group : (P,) index of the batch that a member reads
        moments : moments of the windows with fields (G, ...); None: moments are computed
        noise : (G,) int32 keys that determine dropout; None: keys are drawn from torch's generator
        drop : (P,) dropout probabilities; None: the `dropout` of the network
        active : (P,) bool, False for members whose running statistics are not updated
        """
        if isinstance(x, Tensor):
            if self.members is None:
                x, group = x[None], None
            elif x.dim() == 3:
                x, group = x[None], torch.zeros(self.temporal.shape[0], dtype=torch.long, device=x.device)
        members = 1 if self.members is None else len(self.spatial)
        like = self.spatial.reshape(members, -1)
        keys = make_dropout_keys(noise, group, drop, like, self.dropout) if self.training else None
        h, power = self._first_block(x, group, moments, keys, active)
        z = self._second_block(h, keys, active)
        if self.power_norm is not None and power is not None:
            latents = compute_power_latents(self.power_norm, power, 3, keys, active)
            z = torch.cat([z, latents], -1)
        return z[0] if self.members is None else z

    def _first_block(
        self, x: Tensor | SplitWindows, group: Tensor | None, moments: Moments | None, keys: DropoutKeys | None,
        active: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Map windows to units (P, F, B, T') and, with log_power, mean squares of segments (P, F, B, S)."""
        _, batch, channels, times = (x.signals if isinstance(x, SplitWindows) else x).shape
        spatial = self.spatial.reshape(-1, *self.spatial.shape[-2:])
        members, features, _ = spatial.shape
        temporal = self.temporal.reshape(members, self.filters, self.kernel)
        scale, shift = self._first_norm(temporal, x, group, moments, active)
        offset = shift.repeat_interleave(self.depth, 1) * spatial.sum(-1)
        w = temporal * scale[..., None]
        pool, length = self.pools[0], math.prod(self.pools)
        dropout = None if keys is None else keys.draw(1, features * batch * (times // pool))
        if dropout is not None and channels <= MAX_FUSED_CHANNELS:
            segments = 0 if self.power_norm is None else times // length
            options = BlockOptions(padding(self.kernel)[0], pool, segments, length, self.norm2.eps)
            output = first_block(self.norm2, x, group, spatial, w, options, dropout, offset, active)
            if output is not None:
                return output
        u = mix_windows(spatial, x, group).view(members * self.filters, self.depth * batch, times)
        v = filter_times(u, w.reshape(members * self.filters, self.kernel)).reshape(members, features, batch * times)
        h, squares = self._block(self.norm2, v, batch, pool, offset, dropout, active)
        return h, None if squares is None else pool_squares(squares, self.pools[1])

    def _second_block(self, h: Tensor, keys: DropoutKeys | None, active: Tensor | None) -> Tensor:
        """Map units (P, F, B, T') to latents (P, B, D)."""
        members, features, batch, times = h.shape
        w, pointwise = self.depthwise.reshape(members, features, -1), self.pointwise.reshape(members, -1, features)
        dropout = None if keys is None else keys.draw(2, pointwise.shape[1] * batch * (times // self.pools[1]))
        if dropout is not None:
            output = second_block(self.norm3, h, w, pointwise, self.pools[1], dropout, active)
            if output is not None:
                return output.flatten(2)
        h = filter_times(h.reshape(members * features, batch, times), w.reshape(members * features, SECOND_KERNEL))
        h = mix_channels(pointwise, h.reshape(members, features, batch * times))
        h, _ = self._block(self.norm3, h, batch, self.pools[1], None, dropout, active)
        return h.transpose(1, 2).flatten(2)

    def _block(
        self, norm: BatchNorm, v: Tensor, batch: int, pool: int, offset: Tensor | None, dropout: DropoutDraws | None,
        active: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Map v (P, F, B·T) to units (P, F, B, T // pool) and, for log_power, mean squares of v of the same shape."""
        times = v.shape[-1] // batch
        squared = self.power_norm is not None and norm is self.norm2
        if dropout is not None and norm.training:
            kernels = kernels_for(v, pool=pool)
            if kernels is not None:
                return norm_pool(kernels, norm, v, times, pool, dropout, offset, active, squared=squared)
        if not self.training and not torch.is_grad_enabled() and gpu.is_available(v):
            return gpu.elu_pool(v, *norm.running_affine(v.shape[:2], offset), times, pool, squared)
        signal = v.view(*v.shape[:2], batch, times)
        h = elu_pool(norm(v, offset, active).view(signal.shape), pool)
        return drop_units(dropout, h), square_pool(signal, pool) if squared else None

    def _first_norm(
        self, w: Tensor, x: Tensor | SplitWindows, group: Tensor | None, moments: Moments | None, active: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return scale and shift (P, F1) of the normalization that follows the temporal filters w (P, F1, K)."""
        norm = self.norm1
        if not norm.training:
            return norm.running_affine(w.shape[:2])
        moments = window_moments(x, self.kernel) if moments is None else moments
        sample_mean, covariance = moments.mean, moments.covariance
        if group is not None:
            sample_mean, covariance = sample_mean[group], covariance[group]
        mean = (w * sample_mean[:, None]).sum(-1)  # bmm with a vector would round differently for P = 1
        var = (torch.bmm(w, covariance) * w).sum(-1).clamp(min=0.0)
        norm.update_running(mean, var, moments.positions, active)
        return norm.affine(mean, var)

    def graph(self) -> nn.Module:
        return EEGNetGraph(self)


class EEGNetGraph(nn.Module):
    """Graph for export: windows (P or 1, N, C, T) -> latents (P, N, D), with member × filter on axis 1 of signals.

    Normalizations by running statistics are folded into the neighboring filters in float64, except the second one,
    because power is computed before it.
    """

    def __init__(self, net: EEGNet) -> None:
        super().__init__()
        self.members, self.pools, self.has_power = net.members or 1, net.pools, net.power_norm is not None
        self.temporal_padding, self.depthwise_padding = padding(net.kernel), padding(net.depthwise.shape[-1])
        size, features = (self.members, -1), net.spatial.shape[-2]
        norms = [net.norm1, net.norm2, net.norm3, *([] if net.power_norm is None else [net.power_norm])]
        affine = [norm.running_affine(size, dtype=torch.float64) for norm in norms]
        (scale1, shift1), (scale2, shift2), (scale3, shift3), *power = affine  # (P, F) each
        spatial = net.spatial.double().reshape(self.members, features, -1)
        temporal = net.temporal.double().reshape(self.members, -1, net.kernel) * scale1[..., None]
        offset = shift1.repeat_interleave(net.depth, 1) * spatial.sum(-1)
        pointwise = net.pointwise.double().reshape(self.members, -1, features) * scale3[..., None]
        self.spatial = constant(spatial.flatten(0, 1)[..., None])
        self.temporal = constant(temporal.repeat_interleave(net.depth, 1).flatten(0, 1)[:, None])
        self.scale, self.shift = constant(scale2.reshape(-1, 1)), constant((offset * scale2 + shift2).reshape(-1, 1))
        self.depthwise = constant(net.depthwise.reshape(self.members * features, 1, -1))
        self.pointwise, self.bias = constant(pointwise.flatten(0, 1)[..., None]), constant(shift3.flatten())
        for scale, shift in power:
            self.power_scale, self.power_shift = constant(scale.reshape(-1, 1)), constant(shift.reshape(-1, 1))

    def forward(self, x: Tensor) -> Tensor:
        features = self.spatial.shape[0]
        h = F.conv1d(x.transpose(0, 1).flatten(1, 2), self.spatial, groups=x.shape[0])
        v = F.conv1d(F.pad(h, self.temporal_padding), self.temporal, groups=features)
        h = F.avg_pool1d(F.elu(v * self.scale + self.shift), self.pools[0])
        h = F.conv1d(F.pad(h, self.depthwise_padding), self.depthwise, groups=features)
        h = F.conv1d(h, self.pointwise, self.bias, groups=self.members)
        parts = [F.avg_pool1d(F.elu(h), self.pools[1])]
        if self.has_power:
            power = (pool_squares(F.avg_pool1d(v.square(), self.pools[0]), self.pools[1]) + FLOOR).log()
            parts.append(power * self.power_scale + self.power_shift)
        z = torch.cat([part.reshape(part.shape[0], self.members, -1) for part in parts], 2)
        return z.transpose(0, 1)
