"""Test calibration with a few labels on held-out subjects, and select the trust in labels: a share and a sharpness.

Windows of a group (a column `group`: a run, a trial, a repetition) overlap or follow each other, so that labels of
neighboring windows are similar. The windows of a group are therefore either labeled or scored, never both.

The logits of a calibrated model are sharpness · (log p + share · correction). The correction is computed from labels by
subject effects (training/effects.py), which are fitted on few subjects and may be too large. Share and sharpness have
the lowest Brier score on windows of other subjects. This score is bounded, so that no single subject dominates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..models.online import softmax
from ..recordings import Recordings
from ..recordings.cutting import GROUP
from ..tasks import Metric
from ..tasks.classification import BALANCED_ACCURACY, METRICS
from ..training.closed_form import ClassMoments
from ..training.metrics import balanced_accuracy_of
from .held_out import score_subject

Rows = NDArray[np.int64]
SHRINKAGE = 0.5  # shrinkage of the covariance of personal classifiers
FOLDS = 5  # largest number of folds of labeled windows
SHARES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4)  # factors of the correction
SHARPNESS = (0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1.0, 1.4)  # factors of the corrected log-probabilities


def window_groups(recordings: Recordings, rows: Rows) -> Rows:
    """Return group indices (n,) of the windows of one subject; a window without a group forms a group."""
    column = recordings.columns.get(GROUP)
    indices = np.arange(len(rows))
    if column is None or column.is_continuous:
        return indices
    group = np.asarray(column.values)[rows]
    session = np.zeros_like(indices) if recordings.session is None else recordings.session.numpy()[rows]
    ungrouped = np.where(group < 0, indices, -1)
    return np.unique(np.stack([session, group, ungrouped], 1), axis=0, return_inverse=True)[1].reshape(-1)


def split_windows(y: Rows, groups: Rows, n_labels: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return masks (n,) of labeled windows, the first `n_labels` of each class, and of windows in unlabeled groups."""
    labeled = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        labeled[np.flatnonzero(y == label)[:n_labels]] = True
    return labeled, ~np.isin(groups, groups[labeled])


def window_score(metric: Metric, y: Rows, log_p: NDArray[np.floating]) -> float:
    """Return the score of log-probabilities (n, C) of one subject, which need not be normalized."""
    return score_subject(metric, y, softmax(np.asarray(log_p, dtype=np.float64)))


def personal_log_probs(
    features: Sequence[Tensor], y: Rows, groups: Rows, labeled: NDArray[np.bool_], n_classes: int
) -> Tensor:
    """Return log-probabilities (n, C) of a subject's windows by a classifier that is fitted on labeled windows alone.

    features: latents (n, D) by representation. The best representation is used if there are labels to validate on,
    otherwise the mean over representations.
    """
    labels = torch.from_numpy(y[labeled])
    splits = label_splits(y[labeled], groups[labeled]) if len(features) > 1 else []
    if splits:
        features = [max(features, key=lambda z: _cross_validate(z[labeled], labels, splits, n_classes))]
    return torch.stack([predict_by_discriminant(z[labeled], labels, z, n_classes) for z in features]).mean(0)


def predict_by_discriminant(z: Tensor, y: Tensor, new_z: Tensor, n_classes: int) -> Tensor:
    """Return log-probabilities (m, C) of latents new_z (m, D) by a linear discriminant that is fitted on z and y."""
    weight, bias = ClassMoments(z, y, n_classes).solve(SHRINKAGE)
    return (new_z @ weight.T + bias).log_softmax(-1)


def label_splits(y: Rows, groups: Rows) -> list[tuple[Rows, Rows]]:
    """Return training and validation indices of labeled windows by fold; no folds if a class has a single label.

    Folds leave out whole groups if every class has at least two groups, otherwise single windows.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    classes = np.unique(y)
    n_groups = [len(np.unique(groups[y == label])) for label in classes]
    units = groups if min(n_groups) > 1 else np.arange(len(y))
    folds = min(FOLDS, *(len(np.unique(units[y == label])) for label in classes))
    if folds < 2 or len(classes) < 2:
        return []
    splits = StratifiedGroupKFold(folds).split(y, y, units)
    return [(train, test) for train, test in splits if len(test) and len(np.unique(y[train])) == len(classes)]


def _cross_validate(z: Tensor, y: Tensor, splits: Sequence[tuple[Rows, Rows]], n_classes: int) -> tuple[float, float]:
    """Return the balanced accuracy of cross-validation and, to break ties, the mean log-probability of the class."""
    truth = torch.cat([y[test] for _, test in splits])
    log_p = torch.cat([predict_by_discriminant(z[train], y[train], z[test], n_classes) for train, test in splits])
    score = balanced_accuracy_of(log_p.argmax(1).numpy(), truth.numpy(), n_classes)
    return score, float(log_p.gather(1, truth[:, None]).mean())


class TrustScores(NamedTuple):
    """Losses and scores of one subject by trust in labels, for a number of labels."""

    loss: NDArray[np.float64]  # (shares, sharpnesses): Brier score of the scored windows
    score: NDArray[np.float64]  # (shares,)


def score_trust(
    log_p: Tensor, correction: Tensor, y: Tensor, metric: Metric = METRICS[BALANCED_ACCURACY]
) -> TrustScores:
    """Score every share and sharpness with log-probabilities and corrections (n, C) of windows of classes y (n,)."""
    corrected = log_p + torch.tensor(SHARES, dtype=log_p.dtype)[:, None, None] * correction.to(log_p)  # (S, n, C)
    sharpness = torch.tensor(SHARPNESS, dtype=log_p.dtype)[:, None, None, None]
    p = (sharpness * corrected).softmax(-1)  # (T, S, n, C)
    loss = (1 + p.square().sum(-1) - 2 * p[..., torch.arange(len(y)), y]).mean(-1)  # (T, S)
    score = [window_score(metric, y.numpy(), logits.numpy()) for logits in corrected]
    return TrustScores(loss.T.double().numpy(), np.array(score))


def select_trust(subjects: Sequence[TrustScores]) -> tuple[int, int]:
    """Return the indices of the share and the sharpness with the lowest mean loss; without subjects, of the value 1."""
    if not subjects:
        return SHARES.index(1.0), SHARPNESS.index(1.0)
    loss = np.mean([scores.loss for scores in subjects], axis=0)
    share, sharpness = np.unravel_index(int(loss.argmin()), loss.shape)
    return int(share), int(sharpness)
