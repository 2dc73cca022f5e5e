"""Labels that a person gives during a session, which then predicts as `calibrate` with all of them would.

Evidence is kept, not corrections, so that labels which come one by one count as they would all at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..models.calibration import explain_unused_labels, find_trust
from ..models.card import ModelCard
from ..training.effects import Effects, WindowSums
from .adaptation import all_members

State = dict[str, Tensor]


class Labels:
    """Labelled windows of one person.

    card: of the model; says whether so many labels count, and how much
    effects: of the P members of each stack, with equally many directions R; weights: (P,) of each stack, of the
        members' corrections
    """

    def __init__(self, card: ModelCard, effects: Sequence[Effects], weights: Sequence[Tensor]) -> None:
        self.card, self.effects, self.weights = card, list(effects), list(weights)
        self.everyone = all_members(self.effects)
        self._weights = torch.cat(self.weights)
        self.evidence = self.everyone.no_windows
        self._correct()

    def state(self) -> State:
        """Return the evidence so far: sums (P, C, R) and counts (C,)."""
        return self.evidence._asdict()

    def restore(self, state: State) -> None:
        """Continue from a state; ValueError where it does not fit."""
        sums, counts = state["sums"], state["counts"]
        fits = sums.shape == self.everyone.means.shape and counts.shape == sums.shape[1:2]
        if not (fits and sums.dtype == counts.dtype == self.everyone.means.dtype):
            raise ValueError(f"labels.sums has the shape {tuple(sums.shape)}, labels.counts {tuple(counts.shape)}")
        if (counts < 0).any() or (counts != counts.round()).any():
            raise ValueError("labels.counts are not numbers of windows")
        self.evidence = WindowSums(sums, counts)
        self._correct()

    @property
    def n_labels(self) -> int:
        return int(self.evidence.counts.sum())

    def add(self, x: Tensor, y: Tensor) -> None:
        """Add projected latents (n, P, R) of windows of classes (n,)."""
        more = self.everyone.sum_windows(x.transpose(0, 1), torch.nn.functional.one_hot(y, len(self.evidence.counts)))
        self.evidence = WindowSums(self.evidence.sums + more.sums, self.evidence.counts + more.counts)
        self._correct()

    def _correct(self) -> None:
        """Correct as `calibrate` with these labels would: not at all where held-out people did not gain by so few."""
        counts = self.evidence.counts
        least = int(counts[counts > 0].min()) if self.n_labels else 0
        self.counted = least > 0 and explain_unused_labels(self.card, least) is None
        self.posterior, self.sharpness = self.everyone, 1.0
        if self.counted:
            share, self.sharpness = find_trust(self.card, least)
            self.posterior, weight, bias = self.correction(self.evidence, share)
            self._correction = weight, bias

    def correction(self, evidence: WindowSums, share: float) -> tuple[Effects, Tensor, Tensor]:
        """Return the posterior with this evidence, and weights (..., P · R, C) and bias (..., C) of what it adds to the
        log-probabilities."""
        posterior = self.everyone.posterior(evidence)
        weight, bias = self.everyone.correction(posterior)
        weight = share * self._weights[:, None, None] * weight
        return posterior, weight.flatten(-3, -2), share * (self._weights[:, None] * bias).sum(-2)

    def correct(self, x: Tensor, log_p: Tensor) -> Tensor:
        """Map projected latents (n, P, R) and log-probabilities (n, C), up to a number for each window, to those of
        the person."""
        if not self.counted:
            return log_p
        weight, bias = self._correction
        return self.sharpness * (log_p + (x.flatten(1) @ weight + bias))

    def effects_and_weights(self) -> tuple[list[Effects], list[Tensor]]:
        """Return effects and weights of each stack, as those of a calibrated model: adaptation without labels starts
        here."""
        sizes = [len(weights) for weights in self.weights]
        posteriors = zip(*(torch.split(field, sizes) for field in self.posterior[1:]), strict=True)
        stacks = zip(self.effects, posteriors, strict=True)
        effects = [Effects(prior.projection, *posterior) for prior, posterior in stacks]
        return effects, [self.sharpness * weights for weights in self.weights]
