"""Losses and scores of the predictions of each member, computed on the device."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..tasks.base import RowLoss


def class_weights(counts: Tensor) -> Tensor:
    """Return class weights ∝ 1/N_k that sum to 1, 0 for a class without windows: counts (..., C) -> (..., C)."""
    inverse = torch.where(counts > 0, 1.0 / counts.clamp(min=1), 0.0)
    return inverse / inverse.sum(-1, keepdim=True)


def mean_loss(row_loss: RowLoss, logits: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Return Σ loss / Σ weight over windows: logits (P, B, C), y (P, B), weight (P, C) -> (P,)."""
    loss, w = row_loss(logits, y, weight)
    return loss.sum(-1) / w.sum(-1).clamp(min=torch.finfo(w.dtype).tiny)


def confusion_counts(predicted: Tensor, y: Tensor, mask: Tensor, n_classes: int) -> Tensor:
    """Return confusion matrices (P, C, C), true × predicted, of predictions (P, B) where the mask (P, B) is True."""
    cell = y * n_classes + predicted
    counts = torch.zeros(*y.shape[:-1], n_classes * n_classes, dtype=torch.float64, device=y.device)
    counts.scatter_add_(-1, cell, mask.to(counts.dtype))
    return counts.view(*y.shape[:-1], n_classes, n_classes)


def balanced_accuracy_of(predicted: NDArray[np.int64], y: NDArray[np.int64], n_classes: int) -> float:
    """Return the balanced accuracy of predicted and true classes (N,)."""
    cells = torch.from_numpy(np.bincount(y * n_classes + predicted, minlength=n_classes**2)).double()
    return float(balanced_accuracy(cells.view(n_classes, n_classes)))


def balanced_accuracy(confusion: Tensor) -> Tensor:
    """Return the mean recall over classes that occur, (..., C, C) -> (...); NaN if a single class occurs."""
    rows = confusion.sum(-1)
    recall = confusion.diagonal(dim1=-2, dim2=-1) / rows.clamp(min=1)
    is_present = (rows > 0).to(recall.dtype)
    n_present = is_present.sum(-1)
    return torch.where(n_present == 1, torch.nan, (recall * is_present).sum(-1) / n_present.clamp(min=1))
