"""Sums of every window and channel, from which the scale of a trial, a person or a set of training rows follows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .transform import Stage


class WindowSums(NamedTuple):
    """Of N windows: (N, channels) each; sums in float64."""

    total: Tensor
    squares: Tensor  # squared deviations from the window's own mean
    lowest: Tensor
    highest: Tensor
    times: int

    def at(self, rows: Tensor) -> WindowSums:
        total, squares, lowest, highest = (table[rows] for table in self[:4])
        return WindowSums(total, squares, lowest, highest, self.times)


def sums_of(x: Tensor) -> WindowSums:
    """x: (N, channels, times)."""
    total = x.sum(-1, dtype=torch.float64)
    squares = (x - (total / x.shape[-1])[..., None]).square().sum(-1)
    return WindowSums(total, squares, *torch.aminmax(x, dim=-1), x.shape[-1])


def window_sums(stage: Stage) -> WindowSums:
    """Of all windows, in one pass, known once for the recordings."""

    def measure() -> WindowSums:
        _, channels, times = stage.X.shape
        parts = [sums_of(x) for _, x in stage.chunks(channels * times)]
        total, squares, lowest, highest = (torch.cat(tables) for tables in list(zip(*parts, strict=True))[:4])
        return WindowSums(total, squares, lowest, highest, parts[0].times)

    sums: WindowSums = stage.known("window sums", measure)
    return sums


class Scale(NamedTuple):
    """Of G groups of windows: (G, channels) float64. A channel of one value throughout has inv_std 0."""

    shift: Tensor
    inv_std: Tensor

    def to(self, like: Tensor) -> Scale:
        """In the dtype and on the device of windows."""
        largest = torch.finfo(like.dtype).max
        return Scale(self.shift.to(like), self.inv_std.clamp(max=largest).to(like))


def scale_of(sums: WindowSums, group: Tensor, n_groups: int) -> Scale:
    """Mean and one over the standard deviation of each group; group (N,) says to which a window belongs."""
    channels = sums.total.shape[1]
    zeros = torch.zeros(n_groups, channels, dtype=torch.float64, device=sums.total.device)
    count = torch.bincount(group, minlength=n_groups).clamp(min=1).to(torch.float64)[:, None] * sums.times
    mean = zeros.index_add(0, group, sums.total) / count
    apart = (sums.total / sums.times - mean[group]).square() * sums.times
    squares = zeros.index_add(0, group, sums.squares + apart)
    places = group[:, None].expand_as(sums.lowest)
    lowest = torch.full_like(zeros, torch.inf, dtype=sums.lowest.dtype).scatter_reduce(0, places, sums.lowest, "amin")
    highest = torch.full_like(lowest, -torch.inf).scatter_reduce(0, places, sums.highest, "amax")
    deviation = (squares / count).sqrt()
    # The rounded mean of equal values need not be that value, so a constant is told by its extremes.
    constant = lowest >= highest
    shift = torch.where(constant, lowest.to(torch.float64), mean).nan_to_num(posinf=0.0)
    return Scale(shift, torch.where(constant | (deviation == 0), 0.0, 1 / deviation))
