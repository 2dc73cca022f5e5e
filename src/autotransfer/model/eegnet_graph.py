"""EEGNet for deployment: a graph of ordinary operations that any runtime can read.

Training needs a network that is quick backwards. Here all normalisations use stored statistics, so they are folded into
the filters next to them, in float64, and all members are one chain of convolutions whose groups are the members.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layers import BatchNorm
from .moments import padding
from .power import log_power


class Filters(Protocol):
    """The attributes of an EEGNet that `folded` reads."""

    members: int | None
    n_channels: int
    n_times: int
    kernel: int
    depth: int
    pools: tuple[int, int]
    norm1: BatchNorm
    norm2: BatchNorm
    norm3: BatchNorm
    power_norm: BatchNorm | None
    spatial: nn.Parameter
    temporal: nn.Parameter
    depthwise: nn.Parameter
    pointwise: nn.Parameter


class EEGNetGraph(nn.Module):
    """Windows (P or 1, N, C, T) -> codes (P, N, D); axis 1 of every signal inside is member × filter."""

    spatial: Tensor
    temporal: Tensor
    temporal_bias: Tensor
    scale: Tensor
    power_scale: Tensor
    power_shift: Tensor
    depthwise: Tensor
    pointwise: Tensor
    pointwise_bias: Tensor

    def __init__(self, net: Filters) -> None:
        super().__init__()
        self.members, self.pools, self.power = net.members or 1, net.pools, net.power_norm is not None
        self.temporal_padding, self.depthwise_padding = padding(net.kernel), padding(net.depthwise.shape[-1])
        for name, tensor in folded(net).items():
            self.register_buffer(name, tensor.to(torch.float32).contiguous())

    def forward(self, x: Tensor) -> Tensor:
        wide = self.spatial.shape[0]
        groups = x.shape[0]
        h = F.conv1d(x.transpose(0, 1).flatten(1, 2), self.spatial, groups=groups)
        h = F.pad(h, self.temporal_padding)
        power = None
        if self.power:
            v = F.conv1d(h, self.temporal, groups=wide)
            power = log_power(F.avg_pool1d(v.square(), self.pools[0]), self.pools[1])
            power = power * self.power_scale + self.power_shift
            h = v * self.scale + self.temporal_bias[:, None]
        else:
            h = F.conv1d(h, self.temporal, self.temporal_bias, groups=wide)
        h = F.avg_pool1d(F.elu(h), self.pools[0])
        h = F.conv1d(F.pad(h, self.depthwise_padding), self.depthwise, groups=wide)
        h = F.conv1d(h, self.pointwise, self.pointwise_bias, groups=self.members)
        h = F.avg_pool1d(F.elu(h), self.pools[1])
        parts = [h] if power is None else [h, power]  # a member's code is its filters, then its powers
        z = torch.cat([part.reshape(part.shape[0], self.members, -1) for part in parts], 2)
        return z.transpose(0, 1)


@torch.no_grad()
def folded(net: Filters) -> dict[str, Tensor]:
    """The tensors of the graph, float64. P members, W filters each, of C channels."""
    members, wide, channels = net.spatial.reshape(-1, *net.spatial.shape[-2:]).shape
    spatial = net.spatial.double().reshape(members, wide, channels)
    scale1, shift1 = _affine(net.norm1, members)  # (P, F1); every temporal filter serves `depth` spatial ones
    scale2, shift2 = _affine(net.norm2, members)
    scale3, shift3 = _affine(net.norm3, members)
    temporal = net.temporal.double().reshape(members, -1, net.kernel) * scale1[..., None]
    temporal = temporal.repeat_interleave(net.depth, 1)
    powers = {}
    if net.power_norm is None:
        temporal = temporal * scale2[..., None]
    else:  # power is that of signals before they are normalised
        names = ("scale", "power_scale", "power_shift")
        affine = _affine(net.power_norm, members)
        powers = dict(zip(names, (t.reshape(-1, 1) for t in (scale2, *affine)), strict=True))
    offset = shift1.repeat_interleave(net.depth, 1) * spatial.sum(-1)
    return {
        "spatial": spatial.reshape(members * wide, channels, 1),
        "temporal": temporal.reshape(members * wide, 1, net.kernel),
        "temporal_bias": (offset * scale2 + shift2).flatten(),
        **powers,
        "depthwise": net.depthwise.double().reshape(members * wide, 1, -1),
        "pointwise": (net.pointwise.double().reshape(members, -1, wide) * scale3[..., None]).reshape(-1, wide, 1),
        "pointwise_bias": shift3.flatten(),
    }


def _affine(norm: BatchNorm, members: int) -> tuple[Tensor, Tensor]:
    """The stored normalisation as scale and shift (P, F), float64."""
    scale, shift = norm.folded()
    return scale.reshape(members, -1), shift.reshape(members, -1)
