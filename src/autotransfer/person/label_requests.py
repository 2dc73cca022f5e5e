"""Expected gain of a label, which determines whether an online session asks for the label.

For every class that a window may have, the posterior of the subject (training/effects.py) with this label added is
computed in closed form, and from it the probabilities of the subject's recent windows v. The expected gain is the
share of probability that is expected to move to another class:

    gain = Σ_c p(c | window) · mean over v of ½ Σ_k |p(k | v, labels and this one) − p(k | v, labels)|

The gain is low if the class already has labels, if the model is confident, or if the window is far from recent windows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..models.calibration import LABELS, explain_unused_labels, find_trust
from ..training.effects import WindowSums
from .labels import Labels

N_RECENT = 48  # recent windows, from which the gain is computed and which can be labeled
N_LIKELY_CLASSES = 4  # number of most probable classes that are considered for a window
MIN_GAIN = 0.02  # minimum expected gain for which a label is requested


@dataclass
class EncodedWindow:
    """A window with its latents and probabilities from the time when it was predicted."""

    window: Tensor  # (channels, times)
    latents: list[Tensor]  # (P, 1, D) of each stack
    log_p: Tensor  # (C,), before any correction
    projected: Tensor | None = None  # latents (P, R), computed when needed


class RecentWindows:
    """Recent windows of a subject. project: latents (P, n, D) of each stack -> (n, P, R)."""

    def __init__(self, project: Callable[[Sequence[Tensor]], Tensor]) -> None:
        self._project = project
        self._windows: deque[EncodedWindow] = deque(maxlen=N_RECENT)

    def add(self, X: Tensor, latents: Sequence[Tensor], log_p: Tensor) -> None:
        """Add windows (n, channels, times) with latents (P, n, D) of each stack and log-probabilities (n, C)."""
        n = X.shape[0]
        for row in range(max(0, n - N_RECENT), n):
            self._windows.append(EncodedWindow(X[row].clone(), [z[:, row : row + 1] for z in latents], log_p[row]))

    @property
    def latest(self) -> EncodedWindow:
        return self._windows[-1]

    def find(self, window: Tensor) -> EncodedWindow | None:
        """Return the latest entry with this window (channels, times), or None."""
        return next((record for record in reversed(self._windows) if torch.equal(record.window, window)), None)

    def projected_latents(self, record: EncodedWindow) -> Tensor:
        """Return projected latents (P, R), computed by window, so that rounding does not depend on other windows."""
        if record.projected is None:
            record.projected = self._project(record.latents)[0]
        return record.projected

    def stack(self, more: EncodedWindow | None = None) -> tuple[Tensor, Tensor]:
        """Return projected latents (n, P, R) and log-probabilities (n, C) of all windows and of an additional one."""
        records = [*self._windows, *([] if more is None else [more])]
        return torch.stack([*map(self.projected_latents, records)]), torch.stack([record.log_p for record in records])


def expected_gain(labels: Labels, x: Tensor, log_p: Tensor, recent_x: Tensor, recent_log_p: Tensor) -> float:
    """Return the expected gain of a label of a window with projected latents x (P, R) and log-probabilities (C,).

    Recent windows have latents (n, P, R) and log-probabilities (n, C). The gain is 0 if no number of labels raised
    held-out scores.
    """
    helpful_numbers = [number for number in LABELS if explain_unused_labels(labels.card, number) is None]
    if not helpful_numbers:
        return 0.0
    # The trust in many labels is used: the trust in few labels can be small, but more labels may follow.
    share, sharpness = find_trust(labels.card, max(helpful_numbers))
    sums, counts = labels.evidence

    def probabilities(evidence: WindowSums, latents: Tensor, log_p: Tensor) -> Tensor:
        _, weight, bias = labels.correction(evidence, share)
        return (sharpness * (log_p.to(weight) + latents.flatten(1) @ weight + bias[..., None, :])).softmax(-1)

    p, likely = probabilities(labels.evidence, x[None], log_p[None])[0].topk(min(N_LIKELY_CLASSES, len(counts)))
    before = probabilities(labels.evidence, recent_x, recent_log_p)  # (n, C)
    label = torch.eye(len(counts))[likely].to(sums)  # (classes that are likely, C)
    with_label = WindowSums(sums + label[:, None, :, None] * x[:, None], counts + label)
    after = probabilities(with_label, recent_x, recent_log_p)  # (likely classes, n, C)
    moved = 0.5 * (after - before).abs().sum(-1).mean(-1)
    return float((p * moved).sum() / p.sum())
