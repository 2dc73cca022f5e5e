"""What a person's labels alone would give: a classifier of their own, beside which calibration is seen.

A window has several forms (band power, tangent vectors, …), each with its linear discriminant. Which of them suits the
person is found by cross-validation inside their labels: scored windows have no part in it.
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

    With one label of a class nothing can be left out, so nothing tells forms apart, and all of them are averaged.

    forms: (n, D) each, with a D of its own; y, groups: (n,), read where known (n,) says so.
    """
    labels = torch.from_numpy(y[known])
    splits = splits_of(y[known], groups[known]) if len(forms) > 1 else []
    if splits:
        forms = [max(forms, key=lambda z: _validated(z[known], labels, splits, n_classes))]
    return torch.stack([discriminant(z[known], labels, z, n_classes) for z in forms]).mean(0)


def discriminant(z: Tensor, y: Tensor, others: Tensor, n_classes: int) -> Tensor:
    """What a linear discriminant of codes (n, D) with classes (n,) says of other codes (m, D): log-probabilities
    (m, C)."""
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
    left = torch.from_numpy(np.concatenate([own for _, own in splits]))
    log_p = torch.cat([discriminant(z[fit], y[fit], z[own], n_classes) for fit, own in splits])
    right = balanced_accuracy_of(log_p.argmax(1).numpy(), y[left].numpy(), n_classes)
    return right, float(log_p.gather(1, y[left][:, None]).mean())
