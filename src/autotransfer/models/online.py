"""Online ensemble, which adapts to a subject's unlabeled windows, one by one or all at once.

Its further candidates are linear models fitted to windows that were centered by subject. For a new subject they start
from the center of the training subjects, which each window moves (training/centering.py). Only the logits of centered
members depend on earlier windows; all others are computed once, so that many rules and orders can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..training.centering import CenteringRule, CenteringState, OnlineCentering, stack_centering
from .candidate import Candidate
from .ensemble import TINY, Ensemble, Floats

ALL = "all"  # value of `adapt`: use all windows of a subject


class ZeroShotLogits(NamedTuple):
    """Outputs for n windows without adaptation to their subject."""

    fixed_log_p: Floats  # (n, C): weighted sum of the log-probabilities of candidates that are not centered
    logits: Floats  # (n, P, C): of the P centered members


class OnlineEnsemble:
    """Ensemble of K candidates, of which some are centered by one rule, or by each of several rules (L,)."""

    def __init__(
        self, candidates: Sequence[Candidate], weights: Sequence[float],
        rule: CenteringRule | tuple[CenteringRule, ...],
    ) -> None:  # fmt: skip
        used = [place for place, weight in enumerate(weights) if weight > 0]
        self.ensemble = Ensemble([candidates[place] for place in used], [weights[place] for place in used])
        centering = [stack.centering for stack in self.ensemble.stacks if stack.centering is not None]
        if not centering:
            raise ValueError("no candidate of the online ensemble is centered")
        self.centered = OnlineCentering(stack_centering(centering), rule)
        combination, stacks = self.ensemble.combination, self.ensemble.stacks
        is_centered = torch.cat([torch.full((len(stack),), stack.centering is not None) for stack in stacks])  # (P,)
        has_centered = (combination.mean[:, is_centered] > 0).any(1)  # (K,)
        self._is_centered = is_centered
        self._fixed = combination.mean[~has_centered][:, ~is_centered], combination.weights[~has_centered]
        self.mean = combination.mean[has_centered][:, is_centered].numpy()
        self.weights = combination.weights[has_centered].numpy()

    @torch.inference_mode()
    def predict_zero_shot(self, X: Tensor) -> ZeroShotLogits:
        """Return the outputs for raw windows (n, channels, times) of one subject without adaptation."""
        logits = self.ensemble.combination.logits(self.ensemble.latents(X))  # (P of all, n, C)
        fixed_log_p = self.ensemble.combination.pool(logits[~self._is_centered], *self._fixed)
        return ZeroShotLogits(fixed_log_p.numpy(), logits[self._is_centered].transpose(0, 1).contiguous().numpy())

    def predict_next(self, windows: ZeroShotLogits, state: CenteringState) -> tuple[Floats, CenteringState]:
        """Return log-probabilities (n, C), up to constants, of a subject's next windows, and the new state."""
        return self._predict_in_order(windows, np.arange(len(windows.fixed_log_p)), state)

    def predict_in_orders(self, windows: ZeroShotLogits, orders: Sequence[np.ndarray]) -> Floats:
        """Return log-probabilities (L, O, n, C) for a new subject, by each rule and in each of O orders (n,)."""
        lanes = (len(self.centered.prior), len(orders))
        log_p, _ = self._predict_in_order(windows, np.stack(orders, 1), self.centered.initial_state(*lanes))
        return np.moveaxis(log_p, 0, -2)

    def predict_transductive(self, windows: ZeroShotLogits, probability: Floats) -> Floats:
        """Return log-probabilities (..., n, C) by each rule, from all windows of a subject and the model's (n, C)."""
        offset = self.centered.transductive_offset(self.centered.relative_logits(windows.logits), probability)
        return windows.fixed_log_p + self._pool(windows.logits - offset[..., None, :, :])

    def _predict_in_order(
        self, windows: ZeroShotLogits, orders: np.ndarray, state: CenteringState
    ) -> tuple[Floats, CenteringState]:
        """Return log-probabilities (n, lanes..., C) in orders (n, ...), and the state after the last window."""
        u = self.centered.relative_logits(windows.logits)
        predictions = []
        for place in orders:
            offset = self.centered.offset(state)
            log_p = windows.fixed_log_p[place] + self._pool(windows.logits[place] - offset)
            predictions.append(log_p)
            state = self.centered.update(state, u[place], softmax(log_p))
        return np.stack(predictions), state

    def _pool(self, logits: Floats) -> Floats:
        """Pool logits (..., P, C) to log-probabilities (..., C)."""
        return np.asarray(self.weights @ np.log(np.maximum(self.mean @ softmax(logits), TINY)))


def softmax(log_p: Floats) -> Floats:
    """Return the softmax over classes (..., classes); SciPy's takes three times as long for one window."""
    power: Floats = np.exp(log_p - log_p.max(-1, keepdims=True))
    power /= power.sum(-1, keepdims=True)
    return power
