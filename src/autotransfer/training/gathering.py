"""Rows of windows and of tables, picked for every group at once."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import gpu
from ..fusing import fused


@fused
def gathered(X: Tensor, rows: Tensor, shift: Tensor | None, inv_std: Tensor | None) -> Tensor:
    """X (N, C, T) at rows (G, B), standardised by shift and inv_std (G, C) if given: (G, C, B, T)."""
    _, channels, times = X.shape
    places = rows[:, None, :] * channels + torch.arange(channels, device=X.device)[None, :, None]
    x = X.view(-1, times).index_select(0, places.flatten()).view(*places.shape, times)
    if shift is None or inv_std is None:
        return x
    return x.sub_(shift[:, :, None, None]).mul_(inv_std[:, :, None, None])  # in place: it is a copy already


def sum_rows(table: Tensor, rows: Tensor) -> Tensor:
    """table: (N, n), rows: (G, B) -> (G, n), the sum over a group's rows."""
    if gpu.available(table):
        return gpu.sum_rows(table, rows)
    return torch.nn.functional.embedding_bag(rows, table, mode="sum")


def channel_major(x: Tensor) -> Tensor:
    """Windows (G, B, channels, times) laid out in memory as the encoder likes them."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)
