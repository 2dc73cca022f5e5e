"""Ridge regression in closed form for several strengths at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..folds import Fold
from ..preprocessing import FittedPreprocessing
from ..recordings import Recordings
from ..recordings.chunks import row_chunks
from ..settings import Setting
from .representation import find_representation

Floats = NDArray[np.float64]
STRENGTHS = tuple(10.0**power for power in range(-4, 4))  # strengths of the penalty on weights
TINY = 1e-12  # relative standard deviation below which a feature is constant up to rounding


class Ridge(NamedTuple):
    """Linear models of latents x (D,) for S strengths: target = weight · x + bias."""

    weight: Floats  # (S, D)
    bias: Floats  # (S,)

    def predict(self, latents: NDArray[np.floating]) -> Floats:
        """Predict targets (S, n) from latents (n, D)."""
        return np.asarray(self.weight @ latents.T.astype(np.float64) + self.bias[:, None])


def ridge(latents: NDArray[np.floating], target: Floats, strengths: Sequence[float]) -> Ridge:
    """Fit ridge regressions of targets (n,) on latents (n, D) with each strength.

    A fit minimizes the mean of (target − prediction)² + strength · |w|² over rows, where w are the weights of
    standardized latents. The intercept is not penalized. Constant features have weight 0. All strengths share one
    eigendecomposition of the smaller of ZᵀZ and ZZᵀ, where Z are the standardized latents.
    """
    latents = np.asarray(latents, dtype=np.float64)
    shift = latents.mean(0)
    rows = latents - shift
    deviation = np.sqrt(np.square(rows).mean(0))
    is_varying = deviation > TINY * np.abs(latents).max(0, initial=0.0)
    scale = np.where(is_varying, 1 / np.where(is_varying, deviation, 1.0), 0.0)
    rows *= scale
    n, mean = len(rows), float(target.mean())
    penalty = n * np.asarray(strengths, dtype=np.float64)[:, None]
    if n < rows.shape[1]:
        values, vectors = np.linalg.eigh(rows @ rows.T)
        weight = ((vectors.T @ (target - mean)) / (np.maximum(values, 0.0) + penalty)) @ vectors.T @ rows
    else:
        values, vectors = np.linalg.eigh(rows.T @ rows)
        weight = ((vectors.T @ (rows.T @ (target - mean))) / (np.maximum(values, 0.0) + penalty)) @ vectors.T
    weight = weight * scale
    return Ridge(weight, mean - weight @ shift)


class RidgeFit(NamedTuple):
    """Preprocessing and ridge regressions fitted to training rows."""

    preprocessing: FittedPreprocessing
    head: Ridge


def predict_held_out(recordings: Recordings, setting: Setting, fold: Fold) -> Floats:
    """Return predictions (S, n) for the test rows of a fold with each strength."""
    fitted, head = fit_ridge(recordings, setting, fold.train, STRENGTHS)
    (start, windows), rows = _share_windows(recordings, setting), torch.from_numpy(fold.test)
    return head.predict(_compute_new_latents(fitted, windows[rows], recordings.subject[rows], start).numpy())


def fit_ridge(
    recordings: Recordings, setting: Setting, train: NDArray[np.int64], strengths: Sequence[float]
) -> RidgeFit:
    """Fit preprocessing and ridge regressions with each strength to training rows (n,)."""
    precomputed = _share_windows(recordings, setting)
    fitted = setting.preprocessing.fit(
        recordings.X, recordings.subject, [train], recordings.derived, precomputed=precomputed
    )
    latents = _compute_latents(fitted, *precomputed, recordings.subject, train)
    return RidgeFit(fitted, ridge(latents, recordings.truth.numpy()[train], strengths))


def _share_windows(recordings: Recordings, setting: Setting) -> tuple[int, Tensor]:
    """Return the number of leading transforms that all subjects and folds share, and all windows after them."""
    return find_representation(recordings, setting.preprocessing) or (0, recordings.X)


@torch.no_grad()
def _compute_latents(
    fitted: FittedPreprocessing, start: int, windows: Tensor, subject: Tensor, rows: NDArray[np.int64]
) -> Floats:
    """Return latents (n, D) of training windows (n,) to which the first `start` transforms were applied."""
    parts = []
    for chunk in row_chunks(len(rows), windows[0].numel()):
        index = torch.from_numpy(rows[chunk])
        prepared = fitted(windows[index][None].to(torch.float32), subject[index][None], start=start)
        parts.append(prepared[0].flatten(1).double())
    return torch.cat(parts).numpy()


def _compute_new_latents(fitted: FittedPreprocessing, X: Tensor, subject: Tensor, start: int) -> Tensor:
    """Return latents (N, D), float64, of windows (N, channels, times) of new subjects (N,)."""
    X = X.to(torch.float32)
    if fitted.spec.adaptation == "none":
        return fitted.start_subject(start).feed(X)[0].flatten(1).double()
    groups = [(subject == label).nonzero()[:, 0] for label in subject.unique()]  # type: ignore[no-untyped-call]  # torch's
    grouped = torch.cat([fitted.start_subject(start).feed(X[rows])[0].flatten(1) for rows in groups])
    latents = torch.empty_like(grouped, dtype=torch.float64)
    latents[torch.cat(groups)] = grouped.double()
    return latents
