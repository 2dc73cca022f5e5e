"""Centering: subtracts the subject's mean from each value of a representation.

    transductive   mean of all windows of the subject
    online         training subjects: mean of all windows; new subjects: mean of the prior and the windows so far
    train          the prior, for every subject

The prior is the mean of the training subjects' means.

No labels are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError
from .align import PRIOR_WINDOWS
from .represent import Represent
from .transform import (
    AdaptiveTransform,
    Batch,
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
    kinds = ("none", "train", "online", "transductive")

    def check(self, before: Sequence[Transform]) -> None:
        if not any(isinstance(transform, Represent) for transform in before):
            raise UserError(
                "center needs a representation, not signals; add represent='features' or represent='tangent'"
            )

    @property
    def depends_on_fold(self) -> bool:
        return self.kind == "train"

    def fit(self, windows: TransformedWindows, training: Sequence[Rows]) -> FittedTransform:
        means = windows.subject_means("means", Tensor.double, len(training))
        table = means.to(windows.like.dtype)
        if self.kind == "transductive":
            return SubjectCenter(mean=table)
        prior = windows.group_means(means, training)
        return TrainCenter(prior=prior) if self.kind == "train" else OnlineCenter(prior=prior, mean=table)

    @property
    def fitted_class(self) -> type[FittedTransform]:
        return {"transductive": SubjectCenter, "train": TrainCenter, "online": OnlineCenter}[self.kind]


class TrainCenter(FittedTransform):
    """Centering with the mean of the training subjects' means, prior (G, C, T) float64, for every subject."""

    statistics = ("prior",)
    prior: Tensor

    def forward(self, x: Tensor, subjects: Tensor | None = None) -> Tensor:
        return x - self.prior[:, None].to(x.dtype)


class SubjectCenter(FittedTransform):
    """Centering with the mean of each subject in the recordings, or of a new subject's windows in one call."""

    mean: Tensor  # (G or 1, S, C, T)

    def forward(self, x: Tensor, subjects: Tensor | None = None) -> Tensor:
        if subjects is None:
            return x - x.to(torch.float64).mean(1, keepdim=True).to(x.dtype)
        return x - look_up(self.mean, subjects)


class OnlineCenter(OnlineMixin, SubjectCenter):
    statistics = ("prior",)
    prior: Tensor  # (G, C, T) float64: the mean of the training subjects' means

    def start_subject(self) -> RunningTransform:
        return RunningCenter(self.prior)


class RunningCenter(RunningSums):
    """Centering of a window with the mean of the prior and all windows up to it: (m·prior + Σ windows) / (m + n)."""

    def __init__(self, prior: Tensor) -> None:  # (P, C, T)
        self.prior = prior.double()
        super().__init__(torch.zeros_like(self.prior))

    def feed(self, batch: Batch) -> Batch:
        x = batch.x
        total = self.total[:, None] + x.double().cumsum(1)
        count = self.update(total)[:, None, None]
        mean = (PRIOR_WINDOWS * self.prior[:, None] + total) / (PRIOR_WINDOWS + count)
        return Batch(x - mean.to(x.dtype))
