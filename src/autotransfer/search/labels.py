"""Labels of held-out people: which windows are labeled, what a classifier of the labels alone gives, and how much
labels count in a calibrated model.

Windows of a group (a column `group`: a run, a trial, a repetition) overlap or follow each other, and the label of one
tells much about the next. So a group is either labeled or scored, never both.

A window has several representations (band power, tangent vectors, …), each with its linear discriminant. For a
classifier of one person's labels alone, cross-validation within the labels chooses the representation.

A model of how people differ (training/effects.py) is fitted on few people, and may rely too much on a label. The logits
of a calibrated model are therefore

    sharpness · (log p + share · correction)

with the share and the sharpness of the lowest Brier score on other people's windows. That score is bounded: one person
whose labels mislead cannot outvote everybody else. A share of 0 leaves the model as it was.
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
from .held_out import person_score

Rows = NDArray[np.int64]
GROUP = "group"  # the column
SHRINKAGE = 0.5
FOLDS = 5  # of the labeled windows, at most
SHARES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4)
SHARPNESS = (0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1.0, 1.4)


def groups_of(recordings: Recordings, rows: Rows) -> Rows:
    """Return the number of each window's group (n,), within its session, for windows of one person. A window without a
    group is a group by itself."""
    column = recordings.columns.get(GROUP)
    alone = np.arange(len(rows))
    if column is None or column.continuous:
        return alone
    group = np.asarray(column.values)[rows]
    session = np.zeros_like(alone) if recordings.session is None else recordings.session.numpy()[rows]
    apart = np.where(group < 0, alone, -1)
    return np.unique(np.stack([session, group, apart], 1), axis=0, return_inverse=True)[1].reshape(-1)


def labeled_and_scored(y: Rows, groups: Rows, labels: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which windows (n,) are labeled, the first `labels` of each class, and which are scored, all in groups
    without a label. y, groups: (n,) of one person in the order of recording."""
    known = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        known[np.flatnonzero(y == label)[:labels]] = True
    return known, ~np.isin(groups, groups[known])


def window_score(metric: Metric, y: Rows, log_p: NDArray[np.floating]) -> float:
    """Score log-probabilities (n, C), up to a constant for each window, of windows of one person."""
    return person_score(metric, y, softmax(np.asarray(log_p, dtype=np.float64)))


def personal_log_probs(
    forms: Sequence[Tensor], y: Rows, groups: Rows, known: NDArray[np.bool_], n_classes: int
) -> Tensor:
    """Return log-probabilities (n, C) of all windows of a person, by the representation that predicts their labels
    best.

    With a single label of a class nothing can be left out to compare representations, and all of them are averaged.

    forms: (n, D), where D differs between representations; y, groups: (n,), read where known (n,) is true.
    """
    labels = torch.from_numpy(y[known])
    splits = splits_of(y[known], groups[known]) if len(forms) > 1 else []
    if splits:
        forms = [max(forms, key=lambda z: _validated(z[known], labels, splits, n_classes))]
    return torch.stack([discriminant(z[known], labels, z, n_classes) for z in forms]).mean(0)


def discriminant(z: Tensor, y: Tensor, others: Tensor, n_classes: int) -> Tensor:
    """Return log-probabilities (m, C) of latents `others` (m, D) by a linear discriminant of latents (n, D) with
    classes (n,)."""
    weight, bias = ClassMoments(z, y, n_classes).solve(SHRINKAGE)
    return (others @ weight.T + bias).log_softmax(-1)


def splits_of(y: Rows, groups: Rows) -> list[tuple[Rows, Rows]]:
    """Return places of labeled windows to fit on, with every class, and to validate on. Whole groups are left out if
    every class has two of them, and single windows otherwise; there are no splits if a class has one window."""
    from sklearn.model_selection import StratifiedGroupKFold

    classes = np.unique(y)
    by_group = [len(np.unique(groups[y == label])) for label in classes]
    units = groups if min(by_group) > 1 else np.arange(len(y))
    folds = min(FOLDS, *(len(np.unique(units[y == label])) for label in classes))
    if folds < 2 or len(classes) < 2:
        return []
    splits = StratifiedGroupKFold(folds).split(y, y, units)
    return [(fit, left) for fit, left in splits if len(left) and len(np.unique(y[fit])) == len(classes)]


def _validated(z: Tensor, y: Tensor, splits: Sequence[tuple[Rows, Rows]], n_classes: int) -> tuple[float, float]:
    """Return the balanced accuracy of windows that were left out, and their mean log-probability, which decides between
    ties."""
    truth = torch.cat([y[left] for _, left in splits])
    log_p = torch.cat([discriminant(z[fit], y[fit], z[left], n_classes) for fit, left in splits])
    score = balanced_accuracy_of(log_p.argmax(1).numpy(), truth.numpy(), n_classes)
    return score, float(log_p.gather(1, truth[:, None]).mean())


class TrustTrial(NamedTuple):
    """Losses and scores of one person with a number of labels."""

    loss: NDArray[np.float64]  # (shares, sharpnesses): Brier score of the other windows
    score: NDArray[np.float64]  # (shares,): score on them


def try_all(log_p: Tensor, correction: Tensor, y: Tensor, metric: Metric = METRICS[BALANCED_ACCURACY]) -> TrustTrial:
    """Score every share of a correction, and every sharpness. log_p (n, C): of the model; correction (n, C): what
    labels add to it; y (n,): the classes."""
    corrected = log_p + torch.tensor(SHARES, dtype=log_p.dtype)[:, None, None] * correction.to(log_p)  # (S, n, C)
    sharp = torch.tensor(SHARPNESS, dtype=log_p.dtype)[:, None, None, None]
    p = (sharp * corrected).softmax(-1)  # (T, S, n, C)
    loss = (1 + p.square().sum(-1) - 2 * p[..., torch.arange(len(y)), y]).mean(-1)  # (T, S)
    score = [window_score(metric, y.numpy(), logits.numpy()) for logits in corrected]
    return TrustTrial(loss.T.double().numpy(), np.array(score))


def best_trust(people: Sequence[TrustTrial]) -> tuple[int, int]:
    """Return the indices of the share and the sharpness with the lowest loss over these people; of 1 and 1 without
    people."""
    if not people:
        return SHARES.index(1.0), SHARPNESS.index(1.0)
    loss = np.mean([tried.loss for tried in people], axis=0)
    share, sharpness = np.unravel_index(int(loss.argmin()), loss.shape)
    return int(share), int(sharpness)
