"""Online ensemble, which adapts to a subject's unlabeled windows, one by one or all at once.

Some of its candidates are linear models that were fitted to windows centered by subject. The center of a new subject is
at first the center of the training subjects. Each window updates it (training/centering.py). Only the logits of these
models depend on earlier windows. All other logits are computed once. In addition, class means of all members can be
re-estimated (adaptation.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..training.centering import CenteringState, OnlineCentering, stack_centering
from .adaptation import Adaptation
from .candidate import Candidate
from .ensemble import TINY, Ensemble, Floats

ALL = "all"  # value of `adapt`: use all windows of a subject


class ZeroShotLogits(NamedTuple):
    """Logits, and quantities computed from them, for n windows without adaptation to their subject."""

    fixed_log_p: Floats  # (n, C): weighted sum of the log-probabilities of candidates that are not centered
    logits: Floats  # (n, P, C): logits of the P centered members
    latents: list[Tensor]  # (P, n, D) of each stack


class OnlineEnsemble:
    """Ensemble of K candidates, of which some are centered.

    has_class_means: whether class means are re-estimated in addition.
    """

    def __init__(
        self, candidates: Sequence[Candidate], weights: Sequence[float], *, has_class_means: bool = False
    ) -> None:
        used = [index for index, weight in enumerate(weights) if weight > 0]
        self.ensemble = Ensemble([candidates[index] for index in used], [weights[index] for index in used])
        centering = [stack.centering for stack in self.ensemble.stacks if stack.centering is not None]
        if not centering:
            raise ValueError("no candidate of the online ensemble is centered")
        self.has_class_means = has_class_means
        self.centered = OnlineCentering(stack_centering(centering))
        combination, stacks = self.ensemble.combination, self.ensemble.stacks
        is_centered = torch.cat([torch.full((len(stack),), stack.centering is not None) for stack in stacks])  # (P,)
        has_centered = (combination.mean[:, is_centered] > 0).any(1)  # (K,)
        self._is_centered = is_centered
        self._fixed_mean_and_weights = (
            combination.mean[~has_centered][:, ~is_centered],
            combination.weights[~has_centered],
        )
        self.mean = combination.mean[has_centered][:, is_centered].numpy()
        self.weights = combination.weights[has_centered].numpy()

    @torch.inference_mode()
    def predict_zero_shot(self, X: Tensor) -> ZeroShotLogits:
        """Return the outputs for raw windows (n, channels, times) of one subject without adaptation."""
        latents = self.ensemble.latents(X)
        logits = self.ensemble.combination.logits(latents)  # (members of all stacks, n, C)
        fixed_log_p = self.ensemble.combination.pool(logits[~self._is_centered], *self._fixed_mean_and_weights)
        centered = logits[self._is_centered].transpose(0, 1).contiguous().numpy()
        return ZeroShotLogits(fixed_log_p.numpy(), centered, latents)

    def start_class_means(self) -> Adaptation:
        """Return the adaptation of class means to a new subject."""
        return Adaptation(*self.ensemble.effects_and_weights)

    @torch.inference_mode()
    def predict_next(
        self, windows: ZeroShotLogits, state: CenteringState, class_means: Adaptation | None = None
    ) -> tuple[Floats, CenteringState]:
        """Return log-probabilities (n, C), up to constants, of a subject's next windows, and the new state.

        class_means: adaptation of the subject's class means, which is updated with these windows; None: no adaptation.
        """
        log_p, state = self._predict_in_order(windows, np.arange(len(windows.fixed_log_p)), state)
        if class_means is not None:
            log_p = class_means.adapt(self.ensemble.project(windows.latents), torch.from_numpy(log_p)).numpy()
        return log_p, state

    @torch.inference_mode()
    def predict_in_orders(self, windows: ZeroShotLogits, orders: Sequence[np.ndarray]) -> Floats:
        """Return log-probabilities (2, O, n, C) of a new subject's windows, without and with re-estimated class means.

        orders: O arrays of window indices (n,).
        """
        indices = np.stack(orders, 1)  # (n, O)
        log_p, _ = self._predict_in_order(windows, indices, self.centered.initial_state(len(orders)))
        x = self.ensemble.project(windows.latents)[torch.from_numpy(indices)]  # (n, O, P, R)
        adapted = self.start_class_means().adapt(x, torch.from_numpy(log_p))
        return np.stack([log_p, adapted.numpy()]).swapaxes(1, 2)

    def predict_transductive(self, windows: ZeroShotLogits, probability: Floats) -> Floats:
        """Return log-probabilities (n, C) with the center estimated from all windows.

        probability: probabilities (n, C) of the model without adaptation, which replace the unknown labels.
        """
        offset = self.centered.transductive_offset(self.centered.relative_logits(windows.logits), probability)
        return windows.fixed_log_p + self._pool(windows.logits - offset)

    def predict_all(self, X: Tensor, probability: Floats) -> Floats:
        """Return log-probabilities (n, C) of all raw windows X of a subject from the model's probabilities (n, C)."""
        windows = self.predict_zero_shot(X)
        log_p = self.predict_transductive(windows, probability)
        return self.re_estimate_class_means(windows, log_p) if self.has_class_means else log_p

    @torch.inference_mode()
    def re_estimate_class_means(self, windows: ZeroShotLogits, log_p: Floats) -> Floats:
        """Return log-probabilities (n, C) of all windows of a subject, corrected by re-estimated class means."""
        x = self.ensemble.project(windows.latents)
        return self.start_class_means().adapt_to_all(x, torch.from_numpy(log_p)).numpy()

    def _predict_in_order(
        self, windows: ZeroShotLogits, orders: np.ndarray, state: CenteringState
    ) -> tuple[Floats, CenteringState]:
        """Return log-probabilities (n, ..., C) in orders (n, ...), and the state after the last window."""
        relative_logits = self.centered.relative_logits(windows.logits)
        predictions = []
        for index in orders:
            offset = self.centered.offset(state)
            log_p = windows.fixed_log_p[index] + self._pool(windows.logits[index] - offset)
            predictions.append(log_p)
            state = self.centered.update(state, relative_logits[index], softmax(log_p))
        return np.stack(predictions), state

    def _pool(self, logits: Floats) -> Floats:
        """Pool logits (..., P, C) to log-probabilities (..., C)."""
        return np.asarray(self.weights @ np.log(np.maximum(self.mean @ softmax(logits), TINY)))


def softmax(log_p: Floats) -> Floats:
    """Return the softmax over classes (..., classes). SciPy's softmax takes three times as long for one window."""
    p: Floats = np.exp(log_p - log_p.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return p
