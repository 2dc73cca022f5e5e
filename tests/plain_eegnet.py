"""EEGNet with torch's own layers in the published order, as the oracle."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PlainEEGNet(nn.Module):
    def __init__(self, n_channels: int, n_times: int, kernel: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.pad1 = ((kernel - 1) // 2, kernel - 1 - (kernel - 1) // 2)
        self.temporal = nn.Conv2d(1, 8, (1, kernel), bias=False)
        self.norm1 = nn.BatchNorm2d(8)
        self.spatial = nn.Conv2d(8, 16, (n_channels, 1), groups=8, bias=False)
        self.norm2 = nn.BatchNorm2d(16)
        self.pool1 = nn.AvgPool2d((1, 4))
        self.depthwise = nn.Conv2d(16, 16, (1, 16), groups=16, bias=False)
        self.pointwise = nn.Conv2d(16, 16, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(16)
        self.pool2 = nn.AvgPool2d((1, min(8, n_times // 4)))
        self.drop = nn.Dropout(dropout)  # for benchmarks/steps.py

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm1(self.temporal(F.pad(x[:, None], self.pad1)))
        h = self.drop(self.pool1(F.elu(self.norm2(self.spatial(h)))))
        h = self.pointwise(self.depthwise(F.pad(h, (7, 8))))
        z: Tensor = self.drop(self.pool2(F.elu(self.norm3(h)))).flatten(1)
        return z


def copy_member(plain: PlainEEGNet, net: nn.Module, member: int | None) -> None:
    """Give the plain network the weights of one member of ours."""
    own = dict(net.named_parameters()) | dict(net.named_buffers())
    with torch.no_grad():
        for name, target in [*plain.named_parameters(), *plain.named_buffers()]:
            if name.endswith("num_batches_tracked"):
                continue
            source = own[name.removesuffix(".weight") if name.split(".")[0] in NAKED else name]
            target.copy_((source if member is None else source[member]).reshape(target.shape))


NAKED = ("temporal", "spatial", "depthwise", "pointwise")


def our_name(plain_name: str) -> str:
    return plain_name.removesuffix(".weight") if plain_name.split(".")[0] in NAKED else plain_name
