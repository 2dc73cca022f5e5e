"""What `append_scale` makes of windows, split into what no fold changes and what one does.

Behind the shift and scale of a fold every channel of a window is brought to mean 0 and deviation 1, and its mean and
log deviation become channels of their own. The shape is the same in every fold, and so are its moments; the two numbers
follow from those of the raw window. So nothing is transformed in a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from .. import gpu
from ..model.moments import edge_sums, find_linear_sums, lag_sums
from ..preprocessing.append_scale import FLAT, QUIET

CONSTANT = 1e-14  # of its largest value: what rounding in float64 leaves of a constant channel less its mean


class StandardizedWindows:
    """StandardizedWindows, means and deviations of all windows (N, C, T)."""

    def __init__(self, X: Tensor, kernel: int, chunks: Sequence[slice], *, edges: bool) -> None:
        """edges: sums are tabulated with the edges of windows."""
        parts = [_shapes(X[rows].double()) for rows in chunks]
        self.x = torch.cat([shape.to(X.dtype) for shape, _, _ in parts])
        self.mean = torch.cat([mean for _, mean, _ in parts])  # (N, C) float64
        self.deviation = torch.cat([deviation for _, _, deviation in parts])
        sums = [self._sums(self.x[rows], kernel, edges) for rows in chunks]
        self.sums = torch.cat(sums)  # (N, n_sums) or, without edges, (N, 1 + kernel)
        self.kernel, self.chunks, self.edges = kernel, chunks, edges
        self.channel_sums: Tensor | None = None  # (N, C, n_sums) or, without edges, (N, C, 1 + kernel)

    @staticmethod
    def _sums(x: Tensor, kernel: int, edges: bool) -> Tensor:
        lags = lag_sums(x.double(), kernel).to(x.dtype)
        return torch.cat([lags, edge_sums(x, kernel)], -1) if edges else lags

    def tabulate_channels(self) -> None:
        """Every channel's part of the sums, for `sum_scaled`. With edges on a GPU alone, where a kernel reads them."""
        if self.channel_sums is None:
            edges = self.edges and self.x.device.type == "cuda"
            parts = [self._sums(self.x[rows][..., None, :], self.kernel, edges) for rows in self.chunks]
            self.channel_sums = torch.cat(parts)

    def sum_scaled(self, rows: Tensor, factors: Tensor) -> Tensor:
        """Return the sums of windows of rows (G, B) whose channels were multiplied by factors (G, B, C): (G, n_sums),
        or without edges (G, 1 + kernel). A factor is in sums of samples once and in every product of two of them
        twice."""
        table, weights = self.channel_sums, factors.to(self.x.dtype)
        assert table is not None
        channels, width = table.shape[1:]
        linear = find_linear_sums(self.kernel, table.device)[:width]
        if gpu.available(table):
            return gpu.sum_scaled_rows(table, rows, weights, linear)
        places = (rows[..., None] * channels + torch.arange(channels, device=rows.device)).flatten(1)
        weights, lags = weights.flatten(1), table[..., : 1 + self.kernel].flatten(0, 1)
        total = (lags[:, 0][places] * weights).sum(1)
        sums = embedding_bag(places, lags, mode="sum", per_sample_weights=weights.square())
        return torch.cat([total[:, None], sums[:, 1:]], 1)

    def is_exact_for(self, inv_std: Tensor, training: Sequence[NDArray[np.int64]]) -> bool:
        """Tell whether no fold, with scales (G, C), takes a channel for flat that is not constant."""
        for scale, rows in zip(inv_std.double(), training, strict=True):
            deviation = self.deviation[torch.from_numpy(rows)]
            if ((deviation > 0) & (deviation * scale < FLAT)).any():
                return False
        return True

    def levels(self, rows: Tensor, shift: Tensor, inv_std: Tensor) -> Tensor:
        """Return, for rows (G, B) in folds with these shifts and scales (G, C), means and log deviations (G, B, 2C)."""
        scale = inv_std[:, None].double()
        mean = (self.mean[rows] - shift[:, None]) * scale
        return torch.cat([mean, (self.deviation[rows] * scale + QUIET).log()], -1).to(self.x.dtype)


def _shapes(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x: (n, C, T) float64 -> shapes, means (n, C) and deviations (n, C), 0 where a channel is constant."""
    mean = x.mean(-1)
    centered = x - mean[..., None]
    deviation = centered.square().mean(-1).sqrt()
    constant = deviation <= CONSTANT * x.abs().amax(-1)
    shape = torch.where(constant[..., None], 0.0, centered / torch.where(constant, 1.0, deviation)[..., None])
    return shape, mean, deviation.masked_fill(constant, 0.0)
