"""Standardization: every channel gets mean 0 and standard deviation 1 over the windows of a scope.

    trial          each window, as in the paper
    train          all training windows of the fold
    transductive   all windows of the subject
    online         all windows of a training subject; for a new subject a prior and the windows up to the current window

Constant channels become 0. No labels are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .transform import (
    PRIOR_WINDOWS,
    AdaptiveTransform,
    FittedTransform,
    OnlineMixin,
    Rows,
    RunningSums,
    RunningTransform,
    TransformedWindows,
    look_up,
)

ROUNDING_ERROR = 1e-12  # ratio to the sum of squares below which a sum of squared deviations is a rounding error


@dataclass(frozen=True)
class Standardize(AdaptiveTransform):
    scope: str = "trial"

    scopes = ("trial", "train", "transductive", "online", "none")
    default = "trial"
    has_cached_moments = True

    @property
    def depends_on_fold(self) -> bool:
        return self.scope == "train"

    def fit(self, windows: TransformedWindows, training: Sequence[Rows]) -> FittedTransform:
        return self.fitted_class.fit(windows, training)

    @property
    def fitted_class(self) -> type[FittedScale]:
        return FITTED_SCALES[self.scope]


class FittedScale(FittedTransform):
    @classmethod
    def fit(cls, windows: TransformedWindows, training: Sequence[Rows]) -> FittedTransform:
        """Fit the statistics (see `Transform.fit`)."""
        return cls()


class WindowScale(FittedScale):
    """Standardization of each window by statistics of the window (trial)."""

    def forward(self, x: Tensor, subjects: Tensor | None = None) -> Tensor:
        return standardize_over(x, (3,))


class TrainScale(FittedScale):
    """Standardization by shift and inv_std (G, C) of the training windows (train)."""

    statistics = ("shift", "inv_std")
    shift: Tensor
    inv_std: Tensor

    @classmethod
    def fit(cls, windows: TransformedWindows, training: Sequence[Rows]) -> FittedTransform:
        def fit_group(group: int, rows: Rows) -> Scale:
            indices = torch.as_tensor(rows, device=windows.like.device)
            sums = compute_all_sums(windows.get_group(group)).select(indices)
            return compute_scale(sums, torch.zeros_like(indices), 1).cast_like(windows.like)

        shift, inv_std = map(torch.cat, zip(*windows.map_groups(fit_group, training), strict=True))
        return cls(shift=shift, inv_std=inv_std)

    def forward(self, x: Tensor, subjects: Tensor | None = None) -> Tensor:
        return (x - self.shift[:, None, :, None]) * self.inv_std[:, None, :, None]

    def affine(self) -> tuple[Tensor, Tensor]:
        return self.shift, self.inv_std


class SubjectScale(FittedScale):
    """Standardization by subject: statistics (G or 1, S, C) of recorded subjects, or of all windows of a new one."""

    subject_shift: Tensor
    subject_inv_std: Tensor

    @classmethod
    def fit(cls, windows: TransformedWindows, training: Sequence[Rows]) -> FittedTransform:
        shift, inv_std = compute_subject_scales(windows, len(training)).cast_like(windows.like)
        return cls(subject_shift=shift, subject_inv_std=inv_std)

    def forward(self, x: Tensor, subjects: Tensor | None = None) -> Tensor:
        if subjects is None:
            return standardize_over(x, (1, 3))
        shift, inv_std = look_up(self.subject_shift, subjects), look_up(self.subject_inv_std, subjects)
        return (x - shift[..., None]) * inv_std[..., None]


def compute_subject_scales(windows: TransformedWindows, groups: int) -> Scale:
    """Return the scales (G or 1, S, C) of all subjects, per group of training rows unless groups have equal windows."""
    parts = windows.split_groups(groups)
    scales = [compute_scale(compute_all_sums(part), part.subject, part.n_subjects) for part in parts]
    return Scale(*map(torch.stack, zip(*scales, strict=True)))


class OnlineScale(OnlineMixin, SubjectScale):
    """Standardization of recorded subjects by their statistics, and of new subjects by a prior and earlier windows."""

    statistics = ("shift", "inv_std")
    shift: Tensor
    inv_std: Tensor

    @classmethod
    def fit(cls, windows: TransformedWindows, training: Sequence[Rows]) -> FittedTransform:
        """Fit the prior: means and variances of the training subjects, averaged over these subjects."""
        scale = compute_subject_scales(windows, len(training))
        variance = torch.where(scale.inv_std > 0, scale.inv_std**-2, 0.0)
        prior_variance = windows.average_training_subjects(variance, training)
        inv_std = torch.where(prior_variance > 0, prior_variance.rsqrt(), 0.0)
        prior = Scale(windows.average_training_subjects(scale.shift, training), inv_std).cast_like(windows.like)
        table = scale.cast_like(windows.like)
        return cls(**prior._asdict(), subject_shift=table.shift, subject_inv_std=table.inv_std)

    def start_subject(self) -> RunningTransform:
        return RunningScale(self.shift, self.inv_std)


FITTED_SCALES = {"trial": WindowScale, "train": TrainScale, "transductive": SubjectScale, "online": OnlineScale}


class RunningScale(RunningSums):
    """Standardization of window n with statistics of the prior (weight m) and of windows 1 to n.

    shift    = (m·shift₀ + Σ means) / (m + n)
    variance = (m·variance₀ + Σ squared deviations from the mean of windows 1 to n) / (m + n)
    """

    state_names = ("n", "total", "squares")

    def __init__(self, shift: Tensor, inv_std: Tensor) -> None:  # prior, (G, C) each
        super().__init__(shift)  # sums of deviations from the prior's shift, for precision
        self.variance = torch.where(inv_std > 0, inv_std.double() ** -2, 0.0)
        self.squares = torch.zeros_like(self.prior)

    def feed(self, x: Tensor) -> Tensor:
        exact = x.double()
        mean = exact.mean(-1)
        deviation = mean - self.prior[:, None]  # (G, n, C)
        square = (exact - mean[..., None]).square().mean(-1) + deviation.square()
        total = self.total[:, None] + deviation.cumsum(1)
        count = self.store_sums(total)[:, None]
        squares = self.squares[:, None] + square.cumsum(1)
        scatter = squares - total.square() / count
        scatter = torch.where(scatter > ROUNDING_ERROR * squares, scatter, 0.0)
        shift = self.prior[:, None] + total / (PRIOR_WINDOWS + count)
        variance = (PRIOR_WINDOWS * self.variance[:, None] + scatter) / (PRIOR_WINDOWS + count)
        largest = torch.finfo(x.dtype).max
        inv_std = torch.where(variance > 0, variance.rsqrt().clamp(max=largest), 0.0)
        self.squares = squares[:, -1]
        return (x - shift.to(x)[..., None]) * inv_std.to(x)[..., None]


def standardize_over(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Standardize windows (G, n, C, T) with float64 statistics over the given axes."""
    exact = x.to(torch.float64)
    shifted = exact - exact.amin(axes, keepdim=True)  # exactly 0 for constant channels
    centered = shifted - shifted.mean(axes, keepdim=True)
    deviation = centered.square().mean(axes, keepdim=True).sqrt()
    return (centered * (1 / deviation).clamp(max=torch.finfo(torch.float32).max)).to(x.dtype)


