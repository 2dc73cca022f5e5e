"""Adaptation methods, which learn from the unlabeled windows of one subject in the latent space of a model.

A run replays held-out subjects with each method and selects one (search/online_adaptation.py). A method maps the
windows so far to a correction of the logits that is linear in the latents, and 0 before the first window:

    shift          subtracts the shift of the subject's latents from those of training subjects (training/effects.py);
                   a window counts for each class with its predicted probability, so that a subject who shows one class
                   is not taken for one whose classes are all shifted
    self-training  shift, and effects of the subject on each class, with predictions as soft labels; the latter are
                   weighted by the evenness of predicted classes, because errors on a single class move another one
    prototypes     shift and effects on each class, from confident windows (after T3A, Iwasawa and Matsuo 2021)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from ..training.effects import PREDICTED_DESIGN_EFFECT, Effects, WindowSums

CLASS_DESIGN_EFFECT = 30.0  # predicted windows per independent one, for effects on classes
MAX_ENTROPY = 0.4  # share of the entropy of guessing; windows above it are not confident
TINY = 1e-12

State = dict[str, Tensor]  # statistics of the subject's windows


class AdaptationMethod(ABC):
    """Method that learns from unlabeled windows of one subject and returns a correction of the logits.

    prior: effects of the P members before any window. R: directions of projected latents, C: classes, `...`: subjects.
    """

    label: ClassVar[str]  # words of reports

    def __init__(self, prior: Effects) -> None:
        self.prior = prior

    @abstractmethod
    def initial_state(self) -> State:
        """Return the state before the first window."""

    @abstractmethod
    def update(self, state: State, x: Tensor, p: Tensor) -> State:
        """Return the state after one more window with projected latents (..., P, R) and probabilities (..., C)."""

    def posterior(self, state: State) -> Effects:
        """Return the effects given the subject's windows."""
        return self.prior

    @abstractmethod
    def correction(self, state: State) -> tuple[Tensor, Tensor]:
        """Return weights (..., P, R, C) and bias (..., P, C) of the correction of the logits."""


class SharedShift(AdaptationMethod):
    label = "by a shift that all classes share"
    has_class_effects = False

    def initial_state(self) -> State:
        return dict(self.prior.zero_sums._asdict())

    def update(self, state: State, x: Tensor, p: Tensor) -> State:
        return {"sums": state["sums"] + p[..., None, :, None] * x[..., None, :], "counts": state["counts"] + p}

    def posterior(self, state: State) -> Effects:
        return self.prior.posterior(
            WindowSums(**state), classes=self.has_class_effects, design_effect=PREDICTED_DESIGN_EFFECT
        )

    def correction(self, state: State) -> tuple[Tensor, Tensor]:
        return self.prior.correction(self.posterior(state))


class SelfTraining(SharedShift):
    label = "by self-training"

    def posterior(self, state: State) -> Effects:
        evidence = WindowSums(**state)
        shifted, moved = super().posterior(state), self.prior.posterior(evidence, design_effect=CLASS_DESIGN_EFFECT)
        counts = evidence.counts
        evenness = counts.shape[-1] * counts.amin(-1) / counts.sum(-1).clamp(min=TINY)  # 1: equal counts of classes
        share = evenness[..., None, None]
        return shifted._replace(
            means=torch.lerp(shifted.means, moved.means, share[..., None]),
            shift=torch.lerp(shifted.shift, moved.shift, share),
            interaction=torch.lerp(shifted.interaction, moved.interaction, share),
        )


class Prototypes(SharedShift):
    label = "by class prototypes"
    has_class_effects = True

    def update(self, state: State, x: Tensor, p: Tensor) -> State:
        is_confident = entropy(p) < MAX_ENTROPY * math.log(p.shape[-1])
        likeliest = torch.nn.functional.one_hot(p.argmax(-1), p.shape[-1]).to(p)
        return super().update(state, x, likeliest * is_confident[..., None])


ADAPTATION_METHODS: dict[str, type[AdaptationMethod]] = {  # in the order in which a run compares them
    "self-training": SelfTraining,
    "shift": SharedShift,
    "prototypes": Prototypes,
}
NO_ADAPTATION = "none"


def entropy(p: Tensor) -> Tensor:
    """Return the entropy (...) of probabilities (..., C) in nats."""
    nats: Tensor = torch.special.entr(p).sum(-1)
    return nats


def concatenate_stacks(stacks: Sequence[Effects]) -> Effects:
    """Return the effects of the members of all stacks, without projections; all must have R directions."""
    _, *fields = zip(*stacks, strict=True)
    return Effects(torch.empty(0), *map(torch.cat, fields))


class Adaptation:
    """Online adaptation of an ensemble by one of ADAPTATION_METHODS.

    effects and weights (P,) of the P members of each stack, all with R directions.
    """

    def __init__(self, effects: Sequence[Effects], weights: Sequence[Tensor], method: str = "shift") -> None:
        self.effects, self.weights = list(effects), list(weights)
        self._weights = torch.cat(self.weights)
        self.method = ADAPTATION_METHODS[method](concatenate_stacks(self.effects))
        self.restore(self.method.initial_state())

    def restore(self, state: State) -> None:
        """Continue from a state."""
        self.state = state
        self._correct()

    def _correct(self) -> None:
        """Compute weights (..., P · R, C) and bias (..., C) of the correction from the state."""
        weight, bias = self.method.correction(self.state)
        weight = weight * self._weights[:, None, None]
        self._correction = weight.flatten(-3, -2), (self._weights[:, None] * bias).sum(-2)

    def adapt(self, x: Tensor, log_p: Tensor) -> Tensor:
        """Correct log-probabilities (n, ..., C) of the next windows with projected latents (n, ..., P, R).

        Each window is corrected with the state before it, then updates it. Results are up to a constant per window.
        """
        corrected = []
        for latents, log_p_window in zip(x, log_p, strict=True):
            weight, bias = self._correction
            adapted = log_p_window + ((latents.flatten(-2)[..., None, :] @ weight)[..., 0, :] + bias)
            corrected.append(adapted)
            self.state = self.method.update(self.state, latents, adapted.softmax(-1).to(latents.dtype))
            self._correct()
        return torch.stack(corrected)

    def label_correction(self, latents: Sequence[Tensor], y: Tensor, known: Tensor) -> Tensor:
        """Return what labels add to the log-probabilities of all windows: (n, C).

        latents: (P, n, D) of each stack; y: classes (n,); known: (n,), which windows are labeled
        """
        total = torch.zeros(())
        for effects, z, weights in zip(self.effects, latents, self.weights, strict=True):
            x, n_classes = effects.project(z), effects.means.shape[1]
            evidence = effects.sum_windows(x[:, known], torch.nn.functional.one_hot(y[known], n_classes))
            weight, bias = effects.correction(effects.posterior(evidence))
            total = total + torch.einsum("pnc,p->nc", x @ weight + bias[:, None], weights)
        return total
