"""Split windows of held-out subjects by labels, fit personal classifiers, and select how much labels count.

Windows of a group (a column `group`: a run, a trial, a repetition) overlap or follow each other, and the label of one
tells much about the next. A group is therefore either labeled or scored, never both.

Subject effects (training/effects.py) are fitted on few subjects, and may rely too much on a label. The logits of a
calibrated model are therefore sharpness · (log p + share · correction), with the share and the sharpness of the lowest
Brier score on windows of other subjects. That score is bounded, so that one subject cannot outvote all others.
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
from ..tasks import Metric
from ..tasks.classification import BALANCED_ACCURACY, METRICS
from ..training.closed_form import ClassMoments
from ..training.metrics import balanced_accuracy_of
from .held_out import score_subject

Rows = NDArray[np.int64]
GROUP = "group"  # name of the column
SHRINKAGE = 0.5
FOLDS = 5  # of the labeled windows, at most
SHARES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4)
SHARPNESS = (0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1.0, 1.4)


def window_groups(recordings: Recordings, rows: Rows) -> Rows:
    """Return the number of each window's group (n,) for one subject; a window without a group is a group by itself."""
    column = recordings.columns.get(GROUP)
    alone = np.arange(len(rows))
    if column is None or column.is_continuous:
        return alone
    group = np.asarray(column.values)[rows]
    session = np.zeros_like(alone) if recordings.session is None else recordings.session.numpy()[rows]
    ungrouped = np.where(group < 0, alone, -1)
    return np.unique(np.stack([session, group, ungrouped], 1), axis=0, return_inverse=True)[1].reshape(-1)


def split_windows(y: Rows, groups: Rows, labels: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return masks (n,): the first `labels` windows of each class are labeled, groups without a label are scored."""
    labeled = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        labeled[np.flatnonzero(y == label)[:labels]] = True
    return labeled, ~np.isin(groups, groups[labeled])


def window_score(metric: Metric, y: Rows, log_p: NDArray[np.floating]) -> float:
    """Score one subject's log-probabilities (n, C), up to a constant for each window."""
    return score_subject(metric, y, softmax(np.asarray(log_p, dtype=np.float64)))


def personal_log_probs(
    features: Sequence[Tensor], y: Rows, groups: Rows, labeled: NDArray[np.bool_], n_classes: int
) -> Tensor:
    """Return log-probabilities (n, C) of a subject's windows by the representation that predicts their labels best.

    features: (n, D) of each representation, averaged if a class has a single label; y, groups: read where labeled.
    """
    known = torch.from_numpy(y[labeled])
    splits = label_splits(y[labeled], groups[labeled]) if len(features) > 1 else []
    if splits:
        features = [max(features, key=lambda z: _validation_score(z[labeled], known, splits, n_classes))]
    return torch.stack([discriminant(z[labeled], known, z, n_classes) for z in features]).mean(0)


def discriminant(z: Tensor, y: Tensor, others: Tensor, n_classes: int) -> Tensor:
    """Return log-probabilities (m, C) of latents `others` (m, D) by a linear discriminant of (z, y)."""
    weight, bias = ClassMoments(z, y, n_classes).solve(SHRINKAGE)
    return (others @ weight.T + bias).log_softmax(-1)


def label_splits(y: Rows, groups: Rows) -> list[tuple[Rows, Rows]]:
    """Return indices of labeled windows to fit on, with every class, and to validate on; empty for a single label.

    Whole groups are left out if every class has two of them, and single windows otherwise.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    classes = np.unique(y)
    by_group = [len(np.unique(groups[y == label])) for label in classes]
    units = groups if min(by_group) > 1 else np.arange(len(y))
    folds = min(FOLDS, *(len(np.unique(units[y == label])) for label in classes))
    if folds < 2 or len(classes) < 2:
        return []
    splits = StratifiedGroupKFold(folds).split(y, y, units)
    return [(fit, left) for fit, left in splits if len(left) and len(np.unique(y[fit])) == len(classes)]


def _validation_score(z: Tensor, y: Tensor, splits: Sequence[tuple[Rows, Rows]], n_classes: int) -> tuple[float, float]:
    """Return the balanced accuracy of windows that were left out, and their mean log-probability, which breaks ties."""
    truth = torch.cat([y[left] for _, left in splits])
    log_p = torch.cat([discriminant(z[fit], y[fit], z[left], n_classes) for fit, left in splits])
    score = balanced_accuracy_of(log_p.argmax(1).numpy(), truth.numpy(), n_classes)
    return score, float(log_p.gather(1, truth[:, None]).mean())


class TrustScores(NamedTuple):
    """Losses and scores of one subject with a number of labels, by how much these count."""

    loss: NDArray[np.float64]  # (shares, sharpnesses): Brier score of the scored windows
    score: NDArray[np.float64]  # (shares,)


def score_trust(
    log_p: Tensor, correction: Tensor, y: Tensor, metric: Metric = METRICS[BALANCED_ACCURACY]
) -> TrustScores:
    """Score every share and sharpness for log-probabilities and corrections (n, C) of classes y (n,)."""
    corrected = log_p + torch.tensor(SHARES, dtype=log_p.dtype)[:, None, None] * correction.to(log_p)  # (S, n, C)
    sharp = torch.tensor(SHARPNESS, dtype=log_p.dtype)[:, None, None, None]
    p = (sharp * corrected).softmax(-1)  # (T, S, n, C)
    loss = (1 + p.square().sum(-1) - 2 * p[..., torch.arange(len(y)), y]).mean(-1)  # (T, S)
    score = [window_score(metric, y.numpy(), logits.numpy()) for logits in corrected]
    return TrustScores(loss.T.double().numpy(), np.array(score))


def best_trust(subjects: Sequence[TrustScores]) -> tuple[int, int]:
    """Return the indices of the share and the sharpness with the lowest mean loss; of 1 and 1 without subjects."""
    if not subjects:
        return SHARES.index(1.0), SHARPNESS.index(1.0)
    loss = np.mean([of_subject.loss for of_subject in subjects], axis=0)
    share, sharpness = np.unravel_index(int(loss.argmin()), loss.shape)
    return int(share), int(sharpness)
