"""Online centering: estimation of a new subject's offset in logits from unlabeled windows.

A linear model whose training subjects were centered (`center="online"`) is linear in the window, so centering a new
subject subtracts an offset δ from its logits. δ is 0 before the first window. Let u be the logits of a window minus the
logits at the center of the training subjects, and s the sum of u over n windows:

    δ = r (s − (1 − r) Σ_c n_c μ_c) / (m + r n)

m is the weight of the prior in windows. n_c windows are predicted as class c, in which u has the mean μ_c over training
subjects, so Σ_c n_c μ_c is the sum expected without an offset. With this term, windows of a single class are compared
with the mean of that class, not with the mean of all classes. The term is not needed if all classes occur, and it is
wrong if a large offset makes predictions wrong. Therefore r measures how many classes occur, by the variance of u: r is
0 for the variance within one class and 1 for the variance within training subjects. An offset does not change r.

Windows much further from the center than every training window are predicted but do not change δ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PRIOR_WINDOWS = 8.0  # m
MAX_DISTANCE = 2.0  # windows beyond this multiple of the largest distance in training do not change δ
TINY = 1e-12

Floats = NDArray[np.float64]
CenteringState = dict[str, Floats]  # sums over the windows of one subject, or of several subjects on leading axes


class Centering(NamedTuple):
    """Statistics of the logits of P members with C classes, after subtraction of the mean over classes."""

    reference: Tensor  # (P, C): logits at the center of the training subjects
    classes: Tensor  # (P, C, C): mean of u in windows of each class, with equal weights of subjects
    within: Tensor  # (P,): mean squared distance of u from the subject's mean in the class
    between: Tensor  # (P,): mean squared distance of means in a class from the subject's mean over classes
    farthest: Tensor  # (P,): largest |u| of a training window


def fit_centering(logits: Tensor, reference: Tensor, y: Tensor, subjects: Tensor) -> Centering:
    """Return statistics of one member from logits (n, C), y and subjects (n,). reference: (C,) logits at the center."""
    reference = _subtract_mean(reference.double())
    u = _subtract_mean(logits.double()) - reference
    n_classes = u.shape[1]
    unique_subjects, subject = subjects.unique(return_inverse=True)  # type: ignore[no-untyped-call]  # torch's
    cell = subject * n_classes + y  # a cell is the windows of one subject and class
    size = len(unique_subjects) * n_classes
    count = torch.bincount(cell, minlength=size).double()
    means = u.new_zeros(size, n_classes).index_add_(0, cell, u) / count.clamp(min=1)[:, None]
    within = u.new_zeros(size).index_add_(0, cell, (u - means[cell]).square().sum(1)) / count.clamp(min=1)
    has_windows = (count > 0).double().view(len(unique_subjects), n_classes)
    means = means.view(len(unique_subjects), n_classes, n_classes)
    subject_means = (means * has_windows[..., None]).sum(1) / has_windows.sum(1)[:, None]
    between = (means - subject_means[:, None]).square().sum(-1)
    class_means = (means * has_windows[..., None]).sum(0) / has_windows.sum(0).clamp(min=1)[:, None]
    scatter = [(part.view_as(has_windows) * has_windows).sum() / has_windows.sum() for part in (within, between)]
    tensors = (reference, class_means, *scatter, u.norm(dim=1).amax())
    return Centering(*(tensor[None] for tensor in tensors))


def _subtract_mean(logits: Tensor) -> Tensor:
    return logits - logits.mean(-1, keepdim=True)


def stack_centering(members: list[Centering]) -> Centering:
    """Stack the statistics of members."""
    return Centering(*map(torch.cat, zip(*members, strict=True)))


class OnlineCentering:
    """Estimator of the offset of a subject in the logits of P members. Callers store the state of each subject."""

    def __init__(self, centering: Centering) -> None:
        self.reference, self.classes, self.within, self.between, farthest = (
            np.asarray(tensor.numpy(), dtype=np.float64) for tensor in centering
        )
        self.limit = MAX_DISTANCE * farthest

    def initial_state(self, *leading: int) -> CenteringState:
        """Return the state of a new subject, or of several new subjects on leading axes."""
        members, n_classes = self.reference.shape
        return {
            "total": np.zeros((*leading, members, n_classes)),
            "squares": np.zeros((*leading, members)),
            "counts": np.zeros((*leading, n_classes)),
        }

    def relative_logits(self, logits: Floats) -> Floats:
        """Return u of logits (..., P, C)."""
        return np.asarray(logits - logits.mean(-1, keepdims=True) - self.reference)

    def offset(self, state: CenteringState) -> Floats:
        """Return δ (..., P, C), to be subtracted from the logits."""
        total, counts = state["total"], state["counts"]
        n = counts.sum(-1)[..., None]  # (..., 1)
        count = np.maximum(n, TINY)
        variance = state["squares"] / count - np.square(total / count[..., None]).sum(-1)  # (..., P)
        r = np.clip((variance - self.within) / np.maximum(self.between, TINY), 0.0, 1.0)
        expected = np.einsum("...c,pcd->...pd", counts, self.classes)
        deviation = total - (1 - r)[..., None] * expected
        return np.asarray((r / (PRIOR_WINDOWS + r * n))[..., None] * deviation)

    def update(self, state: CenteringState, u: Floats, p: Floats) -> CenteringState:
        """Return the state after one more window with u (..., P, C) and class probabilities p (..., C)."""
        square, weight = self._compute_squares(u)
        return {
            "total": state["total"] + weight[..., None, None] * u,
            "squares": state["squares"] + weight[..., None] * square,
            "counts": state["counts"] + weight[..., None] * p,
        }

    def transductive_offset(self, u: Floats, p: Floats) -> Floats:
        """Return δ (P, C) from u (n, P, C) and p (n, C) of all windows of a subject."""
        square, weight = self._compute_squares(u)
        windows = {"total": u, "squares": square, "counts": p}
        return self.offset({name: np.tensordot(weight, values, 1) for name, values in windows.items()})

    def _compute_squares(self, u: Floats) -> tuple[Floats, Floats]:
        """Return |u|² (..., P) and weights (...): 0 if the window is too far from the center in most members."""
        square = np.square(u).sum(-1)
        return square, (2 * (square > self.limit**2).sum(-1) <= len(self.limit)).astype(np.float64)
