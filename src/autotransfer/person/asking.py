"""Which windows of a person are worth a label.

A label is worth what it changes. For every class that the window may have, the posterior of the person
(training/effects.py) with this one label more is a closed form, and so are the probabilities of the person's last
windows under it. The expected gain of the label is the share of their probability that is expected to move from one
class to another, with the model's own probabilities of the window's class:

    gain = Σ_c p(c | window) · mean over windows v of ½ Σ_k |p(k | v, labels and this one) − p(k | v, labels)|

So a label is worth little where its class has labels already, where the model is sure of the window, and where the
window lies far from all others.
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

RECENT = 48  # windows of the person that a label is judged by, and that can be labeled afterwards
LIKELY = 4  # classes that are considered for a window: less probable ones matter little
WORTH = 0.02  # expected gain from which a label is worth asking for


@dataclass
class Reading:
    """A window as the model read it when it came."""

    window: Tensor  # (channels, times)
    latents: list[Tensor]  # (P, 1, D) of each stack
    log_p: Tensor  # (C,), of the model before any correction for the person
    projected: Tensor | None = None  # latents (P, R), once they were needed


class Recent:
    """The last windows of a person. project: latents (P, n, D) of each stack -> (n, P, R)."""

    def __init__(self, project: Callable[[Sequence[Tensor]], Tensor]) -> None:
        self._project = project
        self._kept: deque[Reading] = deque(maxlen=RECENT)

    def add(self, X: Tensor, latents: Sequence[Tensor], log_p: Tensor) -> None:
        """Add the next windows (n, channels, times), latents (P, n, D) of each stack and log-probabilities (n, C)."""
        n = X.shape[0]
        for row in range(max(0, n - RECENT), n):
            self._kept.append(Reading(X[row].clone(), [z[:, row : row + 1] for z in latents], log_p[row]))

    @property
    def latest(self) -> Reading:
        return self._kept[-1]

    def find(self, window: Tensor) -> Reading | None:
        """Return the latest that is this window (channels, times); None where it is not among them."""
        return next((reading for reading in reversed(self._kept) if torch.equal(reading.window, window)), None)

    def projected_latents(self, reading: Reading) -> Tensor:
        """Return projected latents (P, R), of one window at a time: together they would round otherwise."""
        if reading.projected is None:
            reading.projected = self._project(reading.latents)[0]
        return reading.projected

    def together(self, more: Reading | None = None) -> tuple[Tensor, Tensor]:
        """Return projected latents (n, P, R) and log-probabilities (n, C) of all of them, and of one more."""
        readings = [*self._kept, *([] if more is None else [more])]
        return torch.stack([*map(self.projected_latents, readings)]), torch.stack(
            [reading.log_p for reading in readings]
        )


def expected_gain(labels: Labels, x: Tensor, log_p: Tensor, recent_x: Tensor, recent_log_p: Tensor) -> float:
    """Return the gain of a label of a window with the projected latents x (P, R) and log-probabilities (C,), judged by
    the person's last windows (n, P, R) and (n, C). 0 where held-out people gained by no number of labels."""
    helped = [number for number in LABELS if explain_unused_labels(labels.card, number) is None]
    if not helped:
        return 0.0
    # The share that many labels count: few may count little, but each of many was once one of few.
    share, sharpness = find_trust(labels.card, max(helped))
    sums, counts = labels.evidence

    def probabilities(evidence: WindowSums, latents: Tensor, log_p: Tensor) -> Tensor:
        _, weight, bias = labels.correction(evidence, share)
        return (sharpness * (log_p.to(weight) + latents.flatten(1) @ weight + bias[..., None, :])).softmax(-1)

    p, likely = probabilities(labels.evidence, x[None], log_p[None])[0].topk(min(LIKELY, len(counts)))
    before = probabilities(labels.evidence, recent_x, recent_log_p)  # (n, C)
    label = torch.eye(len(counts))[likely].to(sums)  # (classes that are likely, C)
    with_label = WindowSums(sums + label[:, None, :, None] * x[:, None], counts + label)
    after = probabilities(with_label, recent_x, recent_log_p)  # (likely, n, C)
    moved = 0.5 * (after - before).abs().sum(-1).mean(-1)
    return float((p * moved).sum() / p.sum())
