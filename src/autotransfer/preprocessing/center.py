"""Centering: the mean over windows is subtracted from each value of a representation.

    transductive   all windows of the subject
    online         all windows of a training subject; for a new subject a prior and the windows up to the current window
    train          the prior, for every subject

The prior is the mean of the training subjects' means. No labels are used. In shapes, G is the number of groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError
from .represent import Represent
from .transform import (
    PRIOR_WINDOWS,
    AdaptiveTransform,
    FittedTransform,
    OnlineMixin,
    Rows,
    RunningSums,
    RunningTransform,
    Transform,
    TransformedWindows,
    look_up,
)


@dataclass(frozen=True)
class Center(AdaptiveTransform):
    scopes = ("none", "train", "online", "transductive")

    def check(self, earlier: Sequence[Transform]) -> None:
        if not any(isinstance(transform, Represent) for transform in earlier):
            raise UserError(
                "center needs a representation, not signals; add represent='features' or represent='tangent'"
            )

    @property
    def depends_on_fold(self) -> bool:
        return self.scope == "train"  # "online" uses the prior for new subjects only

    def fit(self, windows: TransformedWindows, training: Sequence[Rows]) -> FittedTransform:
        means = windows.compute_subject_means("means", Tensor.double, len(training))
        table = means.to(windows.like.dtype)  # the dtype of transformed windows
        if self.scope == "transductive":
            return SubjectCenter(mean=table)
        prior = windows.average_training_subjects(means, training)
        return TrainCenter(prior=prior) if self.scope == "train" else OnlineCenter(prior=prior, mean=table)

    @property
    def fitted_class(self) -> type[FittedTransform]:
        return {"transductive": SubjectCenter, "train": TrainCenter, "online": OnlineCenter}[self.scope]


class TrainCenter(FittedTransform):
    """Centering of every subject with the prior."""

    statistics = ("prior",)
    prior: Tensor  # (G, C, T) float64: mean of the training subjects' means

    def forward(self, x: Tensor, subjects: Tensor | None = None) -> Tensor:
        return x - self.prior[:, None].to(x.dtype)


class SubjectCenter(FittedTransform):
    """Centering by subject: means of recorded subjects from a table, or the mean of all windows of one new subject."""

    mean: Tensor  # (G or 1, S, C, T)

    def forward(self, x: Tensor, subjects: Tensor | None = None) -> Tensor:
        if subjects is None:
            return x - x.to(torch.float64).mean(1, keepdim=True).to(x.dtype)
        return x - look_up(self.mean, subjects)


class OnlineCenter(OnlineMixin, SubjectCenter):
    statistics = ("prior",)
    prior: Tensor  # (G, C, T) float64: mean of the training subjects' means

    def start_subject(self) -> RunningTransform:
        return RunningCenter(self.prior)


class RunningCenter(RunningSums):
    """Centering of window n with the prior and windows 1 to n: mean = (m·prior + Σ windows) / (m + n)."""

    def feed(self, x: Tensor) -> Tensor:
        total = self.total[:, None] + x.double().cumsum(1)
        n_windows = self.store_sums(total)[:, None, None]
        mean = (PRIOR_WINDOWS * self.prior[:, None] + total) / (PRIOR_WINDOWS + n_windows)
        return x - mean.to(x.dtype)
