"""A classifier from one person's labels alone, which calibration is compared with.

A window has several forms (band power, tangent vectors, …), each with its linear discriminant. Cross-validation within
the labels chooses the form for the person: scored windows have no part in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..training.closed_form import Classes
from ..training.metrics import balanced_accuracy_of
from .labelled import Rows

SHRINKAGE = 0.5
FOLDS = 5  # of the labelled windows, at most


def personal_log_probs(
    forms: Sequence[Tensor], y: Rows, groups: Rows, known: NDArray[np.bool_], n_classes: int
) -> Tensor:
    """Log-probabilities (n, C) of all windows of a person, by the form that predicts their labels best.

    With a single label of a class nothing can be left out to compare forms, and all of them are averaged.

    forms: (n, D), where D differs between forms; y, groups: (n,), read where known (n,) is true.
    """
    labels = torch.from_numpy(y[known])
    splits = splits_of(y[known], groups[known]) if len(forms) > 1 else []
    if splits:
        forms = [max(forms, key=lambda z: _validated(z[known], labels, splits, n_classes))]
    return torch.stack([discriminant(z[known], labels, z, n_classes) for z in forms]).mean(0)


def discriminant(z: Tensor, y: Tensor, others: Tensor, n_classes: int) -> Tensor:
    """Log-probabilities (m, C) of other codes (m, D) by a linear discriminant of codes (n, D) with classes (n,)."""
    weight, bias = Classes(z, y, n_classes).solve(SHRINKAGE)
    return (others @ weight.T + bias).log_softmax(-1)


def splits_of(y: Rows, groups: Rows) -> list[tuple[Rows, Rows]]:
    """Places of labelled windows to fit on, with every class, and to validate on. Whole groups are left out where every
    class has two of them, and single windows otherwise; none where a class has one window."""
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
    """Balanced accuracy of windows that were left out; where forms tie in it, their mean log-probability decides."""
    truth = torch.cat([y[left] for _, left in splits])
    log_p = torch.cat([discriminant(z[fit], y[fit], z[left], n_classes) for fit, left in splits])
    score = balanced_accuracy_of(log_p.argmax(1).numpy(), truth.numpy(), n_classes)
    return score, float(log_p.gather(1, truth[:, None]).mean())
