"""Labels that a subject gives during an online session, which then predicts like `calibrate` with all of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..models.adaptation import concatenate_stacks
from ..models.calibration import explain_unused_labels, find_trust
from ..models.card import ModelCard
from ..training.effects import Effects, WindowSums

State = dict[str, Tensor]


class Labels:
    """Labeled windows of one subject, as sums, so that their order has no effect.

    effects, weights: for each stack, as `Ensemble.effects_and_weights` returns them.
    """

    def __init__(self, card: ModelCard, effects: Sequence[Effects], weights: Sequence[Tensor]) -> None:
        self.card, self.effects, self.weights = card, list(effects), list(weights)
        self.prior = concatenate_stacks(self.effects)
        self._weights = torch.cat(self.weights)
        self.evidence = self.prior.zero_sums
        self._correct()

    def state(self) -> State:
        """Return the sums (P, C, R) over labeled windows and their numbers (C,)."""
        return self.evidence._asdict()

    def restore(self, state: State) -> None:
        """Restore the result of `state` with checked names, shapes and types; ValueError if counts are no integers."""
        if (state["counts"] != state["counts"].round()).any():
            raise ValueError("labels.counts are not numbers of windows")
        self.evidence = WindowSums(**state)
        self._correct()

    @property
    def n_labels(self) -> int:
        return int(self.evidence.counts.sum())

    def add(self, x: Tensor, y: Tensor) -> None:
        """Add projected latents (n, P, R) of windows of classes (n,)."""
        more = self.prior.sum_windows(x.transpose(0, 1), torch.nn.functional.one_hot(y, len(self.evidence.counts)))
        self.evidence = WindowSums(self.evidence.sums + more.sums, self.evidence.counts + more.counts)
        self._correct()

    def _correct(self) -> None:
        """Compute the correction of `calibrate`, unless this number of labels did not raise held-out scores."""
        counts = self.evidence.counts
        least = int(counts[counts > 0].min()) if self.n_labels else 0
        self.has_effect = least > 0 and explain_unused_labels(self.card, least) is None
        self.posterior, self.sharpness = self.prior, 1.0
        if self.has_effect:
            share, self.sharpness = find_trust(self.card, least)
            self.posterior, weight, bias = self.correction(self.evidence, share)
            self._correction = weight, bias

    def correction(self, evidence: WindowSums, share: float) -> tuple[Effects, Tensor, Tensor]:
        """Return the posterior, and weights (..., P · R, C) and bias (..., C) to add to the log-probabilities."""
        posterior = self.prior.posterior(evidence)
        weight, bias = self.prior.correction(posterior)
        weight = share * self._weights[:, None, None] * weight
        return posterior, weight.flatten(-3, -2), share * (self._weights[:, None] * bias).sum(-2)

    def correct(self, x: Tensor, log_p: Tensor) -> Tensor:
        """Correct log-probabilities (n, C) of windows with projected latents (n, P, R), up to a constant per window."""
        if not self.has_effect:
            return log_p
        weight, bias = self._correction
        return self.sharpness * (log_p + (x.flatten(1) @ weight + bias))

    def split_posterior(self) -> tuple[list[Effects], list[Tensor]]:
        """Return effects and weights of each stack, as in a calibrated model, for online adaptation to start from."""
        sizes = [len(weights) for weights in self.weights]
        posteriors = zip(*(torch.split(field, sizes) for field in self.posterior[1:]), strict=True)
        stacks = zip(self.effects, posteriors, strict=True)
        effects = [Effects(prior.projection, *posterior) for prior, posterior in stacks]
        return effects, [self.sharpness * weights for weights in self.weights]
