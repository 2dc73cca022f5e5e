"""A model arranged for one person's windows, a few at a time: the same numbers as in one call, sooner.

Parts of a mixture that differ in their weights alone become one stack of networks. Statistics that several members
share are applied once. Encoders run in the form that is quick for a few windows, and what is done to a single one can
be recorded.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..model.encoder import quick
from ..model.encoders import ENCODERS
from ..model.spectral import products
from ..preprocessing import Person
from ..runs.mixture import Mixture, Model
from ..runs.saved_model import TINY, Correction, SavedModel
from ..training.effects import Effects
from ..training.members import Members
from .adaptation import Adaptation

STEP = 16  # windows worked on at once
RECORDED = 3  # times that a recording is run before it is as quick as it gets
Named = TypeVar("Named", Effects, Correction)


class Decoder:
    """Raw windows of one person, in order -> probabilities. It remembers nobody: `follow()` gives what does."""

    def __init__(self, model: Model) -> None:
        places: dict[object, list[int]] = {}
        for place, part in enumerate(model.parts):
            places.setdefault(_likeness(part), []).append(place)
        self.stacks = [Stack([model.parts[place] for place in own]) for own in places.values()]
        exponents = model.exponents if isinstance(model, Mixture) else [1.0]
        order = [place for own in places.values() for place in own]
        self.exponents = torch.tensor([exponents[place] for place in order], dtype=torch.float64)  # (parts,)
        # (parts, P of all stacks)
        self.mean: Tensor = torch.block_diag(*(stack.mean for stack in self.stacks))  # type: ignore[no-untyped-call]
        self.corrected = any(stack.correction is not None for stack in self.stacks)
        self.heads = [stack.head(self.corrected) for stack in self.stacks]
        # Of each stack (P, D, R): the directions of its codes in which people differ.
        self._axes = [stack.effects.projection.numpy() for stack in self.stacks if stack.effects is not None]
        # Stacks whose transforms remember nothing of a person.
        self.still = [not person.state() for person in self.follow()]
        self._recorded: Any = None

    def record(self, channels: int, times: int) -> None:
        """Prepare for windows (channels, times) that come one by one: what is done to a window is recorded, and from
        then on runs without Python, which takes longer than the arithmetic. Networks of the user's own may do
        something else with every window, and stay as they are."""
        if any(stack.setting.encoder not in ENCODERS for stack in self.stacks):
            return
        draw = torch.Generator().manual_seed(0)
        first, second = torch.randn(2, 1, channels, times, generator=draw)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sizes that become constants, as they should
            try:
                traced = torch.jit.trace(_Recorded(self).eval(), self._inputs(first), check_trace=False)  # type: ignore[no-untyped-call]  # torch's
                found = torch.jit.freeze(traced)
            except RuntimeError:  # an encoder that cannot be recorded is run as it is
                return
            inputs = self._inputs(second)
            for _ in range(RECORDED):
                own = found(*inputs)
            wanted = self._work(*inputs)
        if all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(own, wanted, strict=True)):
            self._recorded = found

    def _inputs(self, X: Tensor, people: Sequence[Person] | None = None) -> tuple[Tensor, ...]:
        """For each stack the next windows (n, channels, times), prepared where that moves what is remembered."""
        people = self.follow() if people is None else people
        return tuple(X if still else person.feed(X) for still, person in zip(self.still, people, strict=True))

    def _work(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """All that is not remembered: log-probabilities (n, classes), then the codes of each stack (P, n, D)."""
        codes = []
        for stack, still, x in zip(self.stacks, self.still, inputs, strict=True):
            codes.append(stack.codes(stack.preprocessing.follow().feed(x) if still else x))
        said = [products(z, weight) + bias for z, (weight, bias) in zip(codes, self.heads, strict=True)]
        return self._combined((said[0] if len(said) == 1 else torch.cat(said)).double()), *codes

    def _combined(self, said: Tensor) -> Tensor:
        """What all members say (P, n, classes, or twice as many with corrections) -> log-probabilities (n, classes)."""
        classes = int(said.shape[2]) // (2 if self.corrected else 1)
        size = int(said.shape[1]), classes
        logits = said[..., :classes] if self.corrected else said
        log_p: Tensor = self.exponents @ (self.mean @ logits.softmax(-1).flatten(1)).clamp(min=TINY).log()
        if self.corrected:
            log_p = log_p + (self.exponents @ self.mean) @ said[..., classes:].flatten(1)
        return log_p.view(size)

    def follow(self) -> list[Person]:
        """Somebody new."""
        return [stack.preprocessing.follow() for stack in self.stacks]

    def adaptation(self, way: str = "shift") -> Adaptation:
        """What follows somebody new in the codes, in one of WAYS."""
        effects = [stack.effects for stack in self.stacks]
        exponents = torch.split(self.exponents, [len(stack.mean) for stack in self.stacks])
        weights = [own @ stack.mean for own, stack in zip(exponents, self.stacks, strict=True)]
        return Adaptation([own for own in effects if own is not None], [own.float() for own in weights], way)

    @torch.inference_mode()
    def next(self, X: Tensor, people: Sequence[Person], adaptation: Adaptation | None = None) -> NDArray[np.float64]:
        """The next windows (n, channels, times) of a person -> (n, classes)."""
        if len(X) == 1:
            return self._next(X, people, adaptation).numpy()
        return torch.cat([self._next(piece, people, adaptation) for piece in torch.split(X, STEP)]).numpy()

    def _next(self, X: Tensor, people: Sequence[Person], adaptation: Adaptation | None) -> Tensor:
        codes, log_p = self.read(X, people)
        return (log_p if adaptation is None else adaptation.follow(self._projected(codes), log_p)).softmax(-1)

    def _projected(self, codes: Sequence[Tensor]) -> Tensor:
        """As `Adaptation.project`, which takes as long as following for a single window: (n, P of all stacks, R)."""
        size = self.mean.shape[1], codes[0].shape[1], max(own.shape[2] for own in self._axes)
        found, start = np.zeros(size, dtype=np.float32), 0
        for z, own in zip(codes, self._axes, strict=True):
            stop = start + len(own)
            np.matmul(z.numpy(), own, out=found[start:stop, :, : own.shape[2]])
            start = stop
        return torch.from_numpy(found.transpose(1, 0, 2))

    def read(self, X: Tensor, people: Sequence[Person]) -> tuple[list[Tensor], Tensor]:
        """The next windows (n, channels, times) of a person -> codes of each stack (P, n, D), and log-probabilities
        (n, classes) up to a number for each window."""
        work = self._work if self._recorded is None or len(X) > 1 else self._recorded
        log_p, *codes = work(*self._inputs(X, people))
        return codes, log_p


class _Recorded(nn.Module):
    """A decoder as torch records it."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.work = decoder._work

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.work(*inputs)


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
        self.setting, card = parts[0].setting, parts[0].card
        spec = self.setting.preprocessing
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

    def codes(self, x: Tensor) -> Tensor:
        """Prepared windows (G or 1, n, C, T) -> (P, n, D)."""
        z: Tensor = self.net(x, self.sizes if len(x) > 1 else [sum(self.sizes)])
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


def _likeness(part: SavedModel) -> object:
    """Parts that agree in this have the same transforms, and networks of the same shapes."""
    setting = part.setting
    if setting.encoder not in ENCODERS:  # the user's own, of which nothing is known
        return id(part)
    directions = None if part.effects is None else part.effects.shift.shape[1]
    known = part.correction is not None, directions
    return setting.preprocessing, setting.encoder, setting.network.program(part.card.sfreq), known


def _side_by_side(parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors with the member on axis 0: those of all parts."""
    return {name: torch.cat([own[name] for own in parts]).detach() for name in parts[0]}


def _equal_rows(tensors: dict[str, Tensor], members: int) -> Tensor:
    """Members (P,) numbered so that those whose rows are equal in all tensors have the same number, from 0 on."""
    known: dict[bytes, int] = {}
    rows = [b"".join(tensor[member].numpy().tobytes() for tensor in tensors.values()) for member in range(members)]
    return torch.tensor([known.setdefault(row, len(known)) for row in rows])
