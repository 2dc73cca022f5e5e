"""How people differ in a model's latents, and the posterior for one person, given windows of theirs.

In a few directions of the code, those in which the means of people and classes lie furthest apart, a window of person
p and class c is modeled as

    x = μ_c + δ_p + ε_pc + noise        δ_p ~ N(0, b)    ε_pc ~ N(0, e)    noise ~ N(0, 1)

in every direction independently: the mean of the class, a shift of the person, an effect of the person on this class,
and noise. μ, b and e come from the training people. A new person begins with δ = ε = 0, with variances b and e, and
windows of theirs give the posterior: with labels of δ and ε, without labels of δ alone, where each window counts for
every class with its predicted probability. ClassMoments need not be balanced: a window is compared with the mean of its
class, not of all windows. The more windows, the less the prior counts.

The posterior is again a model of this form. Its log-likelihood ratio to the prior is linear in the code: a correction
of the logits, 0 without windows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .closed_form import ClassMoments

DIRECTIONS = 64  # of the code that are kept
DESIGN_EFFECT = 3.0  # windows that count as one: neighbors in time resemble each other
PREDICTED_DESIGN_EFFECT = 10.0  # the same where classes are predicted, and may be wrong
POOLED = 0.3  # share of the mean over directions in each direction's variance: people are few
LEAST = 1e-3  # variance between people, relative to 1 within a cell
RIDGE = 0.02  # share of the mean variance that is added to the covariance within cells


class WindowSums(NamedTuple):
    """Windows of one person, each counting for every class with a weight."""

    sums: Tensor  # (P, C, R): of their projected latents
    counts: Tensor  # (C,)


class Effects(NamedTuple):
    """P members, C classes, latents of D numbers, R directions."""

    projection: Tensor  # (P, D, R): latents -> directions in which windows of a cell have the variance 1
    means: Tensor  # (P, C, R): μ
    shift: Tensor  # (P, R): b
    interaction: Tensor  # (P, R): e

    @property
    def no_windows(self) -> WindowSums:
        """Return evidence of no windows."""
        return WindowSums(torch.zeros_like(self.means), self.means.new_zeros(self.means.shape[1]))

    def pad(self, directions: int) -> Effects:
        """Return the effects with so many directions. Latents are 0 in those that are added."""
        more = (0, directions - self.shift.shape[-1])
        pairs = zip(self, (0.0, 0.0, 1.0, 1.0), strict=True)
        return Effects(*(torch.nn.functional.pad(tensor, more, value=value) for tensor, value in pairs))

    def project(self, z: Tensor) -> Tensor:
        """Project latents (P, n, D) to (P, n, R)."""
        return z.to(self.projection) @ self.projection

    def sum_windows(self, x: Tensor, weight: Tensor) -> WindowSums:
        """Return the evidence of projected latents (P, n, R) that count (n, C) for the classes."""
        return WindowSums(weight.T.to(x) @ x, weight.sum(0).to(x))

    @property
    def logit_weights(self) -> Tensor:
        """Return weights (P, R, C) of the logits of a projected code, with these means and variances."""
        return (self.means / (1 + self.shift + self.interaction)[..., None, :]).transpose(-1, -2)

    def posterior(self, evidence: WindowSums, *, classes: bool = True, design_effect: float = DESIGN_EFFECT) -> Effects:
        """Return the posterior for one person. classes: of the effects on each class, and not of the shift alone;
        design_effect: windows that count as one."""
        n = (evidence.counts / design_effect)[..., None, :, None]  # (..., 1, C, 1)
        e, b = self.interaction[..., None, :], self.shift  # (P, 1, R), (P, R)
        precise = 1 / (1 + n * e)
        residual = (evidence.sums / design_effect - n * self.means) * precise  # (mean − μ_c) / (e + 1/n)
        left = 1 / (1 / b + (n * precise).sum(-2))  # variance of the shift
        shift = (residual.sum(-2) * left)[..., None, :]
        if not classes:
            return self._replace(means=self.means + shift, shift=left)
        known = n * e * precise
        means = self.means + shift + e * residual - known * shift
        unknown = (1 - known).mean(-2)
        return self._replace(
            means=means, shift=(1 - known).square().mean(-2) * left, interaction=self.interaction * unknown
        )

    def correction(self, posterior: Effects) -> tuple[Tensor, Tensor]:
        """Return what the posterior adds to logits of a projected code: weights (..., P, R, C), bias (..., P, C)."""
        now, then = posterior.logit_weights, self.logit_weights
        half = -0.5 * ((now.mT * posterior.means).sum(-1) - (then.mT * self.means).sum(-1))
        return now - then, half


def fit_effects(latents: Tensor, y: Tensor, people: Tensor, n_classes: int) -> Effects:
    """Fit one member (P = 1): latents (n, D) of the windows of at least two people (n,), classes (n,). float64
    inside."""
    latents = latents.double()
    _, who = people.unique(return_inverse=True)  # type: ignore[no-untyped-call]  # torch's
    n_people = int(who.max()) + 1
    cells = ClassMoments(latents, who * n_classes + y, n_people * n_classes)
    count = torch.bincount(who * n_classes + y, minlength=n_people * n_classes).view(n_people, n_classes).double()
    there = (count > 0).double()[..., None]
    means = cells.means.view(n_people, n_classes, -1)
    of_class = (means * there).sum(0) / there.sum(0).clamp(min=1)  # (C, D)
    seen = there.sum(0) > 0
    center = (of_class * seen).sum(0) / seen.sum()
    of_class = torch.where(seen, of_class, center)
    root = torch.linalg.cholesky(cells.covariance(max(cells.shrinkage(), RIDGE)))
    white = torch.linalg.solve_triangular(root, ((means - center) * there).flatten(0, 1).T, upper=False).T
    _, spread, axes = torch.linalg.svd(white, full_matrices=False)
    kept = min(DIRECTIONS, len(spread))
    projection = torch.linalg.solve_triangular(root.T, axes[:kept].T, upper=True)  # (D, R)
    away = ((means - of_class) @ projection) * there
    of_person = away.sum(1) / there.sum(1)  # (S, R)
    freedom = (there.sum(1) - 1).sum().clamp(min=1)
    noise = (1 / count[count > 0]).mean()
    within = ((away - of_person[:, None]) * there).square().sum((0, 1)) / freedom
    interaction = (within - noise).clamp(min=LEAST)
    shift = (of_person.square().sum(0) / max(n_people - 1, 1) - within / there.sum(1).mean()).clamp(min=LEAST)
    member = Effects(projection, of_class @ projection, _pooled(shift), _pooled(interaction))
    return Effects(*(tensor[None].float() for tensor in member))


def _pooled(variance: Tensor) -> Tensor:
    """Return variances (R,), each shrunk towards the mean over directions."""
    return (1 - POOLED) * variance + POOLED * variance.mean()


def stack_effects(members: list[Effects]) -> Effects:
    """Stack the effects of several members. Members with fewer people may have fewer directions."""
    most = max(member.shift.shape[-1] for member in members)
    return Effects(*map(torch.cat, zip(*(member.pad(most) for member in members), strict=True)))
