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
from .transform import Adapting, Batch, Fitted, Follower, OnlineOnly, Rows, Stage, Transform, entries_of


@dataclass(frozen=True)
class Centre(Adapting):
    name = "centre"
    kinds = ("none", "train", "online", "transductive")

    def check(self, before: Sequence[Transform]) -> None:
        if not any(isinstance(transform, Represent) for transform in before):
            raise UserError(
                "centre takes a person's mean from representations, not from signals; choose represent='features' or "
                "'tangent' with it"
            )

    @property
    def by_fold(self) -> bool:
        return self.kind == "train"

    def fit(self, stage: Stage, training: Sequence[Rows]) -> Fitted:
        means = stage.of_people("means", Tensor.double, len(training))
        table = means.to(stage.like.dtype)
        if self.kind == "transductive":
            return PersonCentre(table)
        prior = stage.priors(means, training)
        return TrainCentre(prior) if self.kind == "train" else OnlineCentre(prior, table)

    def restore(self, tensors: dict[str, Tensor]) -> Fitted:
        if self.kind == "transductive":
            return PersonCentre()
        return (TrainCentre if self.kind == "train" else OnlineCentre)(tensors["prior"])


class TrainCentre(Fitted):
    """Less the mean of the training people's means, prior (G, C, T) float64, whoever's windows they are."""

    prior: Tensor

    def __init__(self, prior: Tensor) -> None:
        super().__init__()
        self.register_buffer("prior", prior.double())

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        return x - self.prior[:, None].to(x.dtype)


class PersonCentre(Fitted):
    """Means of the people of the recordings, (G or 1, S, C, T); a new person by the windows of one call."""

    mean: Tensor

    def __init__(self, mean: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("mean", mean, persistent=False)

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        if people is None:
            return x - x.to(torch.float64).mean(1, keepdim=True).to(x.dtype)
        return x - entries_of(self.mean, people)


class OnlineCentre(OnlineOnly, PersonCentre):
    name = "centre"
    prior: Tensor  # (G, C, T) float64: the mean of the training people's means

    def __init__(self, prior: Tensor, mean: Tensor | None = None) -> None:
        super().__init__(mean)
        self.register_buffer("prior", prior.double())

    def follow(self) -> Follower:
        return FollowedCentre(self.prior)


class FollowedCentre(Follower):
    """The mean of each window, those before it and the prior: (m·prior + Σ windows) / (m + n)."""

    remembers = ("n", "total")

    def __init__(self, prior: Tensor) -> None:
        """prior: (P, C, T)."""
        self.prior = prior.double()
        self.n = torch.zeros((), dtype=torch.int64, device=prior.device)
        self.total = torch.zeros_like(self.prior)

    def feed(self, batch: Batch) -> Batch:
        x, n = batch.x, batch.x.shape[1]
        count = self.n + torch.arange(1, n + 1, dtype=torch.float64, device=x.device)[:, None, None]
        total = self.total[:, None] + x.double().cumsum(1)
        self.n, self.total = self.n + n, total[:, -1]
        mean = (PRIOR_WINDOWS * self.prior[:, None] + total) / (PRIOR_WINDOWS + count)
        return Batch(x - mean.to(x.dtype))