# ---- sums over windows, from which all scales are computed -----------------------------------------------------------


class ChannelSums(NamedTuple):
    """Sums over the samples of each of N windows, (N, channels) float64."""

    total: Tensor
    squares: Tensor  # squared deviations from the mean of the window
    lowest: Tensor
    highest: Tensor
    times: int

    def select(self, rows: Tensor) -> ChannelSums:
        total, squares, lowest, highest = (table[rows] for table in self[:4])
        return ChannelSums(total, squares, lowest, highest, self.times)


def compute_sums(x: Tensor) -> ChannelSums:
    """Return the sums of windows x (N, channels, times)."""
    total = x.sum(-1, dtype=torch.float64)
    squares = (x - (total / x.shape[-1])[..., None]).square().sum(-1)
    return ChannelSums(total, squares, *torch.aminmax(x, dim=-1), x.shape[-1])


def compute_all_sums(windows: TransformedWindows) -> ChannelSums:
    """Return the sums of all windows, cached with the recordings."""

    def compute() -> ChannelSums:
        _, channels, times = windows.X.shape
        parts = [compute_sums(x) for _, x in windows.chunks(channels * times)]
        total, squares, lowest, highest = (torch.cat(tables) for tables in list(zip(*parts, strict=True))[:4])
        return ChannelSums(total, squares, lowest, highest, parts[0].times)

    sums: ChannelSums = windows.compute_once("window sums", compute)
    return sums


class Scale(NamedTuple):
    """Shift and inverse standard deviation of G groups of windows, (G, channels) float64; 0 for a constant channel."""

    shift: Tensor
    inv_std: Tensor

    def cast_like(self, like: Tensor) -> Scale:
        """Return the scale with the dtype and device of a tensor, bounded by the largest number of the dtype."""
        largest = torch.finfo(like.dtype).max
        return Scale(self.shift.to(like), self.inv_std.clamp(max=largest).to(like))


def compute_scale(sums: ChannelSums, group: Tensor, n_groups: int) -> Scale:
    """Return mean and inverse standard deviation of each group; group: (N,) group of each window."""
    channels = sums.total.shape[1]
    zeros = torch.zeros(n_groups, channels, dtype=torch.float64, device=sums.total.device)
    count = torch.bincount(group, minlength=n_groups).clamp(min=1).to(torch.float64)[:, None] * sums.times
    mean = zeros.index_add(0, group, sums.total) / count
    between = (sums.total / sums.times - mean[group]).square() * sums.times
    squares = zeros.index_add(0, group, sums.squares + between)
    index = group[:, None].expand_as(sums.lowest)
    lowest = torch.full_like(zeros, torch.inf, dtype=sums.lowest.dtype).scatter_reduce(0, index, sums.lowest, "amin")
    highest = torch.full_like(lowest, -torch.inf).scatter_reduce(0, index, sums.highest, "amax")
    deviation = (squares / count).sqrt()
    # Constant channels are found by minimum and maximum, because their mean may be rounded.
    is_constant = lowest >= highest
    shift = torch.where(is_constant, lowest.to(torch.float64), mean).nan_to_num(posinf=0.0)
    return Scale(shift, torch.where(is_constant | (deviation == 0), 0.0, 1 / deviation))
