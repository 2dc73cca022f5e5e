"""A model arranged for a few windows of one person at a time: the same probabilities, sooner.

Parts of a mixture that differ in their weights alone become one stack of networks. Statistics that several members
share are applied once. Encoders run in the form that is quick for a few windows, and NumPy combines the predictions of
all members, because it spends less than torch on each of many small arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..models.ensemble import TINY, softmax
from ..models.mixture import Mixture, Model
from ..models.stacks import stacks_of
from ..preprocessing import Batch, Person
from ..training.centring import CentringRule, stacked_centring
from ..training.days import Days
from ..training.effects import Effects
from .adaptation import Adaptation
from .asking import Recent
from .labels import Labels
from .online import Follow, ZeroShot

STEP = 16  # windows worked on at once


class Decoder:
    """Raw windows of one person, in order -> probabilities. It remembers nobody: see `follow`."""

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
        # Factors of every window, as NumPy takes them.
        self._heads = [tuple(tensor.numpy() for tensor in stack.head(self.corrected)) for stack in self.stacks]
        self._exponents, self._mean = self.exponents.numpy(), self.mean.numpy()
        self._weights = self._exponents @ self._mean  # (P,): of each member's correction
        # Of each stack (P, D, R): the directions of its codes in which people differ.
        self._axes = [stack.effects.projection.numpy() for stack in self.stacks if stack.effects is not None]
        # Which members are centred (P of all stacks,), and which parts have some (parts,).
        centred = [np.full(stack.mean.shape[1], stack.centring is not None) for stack in self.stacks]
        self._centred_members = np.concatenate(centred)
        self._centred_parts = (self._mean[:, self._centred_members] > 0).any(1)
        # Of stacks whose transforms remember nothing of a person: one that serves for everybody.
        self._anybody = [person if not person.state() else None for person in self.follow()]
        self.keys = _numbers_of([stack.preprocessing.prefixes() for stack in self.stacks])

    def follow(self) -> list[Person]:
        """The memory of each stack's transforms for a new person."""
        return [stack.preprocessing.follow() for stack in self.stacks]

    def effects(self) -> tuple[list[Effects], list[Tensor]]:
        """How people differ in the codes of each stack, with equally many directions, and weights (P,) of its members'
        corrections."""
        exponents = torch.split(self.exponents, [len(stack.mean) for stack in self.stacks])
        weights = [(powers @ stack.mean).float() for powers, stack in zip(exponents, self.stacks, strict=True)]
        effects = [stack.effects for stack in self.stacks if stack.effects is not None]
        directions = max(stack.means.shape[-1] for stack in effects)
        return [stack.wide(directions) for stack in effects], weights

    def adaptation(self, method: str = "shift") -> Adaptation:
        """For a new person, who is followed in the codes; method: one of ADAPTATION_METHODS."""
        return Adaptation(*self.effects(), method)

    def labels(self, model: Model) -> Labels:
        """For labels of a new person. model: the one that is decoded."""
        days = [stack.days for stack in self.stacks if stack.days is not None]
        of_all = Days(*map(torch.cat, zip(*days, strict=True))) if len(days) == len(self.stacks) else None
        return Labels(model, *self.effects(), of_all)

    def online(self, rule: CentringRule | tuple[CentringRule, ...]) -> Follow:
        """For a new person, who is followed in the logits of the centred members by one rule, or by several."""
        centring = stacked_centring([stack.centring for stack in self.stacks if stack.centring is not None])
        mean = self._mean[np.ix_(self._centred_parts, self._centred_members)]
        return Follow(centring, mean, self._exponents[self._centred_parts], rule)

    @torch.inference_mode()
    def say(self, X: Tensor) -> ZeroShot:
        """Raw windows (n, channels, times) of one person, before anything is known of them."""
        parts = [self._logits(self._codes(piece, self._anybody)) for piece in torch.split(X, STEP)]
        logits = np.concatenate(parts, 1)  # (P of all, n, classes)
        centred, others = logits[self._centred_members], logits[~self._centred_members]
        mean = self._mean[np.ix_(~self._centred_parts, ~self._centred_members)]
        members, n, classes = others.shape
        probability = mean @ softmax(others).reshape(members, n * classes)
        settled = self._exponents[~self._centred_parts] @ np.log(np.maximum(probability, TINY))
        return ZeroShot(settled.reshape(n, classes), np.ascontiguousarray(centred.transpose(1, 0, 2)))

    @torch.inference_mode()
    def next(
        self,
        X: Tensor,
        people: Sequence[Person],
        adaptation: Adaptation | None = None,
        labels: Labels | None = None,
        recent: Recent | None = None,
    ) -> NDArray[np.float64]:
        """The next windows (n, channels, times) of a person -> probabilities (n, classes). recent: keeps them."""
        probabilities = []
        for piece in (X,) if X.shape[0] <= STEP else torch.split(X, STEP):
            codes = self._codes(piece, people)
            log_p = self.log_probabilities(codes)
            if recent is not None:
                recent.add(piece, codes, torch.from_numpy(log_p))
            if labels is not None and labels.counted:
                log_p = labels.correct(self.project(codes), torch.from_numpy(log_p)).numpy()
            if adaptation is not None:
                log_p = adaptation.follow(self.project(codes), torch.from_numpy(log_p)).numpy()
            probabilities.append(softmax(log_p))
        return probabilities[0] if len(probabilities) == 1 else np.concatenate(probabilities)

    def read(self, X: Tensor, people: Sequence[Person]) -> tuple[list[Tensor], Tensor]:
        """The next windows (n, channels, times) of a person -> codes of each stack (P, n, D), and log-probabilities
        (n, classes) up to a constant for each window."""
        codes = self._codes(X, people)
        return codes, torch.from_numpy(self.log_probabilities(codes))

    def _codes(self, X: Tensor, people: Sequence[Person | None]) -> list[Tensor]:
        """Of each stack (P, n, D). people: of each stack; None where its transforms remember nothing."""
        codes = []
        known: dict[object, Batch] = {}  # what several stacks do to the windows first, done once
        for stack, anybody, somebody, keys in zip(self.stacks, self._anybody, people, self.keys, strict=True):
            person = anybody or somebody
            assert person is not None, "given"
            codes.append(stack.codes(person.feed(X, keys, known)))
        return codes

    def log_probabilities(self, codes: Sequence[Tensor]) -> NDArray[np.float64]:
        """Codes of each stack (P, n, D) -> log-probabilities (n, classes), up to a constant for each window."""
        logits = self._logits(codes)
        members, n, classes = logits.shape
        classes //= 2 if self.corrected else 1
        probability = self._mean @ softmax(logits[..., :classes]).reshape(members, n * classes)
        log_p: NDArray[np.float64] = self._exponents @ np.log(np.maximum(probability, TINY))
        if self.corrected:
            log_p += self._weights @ logits[..., classes:].reshape(members, n * classes)
        return log_p.reshape(n, classes)

    def _logits(self, codes: Sequence[Tensor]) -> NDArray[np.float64]:
        """(P of all, n, classes), or twice as many classes with corrections."""
        heads = zip(codes, self._heads, strict=True)
        logits = [np.matmul(z.numpy(), weight) + bias for z, (weight, bias) in heads]
        return (logits[0] if len(logits) == 1 else np.concatenate(logits)).astype(np.float64)

    @property
    def projected_shape(self) -> tuple[int, int]:
        """(P of all stacks, R): of what `project` gives for a window."""
        return self.mean.shape[1], max(axes.shape[2] for axes in self._axes)

    def project(self, codes: Sequence[Tensor]) -> Tensor:
        """As `Adaptation.project`, which takes as long as following for a single window: (n, P of all stacks, R)."""
        members, directions = self.projected_shape
        projected, start = np.zeros((members, codes[0].shape[1], directions), dtype=np.float32), 0
        for z, axes in zip(codes, self._axes, strict=True):
            stop = start + len(axes)
            np.matmul(z.numpy(), axes, out=projected[start:stop, :, : axes.shape[2]])
            start = stop
        return torch.from_numpy(projected.transpose(1, 0, 2))


def _numbers_of(lists: Sequence[Sequence[object]]) -> list[list[int | None]]:
    """Numbers in place of keys, equal ones for equal keys; None for one that only a single list has."""
    numbers: dict[object, int] = {}
    counts = Counter(key for keys in lists for key in keys)
    return [[numbers.setdefault(key, len(numbers)) if counts[key] > 1 else None for key in keys] for keys in lists]
