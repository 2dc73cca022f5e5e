"""Labels that a person gives while a session goes on: after each, the session is what `calibrate` makes of all of them.

Evidence is kept, not corrections, so that labels which come one by one say the same as all at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..models.mixture import Model
from ..training.effects import Effects, Evidence
from .calibration import lost_with, trust_in

State = dict[str, Tensor]


class Labels:
    """Labelled windows of one person.

    model: its card says how much so many labels count, and whether they do
    effects: of the P members of each stack, equally many directions R; weights: (P,) of each, what a member's
        correction counts
    """

    def __init__(self, model: Model, effects: Sequence[Effects], weights: Sequence[Tensor]) -> None:
        self.model, self.effects, self.weights = model, list(effects), list(weights)
        _, *beside = zip(*effects, strict=True)  # members of all stacks; their codes differ
        self.everyone = Effects(torch.empty(0), *map(torch.cat, beside))
        self._weights = torch.cat(self.weights)
        nothing = self.everyone.nothing
        self.restore({"sums": nothing.sums, "counts": nothing.counts})

    def state(self) -> State:
        """Evidence so far: sums (P, C, R) and counts (C,)."""
        return {"sums": self.evidence.sums, "counts": self.evidence.counts}

    def restore(self, state: State) -> None:
        """Go on from there; ValueError where it does not fit."""
        counts = state["counts"]
        if (counts < 0).any() or (counts != counts.round()).any():
            raise ValueError("labels.counts are not numbers of windows")
        self.evidence = Evidence(state["sums"], counts)
        self._correct()

    @property
    def n_labels(self) -> int:
        return int(self.evidence.counts.sum())

    def add(self, x: Tensor, y: Tensor) -> None:
        """Projected codes (n, P, R) of windows of classes (n,)."""
        more = self.everyone.evidence(x.transpose(0, 1), torch.nn.functional.one_hot(y, len(self.evidence.counts)))
        self.evidence = Evidence(self.evidence.sums + more.sums, self.evidence.counts + more.counts)
        self._correct()

    def _correct(self) -> None:
        """As `calibrate` with these labels: nothing, where held-out people did not gain by so few."""
        counts = self.evidence.counts
        least = int(counts[counts > 0].min()) if self.n_labels else 0
        self.counted = least > 0 and lost_with(self.model, least) is None
        self.posterior, self.sharpness = self.everyone, 1.0
        if self.counted:
            share, self.sharpness = trust_in(self.model, least)
            self.posterior, weight, bias = self.correction(self.evidence, share)
            self._correction = weight, bias

    def correction(self, evidence: Evidence, share: float) -> tuple[Effects, Tensor, Tensor]:
        """The posterior, weights (..., P · R, C) and bias (..., C) of what evidence adds to the log-probabilities."""
        posterior = self.everyone.given(evidence)
        weight, bias = self.everyone.correction(posterior)
        weight = share * self._weights[:, None, None] * weight
        return posterior, weight.flatten(-3, -2), share * (self._weights[:, None] * bias).sum(-2)

    def correct(self, x: Tensor, log_p: Tensor) -> Tensor:
        """Projected codes (n, P, R), log-probabilities (n, C) up to a number for each window -> those of the person."""
        if not self.counted:
            return log_p
        weight, bias = self._correction
        return self.sharpness * (log_p + (x.flatten(1) @ weight + bias))

    def prior(self) -> tuple[list[Effects], list[Tensor]]:
        """For adaptation without labels that goes on from here: effects and weights of each stack, as those of a
        calibrated model."""
        sizes = [len(own) for own in self.weights]
        each = zip(*(torch.split(own, sizes) for own in self.posterior[1:]), strict=True)
        effects = [Effects(own.projection, *after) for own, after in zip(self.effects, each, strict=True)]
        return effects, [self.sharpness * own for own in self.weights]
