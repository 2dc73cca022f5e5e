"""Windows for `append_scale`, standardized per channel once for all folds.

`append_scale` standardizes every channel of a window, and appends the mean and log standard deviation of the channel as
constant channels. Only the constant channels depend on the shift and scale of the fold.
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
from ..preprocessing.append_scale import LOG_OFFSET, MIN_DEVIATION

MAX_ROUNDING = 1e-14  # largest standard deviation of constant channels in float64, relative to the largest value


class StandardizedWindows:
    """Standardized channels, means and standard deviations of all windows (N, C, T)."""

    def __init__(self, X: Tensor, kernel: int, chunks: Sequence[slice], *, edges: bool) -> None:
        """Standardize windows and tabulate sums of each window, with sums of its edges if `edges`."""
        parts = [_standardize(X[rows].double()) for rows in chunks]
        self.x = torch.cat([x.to(X.dtype) for x, _, _ in parts])
        self.mean = torch.cat([mean for _, mean, _ in parts])  # (N, C) float64
        self.deviation = torch.cat([deviation for _, _, deviation in parts])
        sums = [self._compute_sums(self.x[rows], kernel, edges) for rows in chunks]
        self.sums = torch.cat(sums)  # (N, n_sums) or, without edges, (N, 1 + kernel)
        self.kernel, self.chunks, self.edges = kernel, chunks, edges
        self.channel_sums: Tensor | None = None  # (N, C, n_sums) or, without edges, (N, C, 1 + kernel)

    @staticmethod
    def _compute_sums(x: Tensor, kernel: int, edges: bool) -> Tensor:
        lags = lag_sums(x.double(), kernel).to(x.dtype)
        return torch.cat([lags, edge_sums(x, kernel)], -1) if edges else lags

    def tabulate_channels(self) -> None:
        """Tabulate the sums of every channel for `sum_scaled_rows`, with edges only for the kernel on a GPU."""
        if self.channel_sums is None:
            edges = self.edges and self.x.device.type == "cuda"
            parts = [self._compute_sums(self.x[rows][..., None, :], self.kernel, edges) for rows in self.chunks]
            self.channel_sums = torch.cat(parts)

    def sum_scaled_rows(self, rows: Tensor, factors: Tensor) -> Tensor:
        """Return sums (G, n_sums) or (G, 1 + kernel) of rows (G, B) with channels multiplied by factors (G, B, C)."""
        # Sums of samples are linear in a factor. Sums of products of two samples are quadratic.
        table, weights = self.channel_sums, factors.to(self.x.dtype)
        assert table is not None
        channels, width = table.shape[1:]
        linear = find_linear_sums(self.kernel, table.device)[:width]
        if gpu.is_available(table):
            return gpu.sum_scaled_rows(table, rows, weights, linear)
        index = (rows[..., None] * channels + torch.arange(channels, device=rows.device)).flatten(1)
        weights, lags = weights.flatten(1), table[..., : 1 + self.kernel].flatten(0, 1)
        total = (lags[:, 0][index] * weights).sum(1)
        sums = embedding_bag(index, lags, mode="sum", per_sample_weights=weights.square())
        return torch.cat([total[:, None], sums[:, 1:]], 1)

    def is_exact_for(self, inv_std: Tensor, training: Sequence[NDArray[np.int64]]) -> bool:
        """Return whether no fold treats a varying channel as flat. inv_std: (G, C) scales of the folds."""
        for scale, rows in zip(inv_std.double(), training, strict=True):
            deviation = self.deviation[torch.from_numpy(rows)]
            if ((deviation > 0) & (deviation * scale < MIN_DEVIATION)).any():
                return False
        return True

    def levels(self, rows: Tensor, shift: Tensor, inv_std: Tensor) -> Tensor:
        """Return means and log standard deviations (G, B, 2C) of rows (G, B) for shifts and scales (G, C)."""
        scale = inv_std[:, None].double()
        mean = (self.mean[rows] - shift[:, None]) * scale
        return torch.cat([mean, (self.deviation[rows] * scale + LOG_OFFSET).log()], -1).to(self.x.dtype)


def _standardize(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return standardized x (n, C, T), means (n, C) and standard deviations (n, C), 0 for constant channels."""
    mean = x.mean(-1)
    centered = x - mean[..., None]
    deviation = centered.square().mean(-1).sqrt()
    is_constant = deviation <= MAX_ROUNDING * x.abs().amax(-1)
    divisor = torch.where(is_constant, 1.0, deviation)
    standardized = torch.where(is_constant[..., None], 0.0, centered / divisor[..., None])
    return standardized, mean, deviation.masked_fill(is_constant, 0.0)
