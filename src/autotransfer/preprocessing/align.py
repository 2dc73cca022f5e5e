"""Euclidean alignment (He & Wu 2020): a person's windows are multiplied by R^{-1/2}, R the mean of their covariances.

    transductive   R of all of a person's windows
    online         the same for training people; for a new person R of their windows so far and a prior

After it the mean covariance of everybody's windows is the identity, so that people differ less in how their channels
vary together. Covariances are second moments X Xᵀ / times of windows that are already standardized, shrunk towards a
multiple of the identity. No label is ever read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..errors import UserError
from .transform import Adapting, Batch, Fitted, Follower, OnlineOnly, Rows, Stage, Summing, entries_of

PRIOR_WINDOWS = 8  # how many windows of a person the prior is worth
# Share of the average variance in every covariance: with more channels than a window has independent samples, R would
# have directions without variance, and R^{-1/2} would turn the noise in them into signal.
SHRINKAGE = 0.01
FLOOR = 1e-10  # of the largest eigenvalue: smaller ones are rounding


@dataclass(frozen=True)
class Align(Adapting):
    tabulated = True

    def fit(self, stage: Stage, training: Sequence[Rows]) -> Fitted:
        covariances = stage.of_people("covariances", covariance, len(training))
        mix = inverse_root(covariances).to(stage.like.dtype)
        if self.kind == "transductive":
            return PersonAlign(mix=mix)
        return OnlineAlign(covariance=stage.priors(covariances, training), mix=mix)

    @property
    def fitted_class(self) -> type[Fitted]:
        return PersonAlign if self.kind == "transductive" else OnlineAlign


class PersonAlign(Fitted):
    """R^{-1/2} of the people of the recordings, (G or 1, S, C, C); a new person by the windows of one call."""

    mix: Tensor

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        if people is None:
            R = covariance(x).mean(1, keepdim=True)
            return inverse_root(R).to(x.dtype) @ x
        return entries_of(self.mix, people) @ x

    def graph(self) -> nn.Module:
        raise UserError(
            "the model aligns every new person's windows, and exported graphs have no matrix square root; "
            "use the format safetensors with at.load_model, or train one that does not adapt (--adaptation zero-shot)"
        )


class OnlineAlign(OnlineOnly, PersonAlign):
    graph = PersonAlign.graph
    statistics = ("covariance",)
    covariance: Tensor  # (G, C, C) float64: the prior

    def follow(self) -> Follower:
        return FollowedAlign(self.covariance)


class FollowedAlign(Summing):
    """R of each window from it, those before it and the prior: R = (m·R₀ + Σ covariances) / (m + n)."""

    reads_second = True

    def __init__(self, prior: Tensor) -> None:
        """prior: R₀ (P, channels, channels)."""
        self.prior = prior.double()
        super().__init__(torch.zeros_like(self.prior))

    def feed(self, batch: Batch) -> Batch:
        x = batch.x
        total = self.total[:, None] + moments(x).cumsum(1) if batch.second is None else batch.second
        count = self.remember(total)[:, None, None]
        R = (PRIOR_WINDOWS * self.prior[:, None] + shrunk(total)) / (PRIOR_WINDOWS + count)
        return Batch(inverse_root(R).to(x.dtype) @ x)


def moments(windows: Tensor) -> Tensor:
    """Map (..., channels, times) to second moments X Xᵀ / times (..., channels, channels), float64."""
    x = windows.double()
    return x @ x.mT / x.shape[-1]


def shrunk(second: Tensor) -> Tensor:
    """Return second moments (..., channels, channels) drawn towards a multiple of the identity. Linear, so that the
    mean of shrunk moments is the shrunk mean."""
    average = second.diagonal(dim1=-2, dim2=-1).mean(-1)
    identity = torch.eye(second.shape[-1], dtype=second.dtype, device=second.device)
    return (1 - SHRINKAGE) * second + SHRINKAGE * average[..., None, None] * identity


def covariance(windows: Tensor) -> Tensor:
    """Map (..., channels, times) to shrunk second moments (..., channels, channels), float64."""
    return shrunk(moments(windows))


def inverse_root(R: Tensor) -> Tensor:
    """Return the symmetric R^{-1/2} of matrices (..., channels, channels), float64; of 0, the identity."""
    values, vectors = torch.linalg.eigh(R)
    largest = values[..., -1:]
    values = torch.where(largest > 0, torch.maximum(values, FLOOR * largest), 1.0)
    root: Tensor = (vectors * values.rsqrt()[..., None, :]) @ vectors.mT
    return root
