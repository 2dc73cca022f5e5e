"""EEGNet for a few windows at a time on a CPU: normalisations folded into filters, then one kernel for all networks, or
where there is none, the graph of ordinary operations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..cpu import available
from ..cpu.in_use import Networks
from .eegnet_graph import EEGNetGraph, Filters, folded
from .power import FLOOR
from .stack import group_of


class QuickEEGNet:
    """Windows (G, n, C, T), and how many members read each of the G groups -> codes (P, n, D)."""

    @torch.no_grad()
    def __init__(self, net: Filters, n_constant: int) -> None:
        tensors, members = folded(net), net.members or 1
        wide = len(tensors["spatial"]) // members
        spatial, temporal, depthwise, pointwise = (
            tensors[name].reshape(members, -1, size).float()
            for name, size in (("spatial", net.n_channels), ("temporal", net.kernel),
                               ("depthwise", net.depthwise.shape[-1]), ("pointwise", wide))
        )  # fmt: skip
        scale = tensors.get("scale", torch.ones(members * wide))
        rows = {
            name: tensor.float().reshape(members, -1).contiguous()
            for name, tensor in {**tensors, "scale": scale, "none": torch.zeros(members * wide)}.items()
        }
        power = None if net.power_norm is None else (rows["none"], rows["power_scale"], rows["power_shift"])
        self.networks = Networks(
            spatial, temporal, n_constant, FLOOR, net.pools[0] * net.pools[1], power, net.pools,
            (rows["scale"], rows["temporal_bias"], depthwise, pointwise, rows["pointwise_bias"]),
        )  # fmt: skip
        self.graph = EEGNetGraph(net)

    def __call__(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        if available(x):
            return self.networks(x, group_of(sizes))
        codes: Tensor = self.graph(x if len(x) == 1 else x[group_of(sizes)])
        return codes
