"""A model arranged for one person's windows, a few at a time: the same numbers as in one call, sooner.

Parts of a mixture that differ in their weights alone become one stack of networks. Statistics that several members
share are applied once. Encoders run in the form that is quick for a few windows, and what all members say is combined
by NumPy, which spends less than torch on each of many small arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..models.ensemble import TINY
from ..models.mixture import Mixture, Model
from ..models.stacks import stacks_of
from ..preprocessing import Person
from ..training.centring import CentringRule, stacked_centring
from ..training.days import Days
from ..training.effects import Effects
from .adaptation import Adaptation
from .asking import Recent
from .labels import Labels
from .online import Follow, Said

STEP = 16  # windows worked on at once
Array = NDArray[Any]


class Decoder:
    """Raw windows of one person, in order -> probabilities. It remembers nobody: `follow()` gives what does."""

    def __init__(self, model: Model, *, online: bool = False) -> None:
        """online: of the average that uses a person's windows, which the model must have."""
        parts, powers = model.parts, model.exponents
        if online:
            assert isinstance(model, Mixture), "nothing else has one"
            assert model.online is not None, "asked for where there is one"
            parts, powers = map(list, zip(*model.online.used, strict=True))
        self.stacks, exponents = (list(each) for each in zip(*stacks_of(parts, powers), strict=True))
        self.exponents = torch.cat(exponents)  # (parts,)
        # (parts, P of all stacks)
        self.mean: Tensor = torch.block_diag(*(stack.mean for stack in self.stacks))  # type: ignore[no-untyped-call]
        self.corrected = any(stack.correction is not None for stack in self.stacks)
        # What is multiplied anew with every window, as NumPy takes it.
        self._heads = [tuple(tensor.numpy() for tensor in stack.head(self.corrected)) for stack in self.stacks]
        self._exponents, self._mean = self.exponents.numpy(), self.mean.numpy()
        self._counts = self._exponents @ self._mean  # (P,): of each member's correction
        # Of each stack (P, D, R): the directions of its codes in which people differ.
        self._axes = [stack.effects.projection.numpy() for stack in self.stacks if stack.effects is not None]
        self._moves = np.concatenate(
            [np.full(stack.mean.shape[1], stack.centring is not None) for stack in self.stacks]
        )
        self._moved = (self._mean[:, self._moves] > 0).any(1)  # (parts,)
        # Of stacks whose transforms remember nothing of a person, somebody who serves for everybody.
        self._anybody = [person if not person.state() else None for person in self.follow()]

    def follow(self) -> list[Person]:
        """Somebody new."""
        return [stack.preprocessing.follow() for stack in self.stacks]

    def effects(self) -> tuple[list[Effects], list[Tensor]]:
        """How people differ in the codes of each stack, and what a correction of each member (P,) counts."""
        effects = [stack.effects for stack in self.stacks]
        exponents = torch.split(self.exponents, [len(stack.mean) for stack in self.stacks])
        weights = [own @ stack.mean for own, stack in zip(exponents, self.stacks, strict=True)]
        return [own for own in effects if own is not None], [own.float() for own in weights]

    def adaptation(self, method: str = "shift") -> Adaptation:
        """Follows somebody new in the codes; method: one of ADAPTATION_METHODS."""
        return Adaptation(*self.effects(), method)

    def labels(self, model: Model) -> Labels:
        """What takes labels of somebody new. model: the one that this was made of."""
        effects, weights = self.effects()
        directions = max(own.means.shape[-1] for own in effects)
        days = [stack.days for stack in self.stacks if stack.days is not None]
        together = Days(*map(torch.cat, zip(*days, strict=True))) if len(days) == len(self.stacks) else None
        return Labels(model, [own.wide(directions) for own in effects], weights, together)

    def online(self, rule: CentringRule | tuple[CentringRule, ...]) -> Follow:
        """What follows somebody in the logits of the centred members, by one rule, or by several side by side."""
        centring = stacked_centring([stack.centring for stack in self.stacks if stack.centring is not None])
        return Follow(centring, self._mean[np.ix_(self._moved, self._moves)], self._exponents[self._moved], rule)

    @torch.inference_mode()
    def say(self, X: Tensor) -> Said:
        """Raw windows (n, channels, times) of one person, before anything is known of them."""
        parts = [self._logits(self._codes(piece, self._anybody)) for piece in torch.split(X, STEP)]
        logits = np.concatenate(parts, 1)  # (P of all, n, classes)
        stays, mean = ~self._moves, self._mean[np.ix_(~self._moved, ~self._moves)]
        members, n, classes = logits[stays].shape
        probability = mean @ _softmax(logits[stays]).reshape(members, n * classes)
        settled = self._exponents[~self._moved] @ np.log(np.maximum(probability, TINY))
        return Said(settled.reshape(n, classes), np.ascontiguousarray(logits[self._moves].transpose(1, 0, 2)))

    @torch.inference_mode()
    def next(
        self,
        X: Tensor,
        people: Sequence[Person],
        adaptation: Adaptation | None = None,
        labels: Labels | None = None,
        recent: Recent | None = None,
    ) -> NDArray[np.float64]:
        """The next windows (n, channels, times) of a person -> (n, classes). recent: keeps them for questions."""
        if X.shape[0] <= STEP:
            return self._next(X, people, adaptation, labels, recent)
        pieces = torch.split(X, STEP)
        return np.concatenate([self._next(piece, people, adaptation, labels, recent) for piece in pieces])

    def _next(
        self,
        X: Tensor,
        people: Sequence[Person],
        adaptation: Adaptation | None,
        labels: Labels | None,
        recent: Recent | None,
    ) -> NDArray[np.float64]:
        codes = self._codes(X, people)
        log_p = self._log_p(codes)
        if recent is not None:
            recent.add(X, codes, torch.from_numpy(log_p))
        if labels is not None and labels.counted:
            log_p = labels.correct(self.project(codes), torch.from_numpy(log_p)).numpy()
        if adaptation is not None:
            log_p = adaptation.follow(self.project(codes), torch.from_numpy(log_p)).numpy()
        return _softmax(log_p)

    def read(self, X: Tensor, people: Sequence[Person]) -> tuple[list[Tensor], Tensor]:
        """The next windows (n, channels, times) of a person -> codes of each stack (P, n, D), and log-probabilities
        (n, classes) up to a number for each window."""
        codes = self._codes(X, people)
        return codes, torch.from_numpy(self._log_p(codes))

    def _codes(self, X: Tensor, people: Sequence[Person | None]) -> list[Tensor]:
        """Of each stack (P, n, D). people: need not be there where transforms remember nothing."""
        found = []
        for stack, anybody, own in zip(self.stacks, self._anybody, people, strict=True):
            person = anybody or own
            assert person is not None, "given"
            found.append(stack.codes(person.feed(X)))
        return found

    def _log_p(self, codes: Sequence[Tensor]) -> NDArray[np.float64]:
        """Codes of each stack (P, n, D) -> log-probabilities (n, classes), up to a number for each window."""
        said = self._logits(codes)
        members, n, classes = said.shape
        classes //= 2 if self.corrected else 1
        probability = self._mean @ _softmax(said[..., :classes]).reshape(members, n * classes)
        log_p = self._exponents @ np.log(np.maximum(probability, TINY))
        if self.corrected:
            log_p += self._counts @ said[..., classes:].reshape(members, n * classes)
        found: NDArray[np.float64] = log_p.reshape(n, classes)
        return found

    def _logits(self, codes: Sequence[Tensor]) -> NDArray[np.float64]:
        """(P of all, n, classes), or twice as many classes with corrections."""
        each = [np.matmul(z.numpy(), weight) + bias for z, (weight, bias) in zip(codes, self._heads, strict=True)]
        return (each[0] if len(each) == 1 else np.concatenate(each)).astype(np.float64)

    def project(self, codes: Sequence[Tensor]) -> Tensor:
        """As `Adaptation.project`, which takes as long as following for a single window: (n, P of all stacks, R)."""
        size = self.mean.shape[1], codes[0].shape[1], max(own.shape[2] for own in self._axes)
        found, start = np.zeros(size, dtype=np.float32), 0
        for z, own in zip(codes, self._axes, strict=True):
            stop = start + len(own)
            np.matmul(z.numpy(), own, out=found[start:stop, :, : own.shape[2]])
            start = stop
        return torch.from_numpy(found.transpose(1, 0, 2))


def _softmax(logits: Array) -> NDArray[np.float64]:
    """(..., classes) -> (..., classes)."""
    power: NDArray[np.float64] = np.exp(logits - logits.max(-1, keepdims=True))
    power /= power.sum(-1, keepdims=True)
    return power
