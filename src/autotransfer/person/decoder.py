"""A model arranged for one person's windows, a few at a time: the same numbers as in one call, sooner.

Parts of a mixture that differ in their weights alone become one stack of networks. Statistics that several members
share are applied once. Encoders run in the form that is quick for a few windows, and what all members say is combined
by NumPy, which spends less than torch on each of many small arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..model.encoder import quick
from ..model.encoders import ENCODERS
from ..preprocessing import Person
from ..runs.mixture import Mixture, Model
from ..runs.saved_model import TINY, Correction, SavedModel
from ..training.centring import Centring, CentringRule, stacked_centring
from ..training.effects import Effects
from ..training.members import Members
from .adaptation import Adaptation
from .online import Follow, Said

STEP = 16  # windows worked on at once
Named = TypeVar("Named", Effects, Correction, Centring)
Array = NDArray[Any]


class Decoder:
    """Raw windows of one person, in order -> probabilities. It remembers nobody: `follow()` gives what does."""

    def __init__(self, model: Model, *, online: bool = False) -> None:
        """online: of the average that uses a person's windows, which the model must have."""
        self.stacks, exponents = (list(each) for each in zip(*stacks_of(model, online=online), strict=True))
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

    def adaptation(self, way: str = "shift") -> Adaptation:
        """What follows somebody new in the codes, in one of WAYS."""
        effects = [stack.effects for stack in self.stacks]
        exponents = torch.split(self.exponents, [len(stack.mean) for stack in self.stacks])
        weights = [own @ stack.mean for own, stack in zip(exponents, self.stacks, strict=True)]
        return Adaptation([own for own in effects if own is not None], [own.float() for own in weights], way)

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
    def next(self, X: Tensor, people: Sequence[Person], adaptation: Adaptation | None = None) -> NDArray[np.float64]:
        """The next windows (n, channels, times) of a person -> (n, classes)."""
        if X.shape[0] <= STEP:
            return self._next(X, people, adaptation)
        return np.concatenate([self._next(piece, people, adaptation) for piece in torch.split(X, STEP)])

    def _next(self, X: Tensor, people: Sequence[Person], adaptation: Adaptation | None) -> NDArray[np.float64]:
        codes = self._codes(X, people)
        log_p = self._log_p(codes)
        if adaptation is not None:
            log_p = adaptation.follow(self._projected(codes), torch.from_numpy(log_p)).numpy()
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

    def _projected(self, codes: Sequence[Tensor]) -> Tensor:
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


def stacks_of(model: Model, *, online: bool = False) -> list[tuple[Stack, Tensor]]:
    """The parts of a model, those that are alike in all but their weights together, with their exponents (K,). online:
    of its average that uses a person's windows."""
    parts, powers = model.parts, model.exponents if isinstance(model, Mixture) else [1.0]
    if online:
        assert isinstance(model, Mixture), "nothing else has one"
        assert model.online is not None, "asked for where there is one"
        parts, powers = map(list, zip(*model.online.used, strict=True))
    places: dict[object, list[int]] = {}
    for place, part in enumerate(parts):
        places.setdefault(likeness(part), []).append(place)
    exponents = torch.tensor(powers, dtype=torch.float64)
    return [(Stack([parts[place] for place in alike]), exponents[alike]) for alike in places.values()]


class Stack:
    """Ensembles alike in all but their weights: P members in all, those with equal statistics side by side."""

    def __init__(self, parts: Sequence[SavedModel]) -> None:
        statistics = _side_by_side([part.preprocessing.state_dict() for part in parts])
        tensors = _side_by_side([part.members.tensors() for part in parts])
        members = sum(part.card.members for part in parts)
        if parts[0].setting.encoder in ENCODERS:
            group = _equal_rows(statistics, members)
            order = group.argsort(stable=True)
            own = Members(parts[0].setting, parts[0].size, range(members))
            own.load_stacked({name: tensor[order] for name, tensor in tensors.items()})
            net = own.net.eval()
        else:  # the user's own, which cannot be made anew: its members stay as they are
            group = order = torch.arange(members)
            net = parts[0].net
        self.sizes: list[int] = torch.bincount(group).tolist()
        self.together = [sum(self.sizes)]
        first = torch.tensor([group.tolist().index(g) for g in range(len(self.sizes))])
        self.setting, card = parts[0].setting, parts[0].card
        spec = self.setting.preprocessing
        self.network = net
        self.net = quick(net, spec.levels(len(card.channels), card.n_times))
        self.preprocessing = spec.restore({name: tensor[first] for name, tensor in statistics.items()})
        self.weight = tensors["classifier.weight"][order].transpose(1, 2).contiguous()
        self.bias = tensors["classifier.bias"][order, None]
        # (parts, P): the mean over the members of each part.
        whose = torch.arange(len(parts)).repeat_interleave(torch.tensor([part.card.members for part in parts]))
        self.mean = (whose[order] == torch.arange(len(parts))[:, None]).double()
        self.mean /= self.mean.sum(1, keepdim=True)

        self.correction = _in_order([part.correction for part in parts], order)
        self.effects = _in_order([part.effects for part in parts], order)
        self.centring = _in_order([part.centring for part in parts], order)

    def codes(self, x: Tensor) -> Tensor:
        """Prepared windows (G or 1, n, C, T) -> (P, n, D)."""
        z: Tensor = self.net(x, self.sizes if x.shape[0] > 1 else self.together)
        return z

    def head(self, corrected: bool) -> tuple[Tensor, Tensor]:
        """Weight (P, D, classes) and bias (P, 1, classes) of what members say of a code, logits; beside them, if asked
        for, those of the correction of a person, which may be 0."""
        if not corrected:
            return self.weight, self.bias
        own = self.correction
        weight, bias = (0 * self.weight, 0 * self.bias) if own is None else (own.weight, own.bias[:, None])
        return torch.cat([self.weight, weight], -1), torch.cat([self.bias, bias], -1)


def _in_order(parts: Sequence[Named | None], order: Tensor) -> Named | None:
    """Named tuples of tensors with the member on axis 0, one after the other, members in this order; None where a part
    has none."""
    some = [part for part in parts if part is not None]
    if len(some) < len(parts):
        return None
    return type(some[0])(*(torch.cat(own)[order] for own in zip(*some, strict=True)))


def likeness(part: SavedModel) -> object:
    """Parts that agree in this have the same transforms, and networks of the same shapes."""
    setting = part.setting
    if setting.encoder not in ENCODERS:  # the user's own, of which nothing is known
        return id(part)
    directions = None if part.effects is None else part.effects.shift.shape[1]
    known = part.correction is not None, directions, part.centring is not None
    return setting.preprocessing, setting.encoder, setting.network.program(part.card.sfreq), known


def _side_by_side(parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors with the member on axis 0: those of all parts."""
    return {name: torch.cat([own[name] for own in parts]).detach() for name in parts[0]}


def _equal_rows(tensors: dict[str, Tensor], members: int) -> Tensor:
    """Members (P,) numbered so that those whose rows are equal in all tensors have the same number, from 0 on."""
    known: dict[bytes, int] = {}
    rows = [b"".join(tensor[member].numpy().tobytes() for tensor in tensors.values()) for member in range(members)]
    return torch.tensor([known.setdefault(row, len(known)) for row in rows])
