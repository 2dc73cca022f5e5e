"""The offset of one person's logits from those of the training people, learned from windows without labels.

A closed form whose training people were centered (`center="online"`) is linear in the window: to center a new person is
to take an offset δ from its logits. With nothing known δ is 0, and the person is treated as training people are on
average. With u the logits less what they are at the center of the training people, n windows and the sum s of their u,

    plain      δ = s / (m + n)
    balanced   δ = (s − (1 − r) Σ_c n_c μ_c) / (m + n)
    cautious   δ = r (s − (1 − r) Σ_c n_c μ_c) / (m + r n)

m is how many windows the prior is worth. Σ_c n_c μ_c is the sum that training people would have in the classes that the
model predicts: n_c windows of class c, with μ_c the mean of u in it. A person who shows one class for minutes is then
compared with that class, not with all of them. But predictions are wrong where a person lies far off, and windows of
all classes need no such comparison. r tells the two cases apart without predictions, by how much u varies within the
person: as much as windows of one class (r = 0), or as much as windows of all classes do within training people (r = 1).
A shift of the person does not change it.

With forgetting, all sums fade by that share with every window. A window far beyond every training window is predicted,
but not learned from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError, check_choice, check_types

RULES = ("plain", "balanced", "cautious")
PRIORS = (2.0, 8.0, 32.0)  # windows; tried on held-out people
FORGETTING = (0.0, 0.01)  # tried as well
MOST_PRIOR = 1e6
BEYOND = 2.0  # times as far from the center as any window of the training people
TINY = 1e-12

Floats = NDArray[np.float64]
CenteringState = dict[str, Floats]  # of one person, or of several side by side on leading axes


@dataclass(frozen=True)
class CenteringRule:
    """Rule by which windows of a person move the offset: chosen on held-out people (search/online_adaptation.py)."""

    kind: str = "balanced"  # one of RULES
    prior_windows: float = 8.0  # m
    forgetting: float = 0.0  # share of all sums with every window

    def __post_init__(self) -> None:
        check_types(self)
        check_choice("kind", self.kind, RULES)
        if not 0 < self.prior_windows <= MOST_PRIOR:
            raise UserError(f"prior_windows is {self.prior_windows}; it must be above 0 and at most {MOST_PRIOR:g}")
        if not 0 <= self.forgetting < 1:
            raise UserError(f"forgetting is {self.forgetting}; it must be at least 0 and below 1")

    @property
    def name(self) -> str:
        fades = f", forgetting {self.forgetting:g}" if self.forgetting else ""
        return f"online {self.kind}, prior {self.prior_windows:g}{fades}"


CENTERING_RULES = tuple(
    CenteringRule(kind, prior, share) for kind in RULES for prior in PRIORS for share in FORGETTING
)  # what is tried on held-out people


class Centering(NamedTuple):
    """Centers of P members and C classes. The mean over classes is subtracted from logits, which changes no
    probability."""

    reference: Tensor  # (P, C): at the center of the training people
    classes: Tensor  # (P, C, C): mean of u for windows of each class, every person counting the same
    within: Tensor  # (P,): mean squared distance of u from its person's mean in its class
    between: Tensor  # (P,): the same of these means from the person's mean over classes
    farthest: Tensor  # (P,): the largest |u| of a training window


def fit_centering(logits: Tensor, reference: Tensor, y: Tensor, people: Tensor) -> Centering:
    """Fit one member (P = 1): logits (n, C) of windows of people (n,) and classes (n,), with the center of the training
    people at the logits `reference` (C,)."""
    reference = _subtract_mean(reference.double())
    u = _subtract_mean(logits.double()) - reference
    n_classes = u.shape[1]
    whose, who = people.unique(return_inverse=True)  # type: ignore[no-untyped-call]  # torch's
    cell = who * n_classes + y
    size = len(whose) * n_classes
    count = torch.bincount(cell, minlength=size).double()
    means = u.new_zeros(size, n_classes).index_add_(0, cell, u) / count.clamp(min=1)[:, None]
    within = u.new_zeros(size).index_add_(0, cell, (u - means[cell]).square().sum(1)) / count.clamp(min=1)
    there = (count > 0).double().view(len(whose), n_classes)
    means = means.view(len(whose), n_classes, n_classes)
    of_person = (means * there[..., None]).sum(1) / there.sum(1)[:, None]
    apart = (means - of_person[:, None]).square().sum(-1)
    of_class = (means * there[..., None]).sum(0) / there.sum(0).clamp(min=1)[:, None]
    scatter = [(distance.view_as(there) * there).sum() / there.sum() for distance in (within, apart)]
    tensors = (reference, of_class, *scatter, u.norm(dim=1).amax())
    return Centering(*(tensor[None] for tensor in tensors))


def _subtract_mean(logits: Tensor) -> Tensor:
    return logits - logits.mean(-1, keepdim=True)


def stack_centering(members: list[Centering]) -> Centering:
    return Centering(*map(torch.cat, zip(*members, strict=True)))


class OnlineCentering:
    """Follows people in the logits of P members. It has no state of a person: `initial_state` makes one.

    rule: one, or several (L,), each with a person of its own on a leading axis of that length
    """

    def __init__(self, centering: Centering, rule: CenteringRule | tuple[CenteringRule, ...]) -> None:
        self.reference, self.classes, self.within, self.between, farthest = (
            np.asarray(tensor.numpy(), dtype=np.float64) for tensor in centering
        )
        self.limit = BEYOND * farthest
        rules = rule if isinstance(rule, tuple) else (rule,)
        lanes = (-1,) if isinstance(rule, tuple) else ()

        def each(values: list[float]) -> Any:
            """Return a number for each rule, to be broadcast over further axes."""
            return np.array(values).reshape(lanes)

        self.prior = each([rule.prior_windows for rule in rules])
        self.retention = each([1 - rule.forgetting for rule in rules])
        self.is_balanced = each([float(rule.kind != "plain") for rule in rules])
        self.is_cautious = each([float(rule.kind == "cautious") for rule in rules])

    def initial_state(self, *people: int) -> CenteringState:
        """Return the state of a new person, or of people (L, …) on leading axes."""
        members, n_classes = self.reference.shape
        return {
            "total": np.zeros((*people, members, n_classes)),
            "squares": np.zeros((*people, members)),
            "counts": np.zeros((*people, n_classes)),
        }

    def relative_logits(self, logits: Floats) -> Floats:
        """Return u of logits (..., P, C)."""
        return np.asarray(logits - logits.mean(-1, keepdims=True) - self.reference)

    def offset(self, known: CenteringState) -> Floats:
        """Return δ (..., P, C), to be subtracted from the logits."""
        total, counts = known["total"], known["counts"]
        n = counts.sum(-1)[..., None]  # (..., 1)
        seen = np.maximum(n, TINY)
        spread = known["squares"] / seen - np.square(total / seen[..., None]).sum(-1)  # (..., P)
        r = np.clip((spread - self.within) / np.maximum(self.between, TINY), 0.0, 1.0)
        rule = (self.prior, self.is_balanced, self.is_cautious)
        prior, is_balanced, is_cautious = (_append_axes(values, r.ndim) for values in rule)
        expected = np.einsum("...c,pcd->...pd", counts, self.classes)
        away = total - (is_balanced * (1 - r))[..., None] * expected
        share = 1 - is_cautious * (1 - r)
        return np.asarray((share / (prior + share * n))[..., None] * away)

    def update(self, known: CenteringState, u: Floats, p: Floats) -> CenteringState:
        """Return the state with one more window: u (..., P, C), and probabilities of its classes (..., C)."""
        square, usual = self._squares(u)
        kept = 1 - usual * (1 - _append_axes(self.retention, p.ndim - 1))
        return {
            "total": kept[..., None, None] * known["total"] + usual[..., None, None] * u,
            "squares": kept[..., None] * known["squares"] + usual[..., None] * square,
            "counts": kept[..., None] * known["counts"] + usual[..., None] * p,
        }

    def transductive_offset(self, u: Floats, p: Floats) -> Floats:
        """Return δ (P, C), with several rules (L, P, C), from all windows of a person, u (n, P, C) and p (n, C)."""
        square, usual = self._squares(u)
        windows = {"total": u, "squares": square, "counts": p}
        known = {name: np.tensordot(usual, values, 1) for name, values in windows.items()}
        if self.prior.ndim:  # several rules
            known = {name: total[None] for name, total in known.items()}
        return self.offset(known)

    def _squares(self, u: Floats) -> tuple[Floats, Floats]:
        """Return |u|² (..., P), and 1 for windows to learn from, 0 for those too far for most members (...)."""
        square = np.square(u).sum(-1)
        return square, (2 * (square > self.limit**2).sum(-1) <= len(self.limit)).astype(np.float64)


def _append_axes(values: Any, ndim: int) -> Any:
    """Return a number, or (L,), with axes behind it up to so many."""
    return values.reshape(values.shape + (1,) * (ndim - values.ndim))
