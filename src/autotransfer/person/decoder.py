"""A model arranged for windows of one person in order.

Parts of a mixture that differ in their weights alone become one stack of networks, and statistics that several members
share are applied once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..models.ensemble import TINY, softmax
from ..models.mixture import Mixture, Model
from ..models.stacks import stacks_of
from ..preprocessing import Batch, Person
from ..training.centring import CentringRule, stacked_centring
from ..training.effects import Effects
from .adaptation import Adaptation
from .asking import Recent
from .labels import Labels
from .online import Follow, ZeroShot

STEP = 16  # windows that are decoded at once


class Decoder:
    """Raw windows of one person, in order -> probabilities. Nothing of a person is kept here: see `follow`."""

    def __init__(self, model: Model, *, online: bool = False) -> None:
        """online: decode with the average for sessions, which the model must have."""
        parts, powers = model.parts, model.exponents
        if online:
            assert isinstance(model, Mixture), "nothing else has one"
            assert model.online is not None, "asked for where there is one"
            parts, powers = map(list, zip(*model.online.used, strict=True))
        self.stacks, exponents = map(list, zip(*stacks_of(parts, powers), strict=True))
        self.exponents = torch.cat(exponents)  # (parts,)
        # (parts, P of all stacks)
        self.mean: Tensor = torch.block_diag(*(stack.mean for stack in self.stacks))  # type: ignore[no-untyped-call]
        self.corrected = any(stack.correction is not None for stack in self.stacks)
        self._heads = [stack.head(self.corrected) for stack in self.stacks]
        # Which members are centred (P of all stacks,), and which parts have some (parts,).
        self._centred_members = torch.cat(
            [torch.full((stack.mean.shape[1],), stack.centring is not None) for stack in self.stacks]
        )
        self._centred_parts = (self.mean[:, self._centred_members] > 0).any(1)
        self._nobody = self.follow()  # for the average for sessions, whose transforms remember nothing
        self.keys = _numbers_of([stack.preprocessing.prefixes() for stack in self.stacks])

    def follow(self) -> list[Person]:
        """Return the memory of each stack's transforms for a new person."""
        return [stack.preprocessing.follow() for stack in self.stacks]

    @cached_property
    def effects(self) -> tuple[list[Effects], list[Tensor]]:
        """How people differ in the codes of each stack, with equally many directions, and weights (P,) of its members'
        corrections."""
        exponents = torch.split(self.exponents, [len(stack.mean) for stack in self.stacks])
        weights = [(powers @ stack.mean).float() for powers, stack in zip(exponents, self.stacks, strict=True)]
        effects = [stack.effects for stack in self.stacks if stack.effects is not None]
        directions = max(stack.means.shape[-1] for stack in effects)
        return [stack.wide(directions) for stack in effects], weights

    def adaptation(self, method: str = "shift") -> Adaptation:
        """Return the adaptation of a new person in the codes, by one of ADAPTATION_METHODS."""
        return Adaptation(*self.effects, method)

    def labels(self, model: Model) -> Labels:
        """Return labels of a new person, of whom none is known. model: the one that is decoded."""
        return Labels(model, *self.effects)

    def online(self, rule: CentringRule | tuple[CentringRule, ...]) -> Follow:
        """Return the online ensemble of a new person, whose centred members move by one rule, or by several."""
        centring = stacked_centring([stack.centring for stack in self.stacks if stack.centring is not None])
        mean = self.mean[self._centred_parts][:, self._centred_members]
        return Follow(centring, mean.numpy(), self.exponents[self._centred_parts].numpy(), rule)

    @torch.inference_mode()
    def say(self, X: Tensor) -> ZeroShot:
        """Predict raw windows (n, channels, times) of one person, before anything is known of them."""
        parts = [self._logits(self._codes(piece, self._nobody)) for piece in torch.split(X, STEP)]
        logits = torch.cat(parts, 1)  # (P of all, n, classes)
        others, parts_left = ~self._centred_members, ~self._centred_parts
        settled = self._pool(logits[others], self.mean[parts_left][:, others], self.exponents[parts_left])
        return ZeroShot(settled.numpy(), logits[self._centred_members].transpose(0, 1).contiguous().numpy())

    @torch.inference_mode()
    def next(
        self,
        X: Tensor,
        people: Sequence[Person],
        adaptation: Adaptation | None = None,
        labels: Labels | None = None,
        recent: Recent | None = None,
    ) -> NDArray[np.float64]:
        """Predict the next windows (n, channels, times) of a person: (n, classes). recent: keeps them."""
        probabilities = []
        for piece in torch.split(X, STEP):
            codes, log_p = self.read(piece, people)
            if recent is not None:
                recent.add(piece, codes, log_p)
            if labels is not None and labels.counted:
                log_p = labels.correct(self.project(codes), log_p)
            if adaptation is not None:
                log_p = adaptation.follow(self.project(codes), log_p)
            probabilities.append(softmax(log_p.numpy()))
        return np.concatenate(probabilities)

    @torch.inference_mode()
    def read(self, X: Tensor, people: Sequence[Person]) -> tuple[list[Tensor], Tensor]:
        """The next windows (n, channels, times) of a person -> codes of each stack (P, n, D), and log-probabilities
        (n, classes) up to a constant for each window."""
        codes = self._codes(X, people)
        return codes, self.log_probabilities(codes)

    def _codes(self, X: Tensor, people: Sequence[Person]) -> list[Tensor]:
        """The codes of each stack (P, n, D)."""
        known: dict[object, Batch] = {}  # what several stacks do to the windows first, done once
        return [
            stack.codes(person.feed(X, keys, known))
            for stack, person, keys in zip(self.stacks, people, self.keys, strict=True)
        ]

    def log_probabilities(self, codes: Sequence[Tensor]) -> Tensor:
        """Codes of each stack (P, n, D) -> log-probabilities (n, classes), up to a constant for each window."""
        logits = self._logits(codes)
        if not self.corrected:
            return self._pool(logits, self.mean, self.exponents)
        logits, corrections = logits.chunk(2, -1)
        weights = (self.exponents @ self.mean)[:, None, None]  # (P, 1, 1)
        return self._pool(logits, self.mean, self.exponents) + (weights * corrections).sum(0)

    @staticmethod
    def _pool(logits: Tensor, mean: Tensor, exponents: Tensor) -> Tensor:
        """Logits (P, n, classes) of members of parts (K, P), weighted by exponents (K,) -> log-probabilities (n,
        classes)."""
        probability = mean @ logits.softmax(-1).flatten(1)
        log_p: Tensor = (exponents @ probability.clamp(min=TINY).log()).view(logits.shape[1:])
        return log_p

    def _logits(self, codes: Sequence[Tensor]) -> Tensor:
        """(P of all, n, classes) float64, or twice as many classes with corrections."""
        heads = zip(codes, self._heads, strict=True)
        return torch.cat([torch.baddbmm(bias, z, weight) for z, (weight, bias) in heads]).double()

    def project(self, codes: Sequence[Tensor]) -> Tensor:
        """Codes (P, n, D) of each stack -> (n, P of all stacks, R)."""
        effects, _ = self.effects
        return torch.cat([known.project(z) for known, z in zip(effects, codes, strict=True)]).transpose(0, 1)


def _numbers_of(lists: Sequence[Sequence[object]]) -> list[list[int | None]]:
    """Numbers in place of keys, equal ones for equal keys; None for one that only a single list has."""
    numbers: dict[object, int] = {}
    counts = Counter(key for keys in lists for key in keys)
    return [[numbers.setdefault(key, len(numbers)) if counts[key] > 1 else None for key in keys] for keys in lists]
