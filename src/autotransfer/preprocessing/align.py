"""Euclidean alignment (He & Wu 2020): windows are multiplied by R^{-1/2}, where R is the mean covariance of windows.

    transductive   all windows of the subject
    online         all windows of a training subject; for a new subject a prior and the windows up to the current window

The mean covariance of each subject's aligned windows is the identity, so that subjects differ less in the covariances
of their channels. Covariances are second moments X Xᵀ / times of standardized windows, shrunk towards a multiple of the
identity. No labels are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..errors import UserError
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

# Weight of the identity in every covariance. Without it, R^{-1/2} would amplify noise if windows have fewer independent
# samples than channels.
SHRINKAGE = 0.01
MIN_EIGENVALUE = 1e-10  # ratio to the largest eigenvalue below which an eigenvalue is a rounding error


@dataclass(frozen=True)
class Align(AdaptiveTransform):
    has_cached_moments = True

    def fit(self, windows: TransformedWindows, training: Sequence[Rows]) -> FittedTransform:
        covariances = windows.compute_subject_means("covariances", covariance, len(training))
        roots = inverse_root(covariances).to(windows.like.dtype)
        if self.scope == "transductive":
            return SubjectAlign(inverse_roots=roots)
        return OnlineAlign(covariance=windows.average_training_subjects(covariances, training), inverse_roots=roots)

    @property
    def fitted_class(self) -> type[FittedTransform]:
        return SubjectAlign if self.scope == "transductive" else OnlineAlign


class SubjectAlign(FittedTransform):
    """Alignment by subject: R^{-1/2} of recorded subjects from a table, or R of all windows of one new subject."""

    inverse_roots: Tensor  # (G or 1, S, C, C)

    def forward(self, x: Tensor, subjects: Tensor | None = None) -> Tensor:
        if subjects is None:
            R = covariance(x).mean(1, keepdim=True)
            return inverse_root(R).to(x.dtype) @ x
        return look_up(self.inverse_roots, subjects) @ x

    def graph(self) -> nn.Module:
        raise UserError(
            "the model aligns the windows of each new subject, and exported graphs have no matrix square root; "
            "use the format safetensors with at.load_model, or train without adaptation (--adaptation zero-shot)"
        )


class OnlineAlign(OnlineMixin, SubjectAlign):
    statistics = ("covariance",)
    covariance: Tensor  # (G, C, C) float64: the prior

    def start_subject(self) -> RunningTransform:
        return RunningAlign(self.covariance)


class RunningAlign(RunningSums):
    """Alignment of window n with the prior and windows 1 to n: R = (m·R₀ + Σ covariances) / (m + n)."""

    def feed(self, x: Tensor) -> Tensor:
        total = self.total[:, None] + covariance(x).cumsum(1)
        count = self.store_sums(total)[:, None, None]
        R = (PRIOR_WINDOWS * self.prior[:, None] + total) / (PRIOR_WINDOWS + count)
        return inverse_root(R).to(x.dtype) @ x


def covariance(windows: Tensor) -> Tensor:
    """Return shrunk second moments X Xᵀ / times (..., C, C), float64, of windows (..., C, T)."""
    x = windows.double()
    moments = x @ x.mT / x.shape[-1]
    average = moments.diagonal(dim1=-2, dim2=-1).mean(-1)
    identity = torch.eye(moments.shape[-1], dtype=moments.dtype, device=moments.device)
    return (1 - SHRINKAGE) * moments + SHRINKAGE * average[..., None, None] * identity


def inverse_root(R: Tensor) -> Tensor:
    """Return the symmetric R^{-1/2} of matrices (..., C, C), float64; the identity for a zero matrix."""
    values, vectors = torch.linalg.eigh(R)
    largest = values[..., -1:]
    values = torch.where(largest > 0, torch.maximum(values, MIN_EIGENVALUE * largest), 1.0)
    root: Tensor = (vectors * values.rsqrt()[..., None, :]) @ vectors.mT
    return root
