"""Random effects of subjects in a model's latents, and their posterior given windows of one subject.

In the directions of the latents in which the means of subjects and classes differ most, a window of subject p and class
c is modeled as

    x = μ_c + δ_p + ε_pc + noise        δ_p ~ N(0, b)    ε_pc ~ N(0, e)    noise ~ N(0, 1)

independently in every direction, with the mean μ_c of the class, the shift δ_p of the subject and the interaction ε_pc
of subject and class. μ, b and e are fitted to the training subjects. For a new subject δ and ε have mean 0 and
variances b and e. Windows give the posterior of δ and ε; a window without a label counts for every class with its
predicted probability. Classes may be unbalanced, because a window is compared with the mean of its class.

The posterior has the same form as the prior. The log-likelihood ratio of posterior and prior is linear in the latents.
It is added to the logits as a correction, which is 0 without windows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .closed_form import ClassMoments

MAX_DIRECTIONS = 64  # largest number of directions
DESIGN_EFFECT = 3.0  # number of windows that count as one, because neighbors in time are correlated
POOLING = 0.3  # shrinkage of each direction's variance towards the mean over directions
# A cell is the windows of one subject and class. The variance within cells is 1.
MIN_VARIANCE = 1e-3  # smallest variance between subjects
MIN_CELL_SHRINKAGE = 0.02  # smallest shrinkage of the covariance within cells


class WindowSums(NamedTuple):
    """Weighted sums of one subject's windows, with one weight per window and class."""

    sums: Tensor  # (P, C, R): weighted sums of projected latents
    counts: Tensor  # (C,): sums of weights


class Effects(NamedTuple):
    """Random effects of P members with C classes, latents of dimension D and R directions."""

    projection: Tensor  # (P, D, R): from latents to directions with variance 1 within cells
    means: Tensor  # (P, C, R): μ
    shift: Tensor  # (P, R): b
    interaction: Tensor  # (P, R): e

    @property
    def zero_sums(self) -> WindowSums:
        """Return the sums before the first window."""
        return WindowSums(torch.zeros_like(self.means), self.means.new_zeros(self.means.shape[1]))

    def pad(self, n_directions: int) -> Effects:
        """Return the effects with added directions, in which projected latents are 0."""
        width = (0, n_directions - self.shift.shape[-1])
        pairs = zip(self, (0.0, 0.0, 1.0, 1.0), strict=True)
        return Effects(*(torch.nn.functional.pad(tensor, width, value=value) for tensor, value in pairs))

    def project(self, z: Tensor) -> Tensor:
        """Project latents (P, n, D) to (P, n, R)."""
        return z.to(self.projection) @ self.projection

    def sum_windows(self, x: Tensor, weight: Tensor) -> WindowSums:
        """Return weighted sums of projected latents x (P, n, R). weight (n, C): of a window in a class."""
        return WindowSums(weight.T.to(x) @ x, weight.sum(0).to(x))

    @property
    def logit_weights(self) -> Tensor:
        """Return weights (P, R, C) of the logits for projected latents."""
        return (self.means / (1 + self.shift + self.interaction)[..., None, :]).transpose(-1, -2)

    def posterior(self, sums: WindowSums, *, design_effect: float = DESIGN_EFFECT) -> Effects:
        """Return the posterior for one subject. design_effect: number of windows that count as one."""
        n = (sums.counts / design_effect)[..., None, :, None]  # (..., 1, C, 1)
        e, b = self.interaction[..., None, :], self.shift  # (P, 1, R), (P, R)
        damping = 1 / (1 + n * e)
        residual = (sums.sums / design_effect - n * self.means) * damping  # (mean − μ_c) / (e + 1/n)
        shift_variance = 1 / (1 / b + (n * damping).sum(-2))
        shift = (residual.sum(-2) * shift_variance)[..., None, :]
        gain = n * e * damping
        means = self.means + shift + e * residual - gain * shift
        interaction = self.interaction * (1 - gain).mean(-2)
        return self._replace(means=means, shift=(1 - gain).square().mean(-2) * shift_variance, interaction=interaction)

    def correction(self, posterior: Effects) -> tuple[Tensor, Tensor]:
        """Return the correction of logits for projected latents: weights (..., P, R, C) and bias (..., P, C)."""
        weights, prior_weights = posterior.logit_weights, self.logit_weights
        bias = -0.5 * ((weights.mT * posterior.means).sum(-1) - (prior_weights.mT * self.means).sum(-1))
        return weights - prior_weights, bias


def fit_effects(latents: Tensor, y: Tensor, subjects: Tensor, n_classes: int) -> Effects:
    """Fit one member (P = 1) to latents (n, D), classes (n,) and at least two subjects (n,), in float64."""
    latents = latents.double()
    _, subject = subjects.unique(return_inverse=True)  # type: ignore[no-untyped-call]  # torch's
    n_subjects = int(subject.max()) + 1
    cell = subject * n_classes + y
    cells = ClassMoments(latents, cell, n_subjects * n_classes)
    count = torch.bincount(cell, minlength=n_subjects * n_classes).view(n_subjects, n_classes).double()
    has_windows = (count > 0).double()[..., None]
    means = cells.means.view(n_subjects, n_classes, -1)
    class_means = (means * has_windows).sum(0) / has_windows.sum(0).clamp(min=1)  # (C, D)
    is_present = has_windows.sum(0) > 0  # (C, 1)
    center = (class_means * is_present).sum(0) / is_present.sum()
    class_means = torch.where(is_present, class_means, center)
    root = torch.linalg.cholesky(cells.covariance(max(cells.estimate_shrinkage(), MIN_CELL_SHRINKAGE)))
    whitened = torch.linalg.solve_triangular(root, ((means - center) * has_windows).flatten(0, 1).T, upper=False).T
    *_, axes = torch.linalg.svd(whitened, full_matrices=False)
    projection = torch.linalg.solve_triangular(root.T, axes[:MAX_DIRECTIONS].T, upper=True)  # (D, R)
    residuals = ((means - class_means) @ projection) * has_windows
    subject_shifts = residuals.sum(1) / has_windows.sum(1)  # (S, R)
    degrees_of_freedom = (has_windows.sum(1) - 1).sum().clamp(min=1)
    noise = (1 / count[count > 0]).mean()
    within = ((residuals - subject_shifts[:, None]) * has_windows).square().sum((0, 1)) / degrees_of_freedom
    interaction = (within - noise).clamp(min=MIN_VARIANCE)
    n_seen = has_windows.sum(1).mean()  # classes per subject
    shift = (subject_shifts.square().sum(0) / max(n_subjects - 1, 1) - within / n_seen).clamp(min=MIN_VARIANCE)
    member = Effects(projection, class_means @ projection, _pool(shift), _pool(interaction))
    return Effects(*(tensor[None].float() for tensor in member))


def _pool(variance: Tensor) -> Tensor:
    """Return variances (R,) shrunk towards their mean."""
    return (1 - POOLING) * variance + POOLING * variance.mean()


def stack_effects(members: list[Effects]) -> Effects:
    """Stack the effects of members, which may have different numbers of directions."""
    n_directions = max(member.shift.shape[-1] for member in members)
    return Effects(*map(torch.cat, zip(*(member.pad(n_directions) for member in members), strict=True)))
