"""EEGNet for a few windows at a time on a CPU: normalisations folded into filters, then one kernel for all networks, or
where there is none, filters by way of their spectra."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..cpu import available
from ..cpu.in_use import Networks
from .eegnet_graph import Filters, folded
from .power import FLOOR
from .spectral import ROOT, FilteredMixtures, MixedFilters, elu_mean, mean_square
from .stack import group_of


class QuickEEGNet:
    """Windows (G, n, C, T), each of the next so many members -> codes (P, n, D)."""

    @torch.no_grad()
    def __init__(self, net: Filters, n_constant: int) -> None:
        tensors, members = folded(net), net.members or 1
        wide = len(tensors["spatial"]) // members
        spatial, temporal, depthwise, pointwise = (
            tensors[name].reshape(members, -1, size)
            for name, size in (("spatial", net.n_channels), ("temporal", net.kernel),
                               ("depthwise", net.depthwise.shape[-1]), ("pointwise", wide))
        )  # fmt: skip
        self.pools = net.pools
        scale = tensors.get("scale", torch.ones(members * wide))
        self.power = net.power_norm is not None
        rows = {
            name: tensor.float().reshape(members, -1).contiguous()
            for name, tensor in {**tensors, "scale": scale, "none": torch.zeros(members * wide)}.items()
        }
        self.networks = Networks(
            spatial.float(), temporal.float(), n_constant, FLOOR, self.pools[0] * self.pools[1],
            (rows["none"], rows["power_scale"], rows["power_shift"]) if self.power else None, self.pools,
            (rows["scale"], rows["temporal_bias"], depthwise.float(), pointwise.float(), rows["pointwise_bias"]),
        )  # fmt: skip
        # Without kernels. ELU takes its argument times log₂ e.
        bias, last_bias = (ROOT * tensors[name].reshape(members, -1) for name in ("temporal_bias", "pointwise_bias"))
        if self.power:
            self.first = MixedFilters(spatial, temporal, None, net.n_times, n_constant)
            self.scale = (ROOT * tensors["scale"]).float().view(members, wide, 1, 1)
            self.bias = bias.float().view(members, wide, 1, 1)
            self.power_scale, self.power_shift = (
                tensors[name].float().view(members, wide, 1, 1) for name in ("power_scale", "power_shift")
            )
        else:
            self.first = MixedFilters(spatial, ROOT * temporal, bias, net.n_times, n_constant)
        self.second = FilteredMixtures(depthwise, ROOT * pointwise, last_bias, net.n_times // self.pools[0])

    def __call__(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        if available(x):
            return self.networks(x, group_of(sizes))
        v = self.first(x, sizes)
        parts = []
        if self.power:
            power = (mean_square(v, self.pools[0] * self.pools[1]) + FLOOR).log_()
            parts = [power.mul_(self.power_scale).add_(self.power_shift)]
            v = (v * self.scale).add_(self.bias)  # quicker than addcmul, which broadcasts slowly
        h = elu_mean(self.second(elu_mean(v, self.pools[0])), self.pools[1])
        return torch.cat([h, *parts], 1).transpose(1, 2).flatten(2)
