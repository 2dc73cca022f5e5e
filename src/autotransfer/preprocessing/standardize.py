"""Standardization: every channel with mean 0 and standard deviation 1, over a trial, the training rows, or a person.

    trial          each trial by itself; the paper's
    train          by the training rows of the fold
    transductive   each person by all of their own windows, labels unseen
    online         the same for training people; a new person by their windows so far and a prior

A channel that has one value throughout becomes 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .align import moments
from .transform import Adapting, Batch, Fitted, Follower, OnlineOnly, Rows, Stage, Summing, entries_of

PRIOR_WINDOWS = 8  # m: how many windows of a person the prior is worth
ROUNDING = 1e-12  # of the sum of squares: smaller sums of squared deviations are rounding errors of their difference


@dataclass(frozen=True)
class Standardize(Adapting):
    kind: str = "trial"

    kinds = ("trial", "train", "transductive", "online", "none")
    default = "trial"
    tabulated = True

    @property
    def by_fold(self) -> bool:
        return self.kind == "train"

    def fit(self, stage: Stage, training: Sequence[Rows]) -> Fitted:
        return self.fitted_class.of(stage, training)

    @property
    def fitted_class(self) -> type[FittedScale]:
        return KINDS[self.kind]


class FittedScale(Fitted):
    @classmethod
    def of(cls, stage: Stage, training: Sequence[Rows]) -> Fitted:
        """Fit as `Transform.fit` does."""
        return cls()


class OwnScale(FittedScale):
    """trial: nothing is fitted."""

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        sums = sums_of(x.flatten(0, 1))
        deviation = (sums.squares / sums.times).sqrt()
        constant = sums.lowest >= sums.highest
        mean = torch.where(constant, sums.lowest, (sums.total / sums.times).to(x.dtype))
        inv_std = torch.where(constant | (deviation == 0), 0.0, (1 / deviation).clamp(max=torch.finfo(x.dtype).max))
        size = (*x.shape[:-1], 1)
        return (x - mean.view(size)) * inv_std.to(x.dtype).view(size)

    def graph(self) -> nn.Module:
        return PooledScale((3,))


class TrainScale(FittedScale):
    """train: shift and inv_std (G, C)."""

    statistics = ("shift", "inv_std")
    shift: Tensor
    inv_std: Tensor

    @classmethod
    def of(cls, stage: Stage, training: Sequence[Rows]) -> Fitted:
        def scale(group: int, rows: Rows) -> Scale:
            places = torch.as_tensor(rows, device=stage.like.device)
            sums = window_sums(stage.of_group(group)).at(places)
            return scale_of(sums, torch.zeros_like(places), 1).to(stage.like)

        shift, inv_std = map(torch.cat, zip(*stage.of_groups(scale, training), strict=True))
        return cls(shift=shift, inv_std=inv_std)

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        return (x - self.shift[:, None, :, None]) * self.inv_std[:, None, :, None]

    def affine(self) -> tuple[Tensor, Tensor]:
        return self.shift, self.inv_std


class PersonScale(FittedScale):
    """transductive: a table over the people of the recordings, (G or 1, S, C); a new person by the windows of one
    call."""

    person_shift: Tensor
    person_inv_std: Tensor

    @classmethod
    def of(cls, stage: Stage, training: Sequence[Rows]) -> Fitted:
        shift, inv_std = person_scale(stage, len(training)).to(stage.like)
        return cls(person_shift=shift, person_inv_std=inv_std)

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        if people is None:
            everyone = torch.zeros(x.shape[1], dtype=torch.int64, device=x.device)
            scales = [scale_of(sums_of(group), everyone, 1).to(x) for group in x]
            shift, inv_std = map(torch.stack, zip(*scales, strict=True))
        else:
            shift, inv_std = entries_of(self.person_shift, people), entries_of(self.person_inv_std, people)
        return (x - shift[..., None]) * inv_std[..., None]

    def graph(self) -> nn.Module:
        return PooledScale((1, 3))


def person_scale(stage: Stage, groups: int) -> Scale:
    """Return the scale of everybody, for every group, or once where groups make no difference: (G or 1, S, C)."""
    scales = [scale_of(window_sums(group), group.subject, group.n_subjects) for group in stage.distinct(groups)]
    return Scale(*map(torch.stack, zip(*scales, strict=True)))


class OnlineScale(OnlineOnly, PersonScale):
    """online: the table for training people, and for a new person a prior (G, C) from them."""

    statistics = ("shift", "inv_std")
    shift: Tensor
    inv_std: Tensor

    @classmethod
    def of(cls, stage: Stage, training: Sequence[Rows]) -> Fitted:
        """Fit the prior, a mean over people, each counting the same. Its deviation is the root of the mean variance
        within people: how much one person varies, not how much people differ."""
        scale = person_scale(stage, len(training))
        variance = torch.where(scale.inv_std > 0, scale.inv_std**-2, 0.0)
        spread = stage.priors(variance, training)
        inv_std = torch.where(spread > 0, spread.rsqrt(), 0.0)
        prior, table = Scale(stage.priors(scale.shift, training), inv_std).to(stage.like), scale.to(stage.like)
        return cls(**prior._asdict(), person_shift=table.shift, person_inv_std=table.inv_std)

    def follow(self) -> Follower:
        return FollowedScale(self.shift, self.inv_std)


KINDS = {"trial": OwnScale, "train": TrainScale, "transductive": PersonScale, "online": OnlineScale}


class FollowedScale(Summing):
    """Shift and deviation of each window from it, those before it and the prior. With n windows seen:

    shift    = (m·shift₀ + Σ means) / (m + n)
    variance = (m·variance₀ + Σ squared deviations from the person's own mean so far) / (m + n)
    """

    remembers = ("n", "total", "squares", "products")

    def __init__(self, shift: Tensor, inv_std: Tensor) -> None:
        """Of the prior: (P, channels) each."""
        self.prior = shift.double()
        self.variance = torch.where(inv_std > 0, inv_std.double() ** -2, 0.0)
        super().__init__(torch.zeros_like(self.prior))  # of deviations from the prior's shift: no digits are lost
        self.squares = torch.zeros_like(self.prior)
        self.products = self.prior.new_zeros(*self.prior.shape, self.prior.shape[-1])

    def feed(self, batch: Batch) -> Batch:
        """Return with the windows, if it is wanted, Σ x xᵀ / T over windows 0..i, all of them standardized as window i.
        Earlier windows are not kept for it: their sums, taken about the prior's shift, suffice."""
        x = batch.x.double()
        mean = x.mean(-1)
        deviation = mean - self.prior[:, None]  # (P, n, C)
        square = (x - mean[..., None]).square().mean(-1) + deviation.square()
        total = self.total[:, None] + deviation.cumsum(1)
        count = self.remember(total)[:, None]
        squares = self.squares[:, None] + square.cumsum(1)
        spread = squares - total.square() / count
        spread = torch.where(spread > ROUNDING * squares, spread, 0.0)
        shift = self.prior[:, None] + total / (PRIOR_WINDOWS + count)
        variance = (PRIOR_WINDOWS * self.variance[:, None] + spread) / (PRIOR_WINDOWS + count)
        largest = torch.finfo(batch.x.dtype).max
        inv_std = torch.where(variance > 0, variance.rsqrt().clamp(max=largest), 0.0)
        self.squares = squares[:, -1]
        scaled = (batch.x - shift.to(batch.x)[..., None]) * inv_std.to(batch.x)[..., None]
        if not self.second_wanted:
            return Batch(scaled)
        products = self.products[:, None] + moments(x - self.prior[:, None, :, None]).cumsum(1)
        self.products = products[:, -1]
        move = shift - self.prior[:, None]
        cross = total[..., :, None] * move[..., None, :]
        about = products - cross - cross.mT + count[..., None] * move[..., :, None] * move[..., None, :]
        return Batch(scaled, about * inv_std[..., :, None] * inv_std[..., None, :])


class PooledScale(nn.Module):
    """For graphs: standardized by statistics pooled over these axes of (P, N, C, T). float64, as in training: a large
    offset leaves few digits of float32 for the rest.

    A flat channel needs no rule of its own to become 0: its float64 mean, rounded to float32, is its very value, and
    the bound on inv_std keeps 0 · inv_std a number.
    """

    def __init__(self, axes: tuple[int, ...]) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        exact = x.to(torch.float64)
        mean = exact.mean(self.axes, keepdim=True)
        deviation = (exact - mean).square().mean(self.axes, keepdim=True).sqrt()
        inv_std = (1 / deviation).clamp(max=torch.finfo(torch.float32).max)
        return (x - mean.to(torch.float32)) * inv_std.to(torch.float32)


# ---- sums of every window, from which the scale of a trial, a person or a set of training rows follows ---------------


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
    """Return the sums of windows x (N, channels, times)."""
    total = x.sum(-1, dtype=torch.float64)
    squares = (x - (total / x.shape[-1])[..., None]).square().sum(-1)
    return WindowSums(total, squares, *torch.aminmax(x, dim=-1), x.shape[-1])


def window_sums(stage: Stage) -> WindowSums:
    """Return the sums of all windows, computed in one pass, once for the recordings."""

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
        """Return the scale in the dtype and on the device of windows."""
        largest = torch.finfo(like.dtype).max
        return Scale(self.shift.to(like), self.inv_std.clamp(max=largest).to(like))


def scale_of(sums: WindowSums, group: Tensor, n_groups: int) -> Scale:
    """Return the mean and one over the standard deviation of each group; group (N,) says to which a window belongs."""
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
