"""Every number of a representation less its mean over the person's windows: what is left is how each window differs
from the person's mean.

    transductive   the mean of all of a person's windows
    online         the same for training people; for a new person of their windows so far and a prior
    train          the prior alone for everybody: what `online` is before the first window of a new person

No label is ever read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError
from .align import PRIOR_WINDOWS
from .represent import Represent
from .transform import Adapting, Batch, Fitted, Follower, OnlineOnly, Rows, Stage, Summing, Transform, entries_of


@dataclass(frozen=True)
class Center(Adapting):
    kinds = ("none", "train", "online", "transductive")

    def check(self, before: Sequence[Transform]) -> None:
        if not any(isinstance(transform, Represent) for transform in before):
            raise UserError(
                "center takes a person's mean from representations, not from signals; choose represent='features' or "
                "'tangent' with it"
            )

    @property
    def by_fold(self) -> bool:
        return self.kind == "train"

    def fit(self, stage: Stage, training: Sequence[Rows]) -> Fitted:
        means = stage.of_people("means", Tensor.double, len(training))
        table = means.to(stage.like.dtype)
        if self.kind == "transductive":
            return PersonCenter(mean=table)
        prior = stage.priors(means, training)
        return TrainCenter(prior=prior) if self.kind == "train" else OnlineCenter(prior=prior, mean=table)

    @property
    def fitted_class(self) -> type[Fitted]:
        return {"transductive": PersonCenter, "train": TrainCenter, "online": OnlineCenter}[self.kind]


class TrainCenter(Fitted):
    """Less the mean of the training people's means, prior (G, C, T) float64, whoever's windows they are."""

    statistics = ("prior",)
    prior: Tensor

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        return x - self.prior[:, None].to(x.dtype)


class PersonCenter(Fitted):
    """Means of the people of the recordings, (G or 1, S, C, T); a new person by the windows of one call."""

    mean: Tensor

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        if people is None:
            return x - x.to(torch.float64).mean(1, keepdim=True).to(x.dtype)
        return x - entries_of(self.mean, people)


class OnlineCenter(OnlineOnly, PersonCenter):
    statistics = ("prior",)
    prior: Tensor  # (G, C, T) float64: the mean of the training people's means

    def follow(self) -> Follower:
        return FollowedCenter(self.prior)


class FollowedCenter(Summing):
    """The mean of each window, those before it and the prior: (m·prior + Σ windows) / (m + n)."""

    def __init__(self, prior: Tensor) -> None:
        """prior: (P, C, T)."""
        self.prior = prior.double()
        super().__init__(torch.zeros_like(self.prior))

    def feed(self, batch: Batch) -> Batch:
        x = batch.x
        total = self.total[:, None] + x.double().cumsum(1)
        count = self.remember(total)[:, None, None]
        mean = (PRIOR_WINDOWS * self.prior[:, None] + total) / (PRIOR_WINDOWS + count)
        return Batch(x - mean.to(x.dtype))
