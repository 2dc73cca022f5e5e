"""Labels that a person gives while a session goes on: after each, the session is what `calibrate` makes of all of them.

Evidence is kept, not corrections, so that labels which come one by one say the same as all at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..models.mixture import Model
from ..training.days import Days, on_another_day
from ..training.effects import Effects, Evidence
from .calibration import lost_with, trust_in

State = dict[str, Tensor]


class Labels:
    """Labelled windows of one person.

    model: its card says how much so many labels count, and whether they do
    effects: of the P members of each stack, equally many directions R; weights: (P,) of each, what a member's
        correction counts
    days: what people keep from day to day, of all members; None: nobody knows, and labels of all days count alike
    """

    def __init__(
        self, model: Model, effects: Sequence[Effects], weights: Sequence[Tensor], days: Days | None = None
    ) -> None:
        self.days = days
        self.model, self.effects, self.weights = model, list(effects), list(weights)
        _, *beside = zip(*effects, strict=True)  # members of all stacks; their codes differ
        self.everyone = Effects(torch.empty(0), *map(torch.cat, beside))
        self._weights = torch.cat(self.weights)
        nothing = self.everyone.nothing
        self.restore({"sums": nothing.sums[None], "counts": nothing.counts[None]})

    def state(self) -> State:
        """Evidence so far, day by day: sums (days, P, C, R) and counts (days, C)."""
        sums, counts = zip(*self.earlier, self.evidence, strict=True)
        return {"sums": torch.stack(sums), "counts": torch.stack(counts)}

    def restore(self, state: State) -> None:
        """Go on from there; ValueError where it does not fit."""
        sums, counts = state["sums"], state["counts"]
        fits = sums.shape[1:] == self.everyone.means.shape and counts.shape == (len(sums), sums.shape[2])
        if not (fits and len(sums) and sums.dtype == counts.dtype == self.everyone.means.dtype):
            raise ValueError(f"labels.sums has the shape {tuple(sums.shape)}, labels.counts {tuple(counts.shape)}")
        if (counts < 0).any() or (counts != counts.round()).any():
            raise ValueError("labels.counts are not numbers of windows")
        *self.earlier, self.evidence = (Evidence(*own) for own in zip(sums, counts, strict=True))
        self._begin_day()

    def new_day(self) -> None:
        """Labels so far become those of earlier days."""
        if self.days is not None and self.evidence.counts.any():
            self.earlier.append(self.evidence)
            self.evidence = self.everyone.nothing
        self._begin_day()

    def _begin_day(self) -> None:
        self.prior = self.everyone
        if self.days is not None and self.earlier:
            self.prior = on_another_day(self.everyone, self.days, self.earlier)
        self._correct()

    @property
    def n_labels(self) -> int:
        return int(self.counts.sum())

    @property
    def counts(self) -> Tensor:
        """(C,), of all days."""
        return torch.stack([own.counts for own in (*self.earlier, self.evidence)]).sum(0)

    def add(self, x: Tensor, y: Tensor) -> None:
        """Projected codes (n, P, R) of windows of classes (n,)."""
        more = self.everyone.evidence(x.transpose(0, 1), torch.nn.functional.one_hot(y, len(self.evidence.counts)))
        self.evidence = Evidence(self.evidence.sums + more.sums, self.evidence.counts + more.counts)
        self._correct()

    def _correct(self) -> None:
        """As `calibrate` with these labels: nothing, where held-out people did not gain by so few."""
        counts = self.counts
        least = int(counts[counts > 0].min()) if self.n_labels else 0
        self.counted = least > 0 and lost_with(self.model, least) is None
        self.posterior, self.sharpness = self.everyone, 1.0
        if self.counted:
            share, self.sharpness = trust_in(self.model, least)
            self.posterior, weight, bias = self.correction(self.evidence, share)
            self._correction = weight, bias

    def correction(self, evidence: Evidence, share: float) -> tuple[Effects, Tensor, Tensor]:
        """The posterior, weights (..., P · R, C) and bias (..., C) of what evidence of today adds to the
        log-probabilities, with that of earlier days."""
        posterior = self.prior.given(evidence)
        weight, bias = self.everyone.correction(posterior)
        weight = share * self._weights[:, None, None] * weight
        return posterior, weight.flatten(-3, -2), share * (self._weights[:, None] * bias).sum(-2)

    def correct(self, x: Tensor, log_p: Tensor) -> Tensor:
        """Projected codes (n, P, R), log-probabilities (n, C) up to a number for each window -> those of the person."""
        if not self.counted:
            return log_p
        weight, bias = self._correction
        return self.sharpness * (log_p + (x.flatten(1) @ weight + bias))

    def known(self) -> tuple[list[Effects], list[Tensor]]:
        """For adaptation without labels that goes on from here: effects and weights of each stack, as those of a
        calibrated model."""
        sizes = [len(own) for own in self.weights]
        each = zip(*(torch.split(own, sizes) for own in self.posterior[1:]), strict=True)
        effects = [Effects(own.projection, *after) for own, after in zip(self.effects, each, strict=True)]
        return effects, [self.sharpness * own for own in self.weights]
