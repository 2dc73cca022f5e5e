"""Parts of a model that differ in their weights alone, as one stack of networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from ..model.encoders import ENCODERS
from ..model.stack import group_of
from ..training.centring import Centring
from ..training.effects import Effects
from ..training.members import Members
from .ensemble import Correction, Ensemble

Named = TypeVar("Named", Effects, Correction, Centring)


def stacks_of(parts: Sequence[Ensemble], exponents: Sequence[float]) -> list[tuple[PartStack, Tensor]]:
    """The parts of a model, those that are alike in all but their weights together, with their exponents (K,)."""
    places: dict[object, list[int]] = {}
    for place, part in enumerate(parts):
        places.setdefault(likeness(part), []).append(place)
    weights = torch.tensor(exponents, dtype=torch.float64)
    return [(PartStack([parts[place] for place in alike]), weights[alike]) for alike in places.values()]


class PartStack:
    """Ensembles alike in all but their weights: P members in all, those with equal statistics side by side."""

    def __init__(self, parts: Sequence[Ensemble]) -> None:
        statistics = _side_by_side([part.preprocessing.state_dict() for part in parts])
        tensors = _side_by_side([part.members.tensors() for part in parts])
        members = sum(part.card.members for part in parts)
        if parts[0].setting.encoder in ENCODERS:
            group = _equal_rows(statistics, members)
            order = group.argsort(stable=True)
            stacked = Members(parts[0].setting, parts[0].size, range(members))
            stacked.load_stacked({name: tensor[order] for name, tensor in tensors.items()})
            net = stacked.net.eval()
        else:  # the user's own, which cannot be made anew: its members stay as they are
            group = order = torch.arange(members)
            net = parts[0].net
        self.sizes: list[int] = torch.bincount(group).tolist()
        first = torch.tensor([group.tolist().index(g) for g in range(len(self.sizes))])
        self.setting = parts[0].setting
        self.network = net
        # For one window, networks with normalizations folded into their filters take half as long as in training.
        self._is_folded = self.setting.encoder in ENCODERS and not self.setting.network.closed_form
        self._encoder = net.graph() if self._is_folded else net
        by_group = {name: tensor[first] for name, tensor in statistics.items()}
        self.preprocessing = self.setting.preprocessing.restore(by_group)
        self.weight = tensors["classifier.weight"][order].transpose(1, 2).contiguous()
        self.bias = tensors["classifier.bias"][order, None]
        # (parts, P): the mean over the members of each part.
        part_of = torch.arange(len(parts)).repeat_interleave(torch.tensor([part.card.members for part in parts]))
        self.mean = (part_of[order] == torch.arange(len(parts))[:, None]).double()
        self.mean /= self.mean.sum(1, keepdim=True)

        self.correction = _in_order([part.correction for part in parts], order)
        self.effects = _in_order([part.effects for part in parts], order)
        self.centring = _in_order([part.centring for part in parts], order)

    def codes(self, x: Tensor) -> Tensor:
        """Prepared windows (G or 1, n, C, T) -> (P, n, D)."""
        if x.shape[0] > 1:
            x = x.index_select(0, group_of(self.sizes))
        z: Tensor = self._encoder(x if self._is_folded or x.shape[0] > 1 else x[0])
        return z

    def head(self, corrected: bool) -> tuple[Tensor, Tensor]:
        """Weight (P, D, classes) and bias (P, 1, classes) from codes to logits. corrected: with those of a person's
        correction after them along the last axis, 0 where there is none."""
        if not corrected:
            return self.weight, self.bias
        known = self.correction
        weight, bias = (0 * self.weight, 0 * self.bias) if known is None else (known.weight, known.bias[:, None])
        return torch.cat([self.weight, weight], -1), torch.cat([self.bias, bias], -1)


def _in_order(parts: Sequence[Named | None], order: Tensor) -> Named | None:
    """Named tuples of tensors with the member on axis 0, one after the other, members in this order; None where a part
    has none."""
    present = [part for part in parts if part is not None]
    if len(present) < len(parts):
        return None
    return type(present[0])(*(torch.cat(tensors)[order] for tensors in zip(*present, strict=True)))


def likeness(part: Ensemble) -> object:
    """Parts that agree in this have the same transforms, and networks of the same shapes."""
    setting = part.setting
    if setting.encoder not in ENCODERS:  # the user's own, of which nothing is known
        return id(part)
    directions = None if part.effects is None else part.effects.shift.shape[1]
    known = part.correction is not None, directions, part.centring is not None
    return setting.preprocessing, setting.encoder, setting.network.program(part.card.sfreq), known


def _side_by_side(parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors by name, with the members of all parts on axis 0."""
    return {name: torch.cat([part[name] for part in parts]).detach() for name in parts[0]}


def _equal_rows(tensors: dict[str, Tensor], members: int) -> Tensor:
    """Members (P,) numbered so that those whose rows are equal in all tensors have the same number, from 0 on."""
    known: dict[bytes, int] = {}
    rows = [b"".join(tensor[member].numpy().tobytes() for tensor in tensors.values()) for member in range(members)]
    return torch.tensor([known.setdefault(row, len(known)) for row in rows])
