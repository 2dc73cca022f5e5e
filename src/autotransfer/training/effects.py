"""Random effects of subjects in a model's latents, and their posterior given windows of one subject.

In the directions of the latents in which the means of subjects and classes differ most, a window of subject p and class
c is modeled as

    x = μ_c + δ_p + ε_pc + noise        δ_p ~ N(0, b)    ε_pc ~ N(0, e)    noise ~ N(0, 1)

independently in every direction: class mean, shift of the subject, interaction of subject and class, and noise.
μ, b and e are fitted to the training subjects. For a new subject δ and ε have mean 0 and variances b and e. Labeled
windows give the posterior of δ and ε. Windows without labels give the posterior of δ alone, and count for every class
with its predicted probability. Classes may be unbalanced, because a window is compared with the mean of its class.

The posterior has the same form as the prior. Their log-likelihood ratio is linear in the latents: a correction of the
logits, which is 0 without windows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .closed_form import ClassMoments

DIRECTIONS = 64  # largest number of directions
DESIGN_EFFECT = 3.0  # windows that count as one, because neighbors in time are correlated
PREDICTED_DESIGN_EFFECT = 10.0  # larger, because predicted classes may be wrong
POOLED = 0.3  # shrinkage of each direction's variance towards the mean over directions
LEAST = 1e-3  # smallest variance between subjects, relative to 1 within a cell (subject and class)
RIDGE = 0.02  # smallest shrinkage of the covariance within cells


class WindowSums(NamedTuple):
    """Sums of one subject's windows, each counting for every class with a weight."""

    sums: Tensor  # (P, C, R): weighted sums of projected latents
    counts: Tensor  # (C,): sums of weights


class Effects(NamedTuple):
    """Random effects of P members with C classes, latents of dimension D and R directions."""

    projection: Tensor  # (P, D, R): from latents to directions with variance 1 within cells
    means: Tensor  # (P, C, R): μ
    shift: Tensor  # (P, R): b
    interaction: Tensor  # (P, R): e

    @property
    def no_windows(self) -> WindowSums:
        """Return the sums of no windows."""
        return WindowSums(torch.zeros_like(self.means), self.means.new_zeros(self.means.shape[1]))

    def pad(self, directions: int) -> Effects:
        """Return the effects with `directions` directions. Projected latents are 0 in the added ones."""
        more = (0, directions - self.shift.shape[-1])
        pairs = zip(self, (0.0, 0.0, 1.0, 1.0), strict=True)
        return Effects(*(torch.nn.functional.pad(tensor, more, value=value) for tensor, value in pairs))

    def project(self, z: Tensor) -> Tensor:
        """Project latents (P, n, D) to (P, n, R)."""
        return z.to(self.projection) @ self.projection

    def sum_windows(self, x: Tensor, weight: Tensor) -> WindowSums:
        """Return the sums of projected latents x (P, n, R) with weights (n, C) for the classes."""
        return WindowSums(weight.T.to(x) @ x, weight.sum(0).to(x))

    @property
    def logit_weights(self) -> Tensor:
        """Return weights (P, R, C) of the logits for projected latents."""
        return (self.means / (1 + self.shift + self.interaction)[..., None, :]).transpose(-1, -2)

    def posterior(self, sums: WindowSums, *, classes: bool = True, design_effect: float = DESIGN_EFFECT) -> Effects:
        """Return the posterior for one subject.

        classes: update the effects on each class, not the shift alone; design_effect: windows that count as one
        """
        n = (sums.counts / design_effect)[..., None, :, None]  # (..., 1, C, 1)
        e, b = self.interaction[..., None, :], self.shift  # (P, 1, R), (P, R)
        precise = 1 / (1 + n * e)
        residual = (sums.sums / design_effect - n * self.means) * precise  # (mean − μ_c) / (e + 1/n)
        shift_variance = 1 / (1 / b + (n * precise).sum(-2))  # variance of the shift
        shift = (residual.sum(-2) * shift_variance)[..., None, :]
        if not classes:
            return self._replace(means=self.means + shift, shift=shift_variance)
        known = n * e * precise
        means = self.means + shift + e * residual - known * shift
        remaining = (1 - known).mean(-2)
        return self._replace(
            means=means, shift=(1 - known).square().mean(-2) * shift_variance, interaction=self.interaction * remaining
        )

    def correction(self, posterior: Effects) -> tuple[Tensor, Tensor]:
        """Return the correction of logits for projected latents: weights (..., P, R, C) and bias (..., P, C)."""
        after, before = posterior.logit_weights, self.logit_weights
        bias = -0.5 * ((after.mT * posterior.means).sum(-1) - (before.mT * self.means).sum(-1))
        return after - before, bias


def fit_effects(latents: Tensor, y: Tensor, subjects: Tensor, n_classes: int) -> Effects:
    """Fit one member (P = 1) to latents (n, D), classes (n,) and at least two subjects (n,), in float64."""
    latents = latents.double()
    _, who = subjects.unique(return_inverse=True)  # type: ignore[no-untyped-call]  # torch's
    n_subjects = int(who.max()) + 1
    cells = ClassMoments(latents, who * n_classes + y, n_subjects * n_classes)
    count = torch.bincount(who * n_classes + y, minlength=n_subjects * n_classes).view(n_subjects, n_classes).double()
    has_windows = (count > 0).double()[..., None]
    means = cells.means.view(n_subjects, n_classes, -1)
    class_means = (means * has_windows).sum(0) / has_windows.sum(0).clamp(min=1)  # (C, D)
    class_is_present = has_windows.sum(0) > 0
    center = (class_means * class_is_present).sum(0) / class_is_present.sum()
    class_means = torch.where(class_is_present, class_means, center)
    root = torch.linalg.cholesky(cells.covariance(max(cells.estimate_shrinkage(), RIDGE)))
    whitened = torch.linalg.solve_triangular(root, ((means - center) * has_windows).flatten(0, 1).T, upper=False).T
    _, spread, axes = torch.linalg.svd(whitened, full_matrices=False)
    kept = min(DIRECTIONS, len(spread))
    projection = torch.linalg.solve_triangular(root.T, axes[:kept].T, upper=True)  # (D, R)
    residuals = ((means - class_means) @ projection) * has_windows
    subject_shifts = residuals.sum(1) / has_windows.sum(1)  # (S, R)
    freedom = (has_windows.sum(1) - 1).sum().clamp(min=1)
    noise = (1 / count[count > 0]).mean()
    within = ((residuals - subject_shifts[:, None]) * has_windows).square().sum((0, 1)) / freedom
    interaction = (within - noise).clamp(min=LEAST)
    n_seen = has_windows.sum(1).mean()  # classes per subject
    shift = (subject_shifts.square().sum(0) / max(n_subjects - 1, 1) - within / n_seen).clamp(min=LEAST)
    member = Effects(projection, class_means @ projection, _pooled(shift), _pooled(interaction))
    return Effects(*(tensor[None].float() for tensor in member))


def _pooled(variance: Tensor) -> Tensor:
    """Return variances (R,) shrunk towards their mean."""
    return (1 - POOLED) * variance + POOLED * variance.mean()


def stack_effects(members: list[Effects]) -> Effects:
    """Stack the effects of members, which may have different numbers of directions."""
    most = max(member.shift.shape[-1] for member in members)
    return Effects(*map(torch.cat, zip(*(member.pad(most) for member in members), strict=True)))
