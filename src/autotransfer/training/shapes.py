"""What `append_scale` makes of windows, split into what no fold changes and what one does.

Behind the shift and scale of a fold every channel of a window is brought to mean 0 and deviation 1, and its mean and
log deviation become channels of their own. The shape is the same in every fold, and so are its moments; the two numbers
follow from those of the raw window. So nothing is transformed in a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from ..model.moments import edge_sums, lag_sums
from ..preprocessing.append_scale import FLAT, QUIET

CONSTANT = 1e-14  # of its largest value: what rounding in float64 leaves of a constant channel less its mean


class Shapes:
    """Of all windows (N, C, T)."""

    def __init__(self, X: Tensor, kernel: int, chunks: Sequence[slice], *, edges: bool) -> None:
        """edges: sums are tabulated with the edges of windows."""
        parts = [_shapes(X[rows].double()) for rows in chunks]
        self.x = torch.cat([shape.to(X.dtype) for shape, _, _ in parts])
        self.mean = torch.cat([mean for _, mean, _ in parts])  # (N, C) float64
        self.deviation = torch.cat([deviation for _, _, deviation in parts])
        sums = [self._sums(self.x[rows], kernel, edges) for rows in chunks]
        self.sums = torch.cat(sums)  # (N, n_sums) or, without edges, (N, 1 + kernel)
        self.kernel, self.chunks = kernel, chunks

    @staticmethod
    def _sums(x: Tensor, kernel: int, edges: bool) -> Tensor:
        lags = lag_sums(x.double(), kernel).to(x.dtype)
        return torch.cat([lags, edge_sums(x, kernel)], -1) if edges else lags

    @cached_property
    def channel_lags(self) -> Tensor:
        """(N, C, 1 + kernel): every channel's part of the sums without edges, made where channels are multiplied."""
        parts = (self.x[rows].double()[..., None, :] for rows in self.chunks)
        return torch.cat([lag_sums(part, self.kernel).to(self.x.dtype) for part in parts])

    def scaled_lags(self, rows: Tensor, factors: Tensor) -> Tensor:
        """Of windows of rows (G, B) whose channels were multiplied by factors (G, B, C): (G, 1 + kernel). A factor is
        in the sum of samples once and in every product of two of them twice."""
        table = self.channel_lags
        channels = table.shape[1]
        places = rows[..., None] * channels + torch.arange(channels)
        weights = factors.to(table.dtype)
        total = (table[..., 0].flatten()[places] * weights).sum((1, 2))
        sums = embedding_bag(
            places.flatten(1), table.flatten(0, 1), mode="sum", per_sample_weights=weights.square().flatten(1)
        )
        return torch.cat([total[:, None], sums[:, 1:]], 1)

    def hold(self, inv_std: Tensor, training: Sequence[NDArray[np.int64]]) -> bool:
        """Whether no fold, with scales (G, C), takes a channel of its training rows for flat that is not constant."""
        for scale, rows in zip(inv_std.double(), training, strict=True):
            deviation = self.deviation[torch.from_numpy(rows)]
            if ((deviation > 0) & (deviation * scale < FLAT)).any():
                return False
        return True

    def levels(self, rows: Tensor, shift: Tensor, inv_std: Tensor) -> Tensor:
        """Of rows (G, B) in folds with these shifts and scales (G, C): means and log deviations (G, B, 2C)."""
        scale = inv_std[:, None].double()
        mean = (self.mean[rows] - shift[:, None]) * scale
        return torch.cat([mean, (self.deviation[rows] * scale + QUIET).log()], -1).to(self.x.dtype)


def _shapes(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x: (n, C, T) float64 -> shapes, means (n, C) and deviations (n, C), 0 where a channel is constant."""
    mean = x.mean(-1)
    centred = x - mean[..., None]
    deviation = centred.square().mean(-1).sqrt()
    constant = deviation <= CONSTANT * x.abs().amax(-1)
    shape = torch.where(constant[..., None], 0.0, centred / torch.where(constant, 1.0, deviation)[..., None])
    return shape, mean, deviation.masked_fill(constant, 0.0)
