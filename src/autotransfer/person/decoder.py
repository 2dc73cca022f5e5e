"""A model arranged for one person's windows, a few at a time: the same numbers as in one call, sooner.

Parts of a mixture that differ in their weights alone become one stack of networks. Statistics that several members
share are applied once. Encoders run in the form that is quick for a few windows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..model.encoder import quick
from ..model.encoders import ENCODERS
from ..model.spectral import products
from ..preprocessing import Person
from ..runs.mixture import TINY, Mixture, Model
from ..runs.saved_model import SavedModel
from ..training.members import Members

STEP = 16  # windows worked on at once


class Decoder:
    """Raw windows of one person, in order -> probabilities. It remembers nobody: `follow()` gives what does."""

    def __init__(self, model: Model) -> None:
        places: dict[object, list[int]] = {}
        for place, part in enumerate(model.parts):
            places.setdefault(_likeness(part), []).append(place)
        self.stacks = [Stack([model.parts[place] for place in own]) for own in places.values()]
        self.mixed = isinstance(model, Mixture)
        exponents = model.exponents if isinstance(model, Mixture) else [1.0]
        order = [place for own in places.values() for place in own]
        self.exponents = torch.tensor([exponents[place] for place in order], dtype=torch.float64)[:, None, None]

    def follow(self) -> list[Person]:
        """Somebody new."""
        return [stack.preprocessing.follow() for stack in self.stacks]

    @torch.inference_mode()
    def next(self, X: Tensor, people: Sequence[Person]) -> NDArray[np.float64]:
        """The next windows (n, channels, times) of a person -> (n, classes)."""
        found = [self._next(piece, people) for piece in torch.split(X, STEP)]
        return (found[0] if len(found) == 1 else torch.cat(found)).numpy()

    def _next(self, X: Tensor, people: Sequence[Person]) -> Tensor:
        own = [stack.probabilities(person.feed(X)) for stack, person in zip(self.stacks, people, strict=True)]
        each = own[0] if len(own) == 1 else torch.cat(own)  # (parts, n, classes)
        if not self.mixed:
            return each[0]
        return (each.clamp(min=TINY).log() * self.exponents).sum(0).softmax(-1)


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
        first = torch.tensor([group.tolist().index(g) for g in range(len(self.sizes))])
        spec, card = parts[0].setting.preprocessing, parts[0].card
        self.net = quick(net, spec.levels(len(card.channels), card.n_times))
        self.preprocessing = spec.restore({name: tensor[first] for name, tensor in statistics.items()})
        self.weight = tensors["classifier.weight"][order].transpose(1, 2).contiguous()
        self.bias = tensors["classifier.bias"][order, None]
        # (parts, P): the mean over the members of each part.
        whose = torch.arange(len(parts)).repeat_interleave(torch.tensor([part.card.members for part in parts]))
        self.mean = (whose[order] == torch.arange(len(parts))[:, None]).double()
        self.mean /= self.mean.sum(1, keepdim=True)

    def probabilities(self, x: Tensor) -> Tensor:
        """Prepared windows (G or 1, n, C, T) -> (parts, n, classes), float64."""
        z = self.net(x, self.sizes if len(x) > 1 else [sum(self.sizes)])
        each = (products(z, self.weight) + self.bias).double().softmax(-1)
        return (self.mean @ each.flatten(1)).view(-1, *each.shape[1:])


def _likeness(part: SavedModel) -> object:
    """Parts that agree in this have the same transforms, and networks of the same shapes."""
    setting = part.setting
    if setting.encoder not in ENCODERS:  # the user's own, of which nothing is known
        return id(part)
    return setting.preprocessing, setting.encoder, setting.network.program(part.card.sfreq)


def _side_by_side(parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors with the member on axis 0: those of all parts."""
    return {name: torch.cat([own[name] for own in parts]).detach() for name in parts[0]}


def _equal_rows(tensors: dict[str, Tensor], members: int) -> Tensor:
    """Members (P,) numbered so that those whose rows are equal in all tensors have the same number, from 0 on."""
    known: dict[bytes, int] = {}
    rows = [b"".join(tensor[member].numpy().tobytes() for tensor in tensors.values()) for member in range(members)]
    return torch.tensor([known.setdefault(row, len(known)) for row in rows])
