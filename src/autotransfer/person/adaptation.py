"""Adaptation methods, which learn from the unlabeled windows of one subject in the latent space of a model.

A run replays held-out subjects with each method and selects one (search/online_adaptation.py). A method maps the
windows so far to a correction of the logits that is linear in the latents, and 0 before the first window:

    shift          subtracts the shift of the subject's latents from those of training subjects (training/effects.py);
                   a window counts for each class with its predicted probability, so that a subject who shows one class
                   is not taken for one whose classes are all shifted
    self-training  shift, and effects of the subject on each class, with predictions as soft labels; the latter are
                   weighted by the evenness of predicted classes, because errors on a single class move another one
    prototypes     shift and effects on each class, from confident windows (after T3A, Iwasawa and Matsuo 2021)
    statistics     matches mean and variance of the latents to those of training subjects, as batch normalization with
                   the statistics of the subject does (after AdaBN, Li et al. 2018); biased by unbalanced classes
    entropy        moves the bias of the logits so that predictions have low entropy and all classes are predicted
                   (after TENT, Wang et al. 2021, and SHOT, Liang et al. 2020); pauses while one class dominates
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
PRIOR_WINDOWS = 16.0  # weight of the training subjects' mean and variance, in windows
STEP_SIZE = 0.05  # of a gradient step
DECAY = 0.02  # share of the state that every window removes
MAX_CLASS_SHARE = 0.9  # share of one class in recent windows above which the entropy method pauses
TINY = 1e-12

State = dict[str, Tensor]  # statistics of the subject's windows


class AdaptationMethod(ABC):
    """Method that learns from unlabeled windows of one subject and returns a correction of the logits.

    P members, R directions of projected latents (training/effects.py), C classes; `...` are axes for parallel subjects.

    prior: effects of the P members before any window
    total: sum of the members' weights; a bias of the ensemble's logits is bias / total for each member
    """

    label: ClassVar[str]  # words of reports

    def __init__(self, prior: Effects, total: float) -> None:
        self.prior, self.total = prior, total

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
        return dict(self.prior.no_windows._asdict())

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


class MomentMatching(AdaptationMethod):
    label = "by means and covariances"

    def __init__(self, prior: Effects, total: float) -> None:
        super().__init__(prior, total)
        self.mean = prior.means.mean(-2)  # (P, R)
        between = prior.means.var(-2, correction=0)
        self.variance = 1 + prior.shift + prior.interaction + between

    def initial_state(self) -> State:
        zeros = torch.zeros_like(self.mean)
        return {"sum": zeros, "squares": zeros, "count": zeros.new_zeros(())}

    def update(self, state: State, x: Tensor, p: Tensor) -> State:
        deviation = x - self.mean
        return {
            "sum": state["sum"] + deviation,
            "squares": state["squares"] + deviation.square(),
            "count": state["count"] + 1,
        }

    def correction(self, state: State) -> tuple[Tensor, Tensor]:
        windows = PRIOR_WINDOWS + state["count"][..., None, None]
        mean = state["sum"] / windows  # relative to training subjects
        variance = (PRIOR_WINDOWS * self.variance + state["squares"]) / windows - mean.square()
        scale = (self.variance / variance).sqrt()
        weight = self.prior.logit_weights  # (P, R, C)
        # x becomes mean + (x − mean of the subject) · scale, and the logits are linear in x.
        moved = self.mean - scale * (self.mean + mean)
        return (scale - 1)[..., None] * weight, (moved[..., None] * weight).sum(-2)


class EntropyMinimization(AdaptationMethod):
    label = "by entropy"

    def initial_state(self) -> State:
        n_classes = self.prior.means.shape[-2]
        return {
            "bias": self.prior.means.new_zeros(n_classes),
            "classes": self.prior.means.new_full((n_classes,), 1 / n_classes),
        }

    def update(self, state: State, x: Tensor, p: Tensor) -> State:
        bias, classes = state["bias"], state["classes"]
        classes = classes + DECAY * (p - classes)
        h, log_share = entropy(p)[..., None], classes.clamp(min=TINY).log()
        confidence = p * (p.clamp(min=TINY).log() + h)  # minus the gradient of the entropy of p
        diversity = -p * (log_share - (p * log_share).sum(-1, keepdim=True))  # the gradient of the entropy of `classes`
        n_classes = p.shape[-1]
        is_active = (h < MAX_ENTROPY * math.log(n_classes)) & (classes.amax(-1, keepdim=True) < MAX_CLASS_SHARE)
        return {"bias": (1 - DECAY) * bias + STEP_SIZE * is_active * (confidence + diversity), "classes": classes}

    def correction(self, state: State) -> tuple[Tensor, Tensor]:
        bias = state["bias"][..., None, :] / self.total  # (..., 1, C), for each member
        weight = torch.zeros_like(self.prior.logit_weights)
        return weight.expand(*bias.shape[:-2], *weight.shape), bias.expand(*bias.shape[:-2], *weight.shape[::2])


ADAPTATION_METHODS: dict[str, type[AdaptationMethod]] = {  # in the order in which a run compares them
    "statistics": MomentMatching,
    "self-training": SelfTraining,
    "shift": SharedShift,
    "prototypes": Prototypes,
    "entropy": EntropyMinimization,
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
    """Online adaptation of an ensemble to one subject.

    effects: of the P members of each stack, all with R directions
    weights: (P,) of the members of each stack
    method: one of ADAPTATION_METHODS
    """

    def __init__(self, effects: Sequence[Effects], weights: Sequence[Tensor], method: str = "shift") -> None:
        self.effects, self.weights = list(effects), list(weights)
        self._weights = torch.cat(self.weights)
        self.method = ADAPTATION_METHODS[method](concatenate_stacks(self.effects), float(self._weights.sum()))
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
