"""The online ensemble: it uses a person's windows without labels, in a session or all of them at once.

It gives the model's candidates other weights, and has candidates of its own: linear models whose training people were
centered. These take the center of the training people for that of a new person, until windows of theirs are known
(training/centering.py). In a session every window is predicted from those before it, then counts itself.

Only logits of centered members move with the person. All others are computed once, so that many rules and orders of
windows can be tried side by side.
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

ALL = "all"  # of `adapt`: with all windows of a person


class ZeroShot(NamedTuple):
    """Predictions of n windows before anything is known of their person."""

    settled: Floats  # (n, C): log-probabilities of the candidates that are not centered, each times its weight
    logits: Floats  # (n, P, C): of the P centered members


class OnlineEnsemble:
    """Candidates with their weights (K,), of which some are centered by one rule, or by several (L,) side by side."""

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
        moves = torch.cat([torch.full((len(stack),), stack.centering is not None) for stack in stacks])  # (P of all,)
        has_moving = (combination.mean[:, moves] > 0).any(1)  # (K,)
        self._moves, self._stays = moves, ~moves
        self._settled = combination.mean[~has_moving][:, ~moves], combination.weights[~has_moving]
        self.mean = combination.mean[has_moving][:, moves].numpy()
        self.weights = combination.weights[has_moving].numpy()

    @torch.inference_mode()
    def zero_shot(self, X: Tensor) -> ZeroShot:
        """Predict raw windows (n, channels, times) of one person, before anything is known of them."""
        logits = self.ensemble.combination.logits(self.ensemble.latents(X))  # (P of all, n, C)
        settled = self.ensemble.combination.pool(logits[self._stays], *self._settled)
        return ZeroShot(settled.numpy(), logits[self._moves].transpose(0, 1).contiguous().numpy())

    def next(self, windows: ZeroShot, known: CenteringState) -> tuple[Floats, CenteringState]:
        """Return log-probabilities (n, C) of a person's next windows, in order, up to a constant for each window, and
        what is known after them."""
        return self._follow(windows, np.arange(len(windows.settled)), known)

    def side_by_side(self, windows: ZeroShot, orders: Sequence[np.ndarray]) -> Floats:
        """Return log-probabilities (L, O, n, C) for a new person, by every rule and in each of O orders (n,)."""
        lanes = (len(self.centered.prior), len(orders))
        log_p, _ = self._follow(windows, np.stack(orders, 1), self.centered.initial_state(*lanes))
        return np.moveaxis(log_p, 0, -2)

    def all_at_once(self, windows: ZeroShot, belief: Floats) -> Floats:
        """Return log-probabilities (..., n, C) from all windows of one person and their probabilities by the model (n,
        C), for each rule. Their order makes no difference."""
        offset = self.centered.transductive_offset(self.centered.relative_logits(windows.logits), belief)
        return windows.settled + self._pool(windows.logits - offset[..., None, :, :])

    def _follow(self, windows: ZeroShot, orders: np.ndarray, known: CenteringState) -> tuple[Floats, CenteringState]:
        """Map windows in orders (n, ...) to log-probabilities (n, lanes..., C)."""
        u = self.centered.relative_logits(windows.logits)
        predictions = []
        for place in orders:
            offset = self.centered.offset(known)
            log_p = windows.settled[place] + self._pool(windows.logits[place] - offset)
            predictions.append(log_p)
            known = self.centered.update(known, u[place], softmax(log_p))
        return np.stack(predictions), known

    def _pool(self, logits: Floats) -> Floats:
        """Pool logits (..., P, C) to log-probabilities (..., C)."""
        return np.asarray(self.weights @ np.log(np.maximum(self.mean @ softmax(logits), TINY)))


def softmax(log_p: Floats) -> Floats:
    """Return probabilities of log-probabilities (..., classes), up to a number for each row. SciPy's softmax takes
    three times as long for one window."""
    power: Floats = np.exp(log_p - log_p.max(-1, keepdims=True))
    power /= power.sum(-1, keepdims=True)
    return power
