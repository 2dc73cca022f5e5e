"""Adaptation without labels: a session follows a person in the latents of a model, window after window.

There are several methods, and held-out people who are played back choose among them (search/online_adaptation.py).
Each turns
the windows so far into a correction of the logits that is linear in the code, 0 as long as nothing is known:

    shift          how far the person's latents lie from those of the training people (training/effects.py). A window
                   counts for each class with the probability that the model gives it, so a person who shows one class
                   alone is not taken for somebody whose classes all look like that one
    self-training  the same, and effects of the person on each class, with predictions as soft labels. These effects
                   count as far as predictions so far are spread over all classes: while one class alone is shown,
                   windows that are mistaken for another would move the wrong class
    prototypes     shift and effects on each class, from windows of which the model is sure (after T3A, Iwasawa and
                   Matsuo 2021)
    statistics     mean and variance of the latents become those of the training people, as in batch normalization with
                   the statistics of the person (after AdaBN, Li et al. 2018). Imbalanced classes mislead it
    entropy        the classes' logits move so that the model is surer of each window, while all classes stay in use
                   (after TENT, Wang et al. 2021, and SHOT, Liang et al. 2020). It pauses while most windows are of one
                   class
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from ..training.effects import PREDICTED_DESIGN_EFFECT, Effects, WindowSums

PREDICTED = 30.0  # windows that count as one for effects on a class that is predicted
SURE = 0.4  # share of the entropy of guessing: above it a window says too little
MOMENTS = 16.0  # windows that the mean and variance of the training people count as
RATE = 0.05  # of a step down the entropy
FORGETTING = 0.02  # share of earlier steps and windows that every window takes away
ONE_SIDED = 0.9  # share of one class among the last windows: above it the entropy method pauses
TINY = 1e-12

State = dict[str, Tensor]  # what is known of a person


class AdaptationMethod(ABC):
    """Method that learns from the unlabeled windows of one person, and returns a correction of the logits.

    P members, R directions of the projected latents (training/effects.py), C classes; `...` are leading axes for people
    who are followed side by side.
    """

    label: ClassVar[str]  # as reports write it

    def __init__(self, everyone: Effects, total: float) -> None:
        """everyone: effects of the P members; total: sum of the weights of their corrections. To add a bias once to the
        logits of the ensemble, give each member bias / total, as Entropy does."""
        self.everyone, self.total = everyone, total

    @abstractmethod
    def begin(self) -> State:
        """Return the state before the first window."""

    @abstractmethod
    def count(self, known: State, x: Tensor, p: Tensor) -> State:
        """Return the state after one more window: its projected latents (..., P, R) and class probabilities (...,
        C)."""

    def posterior(self, known: State) -> Effects:
        """Return effects that include what is known of the person."""
        return self.everyone

    @abstractmethod
    def correction(self, known: State) -> tuple[Tensor, Tensor]:
        """Return weights (..., P, R, C) and bias (..., P, C) that correct the logits of a projected code."""


class Shift(AdaptationMethod):
    label = "by a shift that all classes share"
    classes_known = False

    def begin(self) -> State:
        return dict(self.everyone.no_windows._asdict())

    def count(self, known: State, x: Tensor, p: Tensor) -> State:
        return {"sums": known["sums"] + p[..., None, :, None] * x[..., None, :], "counts": known["counts"] + p}

    def posterior(self, known: State) -> Effects:
        return self.everyone.posterior(
            WindowSums(**known), classes=self.classes_known, design_effect=PREDICTED_DESIGN_EFFECT
        )

    def correction(self, known: State) -> tuple[Tensor, Tensor]:
        return self.everyone.correction(self.posterior(known))


class SelfTraining(Shift):
    label = "by self-training"

    def posterior(self, known: State) -> Effects:
        evidence = WindowSums(**known)
        shifted, moved = super().posterior(known), self.everyone.posterior(evidence, design_effect=PREDICTED)
        counts = evidence.counts
        spread = counts.shape[-1] * counts.amin(-1) / counts.sum(-1).clamp(min=TINY)  # 0: one class alone; 1: all alike
        share = spread[..., None, None]
        return shifted._replace(
            means=torch.lerp(shifted.means, moved.means, share[..., None]),
            shift=torch.lerp(shifted.shift, moved.shift, share),
            interaction=torch.lerp(shifted.interaction, moved.interaction, share),
        )


class Prototypes(Shift):
    label = "by class prototypes"
    classes_known = True

    def count(self, known: State, x: Tensor, p: Tensor) -> State:
        sure = entropy(p) < SURE * math.log(p.shape[-1])
        likeliest = torch.nn.functional.one_hot(p.argmax(-1), p.shape[-1]).to(p)
        return super().count(known, x, likeliest * sure[..., None])


class Statistics(AdaptationMethod):
    label = "by means and covariances"

    def __init__(self, everyone: Effects, total: float) -> None:
        super().__init__(everyone, total)
        self.mean = everyone.means.mean(-2)  # (P, R)
        between = everyone.means.var(-2, correction=0)
        self.variance = 1 + everyone.shift + everyone.interaction + between

    def begin(self) -> State:
        nothing = torch.zeros_like(self.mean)
        return {"sum": nothing, "squares": nothing, "count": nothing.new_zeros(())}

    def count(self, known: State, x: Tensor, p: Tensor) -> State:
        away = x - self.mean
        return {
            "sum": known["sum"] + away,
            "squares": known["squares"] + away.square(),
            "count": known["count"] + 1,
        }

    def correction(self, known: State) -> tuple[Tensor, Tensor]:
        windows = MOMENTS + known["count"][..., None, None]
        mean = known["sum"] / windows  # relative to the training people's
        variance = (MOMENTS * self.variance + known["squares"]) / windows - mean.square()
        scale = (self.variance / variance).sqrt()
        weight = self.everyone.logit_weights  # (P, R, C)
        # x becomes mean + (x − mean of the person) · scale, and the logits are linear in it.
        moved = self.mean - scale * (self.mean + mean)
        return (scale - 1)[..., None] * weight, (moved[..., None] * weight).sum(-2)


class Entropy(AdaptationMethod):
    label = "by entropy"

    def begin(self) -> State:
        n_classes = self.everyone.means.shape[-2]
        return {
            "bias": self.everyone.means.new_zeros(n_classes),
            "classes": self.everyone.means.new_full((n_classes,), 1 / n_classes),
        }

    def count(self, known: State, x: Tensor, p: Tensor) -> State:
        bias, classes = known["bias"], known["classes"]
        classes = classes + FORGETTING * (p - classes)
        doubt, used = entropy(p)[..., None], classes.clamp(min=TINY).log()
        surer = p * (p.clamp(min=TINY).log() + doubt)  # minus the gradient of the entropy of p
        spread = -p * (used - (p * used).sum(-1, keepdim=True))  # minus that of how unevenly classes are used
        n_classes = p.shape[-1]
        moves = (doubt < SURE * math.log(n_classes)) & (classes.amax(-1, keepdim=True) < ONE_SIDED)
        return {"bias": (1 - FORGETTING) * bias + RATE * moves * (surer + spread), "classes": classes}

    def correction(self, known: State) -> tuple[Tensor, Tensor]:
        bias = known["bias"][..., None, :] / self.total  # (..., 1, C), for each member
        weight = torch.zeros_like(self.everyone.logit_weights)
        return weight.expand(*bias.shape[:-2], *weight.shape), bias.expand(*bias.shape[:-2], *weight.shape[::2])


ADAPTATION_METHODS: dict[str, type[AdaptationMethod]] = {  # in the order in which held-out people compare them
    "statistics": Statistics,
    "self-training": SelfTraining,
    "shift": Shift,
    "prototypes": Prototypes,
    "entropy": Entropy,
}
NO_ADAPTATION = "none"


def entropy(p: Tensor) -> Tensor:
    """Return the entropy (...) of probabilities (..., C)."""
    nats: Tensor = torch.special.entr(p).sum(-1)
    return nats


def all_members(stacks: Sequence[Effects]) -> Effects:
    """Return effects of the members of all stacks, with equally many directions; without projections, whose latents
    differ."""
    _, *fields = zip(*stacks, strict=True)
    return Effects(torch.empty(0), *map(torch.cat, fields))


class Adaptation:
    """What is known of one person by their windows so far.

    effects: of the P members of each stack, with equally many directions R; weights: (P,) of each stack, of the
        members' corrections
    method: one of ADAPTATION_METHODS
    """

    def __init__(self, effects: Sequence[Effects], weights: Sequence[Tensor], method: str = "shift") -> None:
        self.effects, self.weights = list(effects), list(weights)
        self._weights = torch.cat(self.weights)
        self.method = ADAPTATION_METHODS[method](all_members(self.effects), float(self._weights.sum()))
        self.restore(self.method.begin())

    def restore(self, known: State) -> None:
        """Continue from a state."""
        self.known = known
        self._correct()

    def _correct(self) -> None:
        """Turn what is known into weights (..., P · R, C) and bias (..., C)."""
        weight, bias = self.method.correction(self.known)
        weight = weight * self._weights[:, None, None]
        self._correction = weight.flatten(-3, -2), (self._weights[:, None] * bias).sum(-2)

    def follow(self, x: Tensor, log_p: Tensor) -> Tensor:
        """Map projected latents (n, ..., P, R) and log-probabilities (n, ..., C) of the next windows, up to a
        constant, to those of the person (n, ..., C). Each is corrected by the windows before it, then counts itself."""
        corrected = []
        for code, of_window in zip(x, log_p, strict=True):
            weight, bias = self._correction
            adapted = of_window + ((code.flatten(-2)[..., None, :] @ weight)[..., 0, :] + bias)
            corrected.append(adapted)
            self.known = self.method.count(self.known, code, adapted.softmax(-1).to(code.dtype))
            self._correct()
        return torch.stack(corrected)

    def calibration(self, latents: Sequence[Tensor], y: Tensor, known: Tensor) -> Tensor:
        """Return what labels would add to the log-probabilities of all windows (n, C): latents (P, n, D) of each stack,
        classes (n,), `known` (n,): which of them are labeled."""
        total = torch.zeros(())
        for effects, z, weights in zip(self.effects, latents, self.weights, strict=True):
            x, n_classes = effects.project(z), effects.means.shape[1]
            evidence = effects.sum_windows(x[:, known], torch.nn.functional.one_hot(y[known], n_classes))
            weight, bias = effects.correction(effects.posterior(evidence))
            total = total + torch.einsum("pnc,p->nc", x @ weight + bias[:, None], weights)
        return total
