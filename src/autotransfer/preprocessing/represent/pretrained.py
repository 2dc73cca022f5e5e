"""base: what networks that were trained on other studies make of a window: one number for each class of each study, and
how strong the window is.

Amplifiers, skins and electrodes differ between studies, so that networks see every window at one scale; what that hides
comes after their numbers, as a logarithm. The networks are shallow ones (log power of filtered signals), and frozen; a
linear classifier on their numbers, and nothing else, is fitted to the recordings at hand. random_base is the same with
networks that nobody has trained: what a base gains beyond it is owed to the other studies.

A setting names them by a digest and the number of classes, "base:0123456789abcdef:63". The weights come from a base
that was opened in this process (models/base.py), or from the tensors of a saved model, which holds them all.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import UserError, shown
from ...recordings.layout import resampling, starts
from ..transform import Fitted, Rows, Stage
from .base import QUIET, InGraph, Representation, for_groups, in_pieces

KIND_NAMES = {  # as a label, and inside a sentence
    "base": ("Pretrained base", "the pretrained base"),
    "random_base": ("Untrained base", "the base with untrained networks"),
}
NAME = re.compile(r"(base|random_base):([0-9a-f]{16}):([1-9][0-9]{0,4})")
STRETCHES = 8  # of a window, at least: see model/shallow.py
FLOOR = 1e-3  # of a power: see model/power.py
# Weights by name and number of dimensions: M members, F filters of K samples, S stretches, C classes.
DIMENSIONS = {
    "channels": 2,  # (channels of the base, channels of the recordings)
    "rates": 1,  # (3,): Hz of the recordings and of the base, and samples of the base's windows
    "spatial": 3,  # (M, F, channels of the base)
    "temporal": 3,  # (M, F, K), with the normalisation that follows in it
    "shift": 2,  # (M, F)
    "weight": 4,  # (M, C, F, S): of the log powers
    "bias": 2,  # (M, C)
}
Weights = Mapping[str, Tensor]


def is_base(name: object) -> bool:
    """Whether a representation has this name because it is of a base."""
    return isinstance(name, str) and name.partition(":")[0] in KIND_NAMES


def know(name: str, weights: Weights) -> None:
    """Register weights, so that settings of this process can use the name."""
    Pretrained.opened[_parsed(name)[1]] = weights


def _parsed(name: str) -> tuple[str, str, int]:
    """Kind, digest and number of classes."""
    parts = NAME.fullmatch(name)
    if parts is None:
        raise UserError(f"represent is {shown(name)}; a base is written as base:DIGEST:CLASSES")
    return parts[1], parts[2], int(parts[3])


@cache
def pretrained_class(name: str) -> type[Pretrained]:
    """The representation of that name."""
    kind, digest, n_classes = _parsed(name)
    return type("Pretrained", (Pretrained,), {"kind": kind, "digest": digest, "n_classes": n_classes})


@dataclass(frozen=True)
class OfBase(Representation):
    """A representation with tensors of a base: one that was opened in this process, or that a saved model holds."""

    digest: ClassVar[str] = ""
    opened: ClassVar[dict[str, Weights]]  # by the digest that settings have
    what: ClassVar[str]  # in messages

    def numbers(self, x: Tensor) -> Tensor:
        raise AssertionError("it is fitted")

    def fit(self, stage: Stage, training: Sequence[Rows]) -> Fitted:
        if self.digest not in self.opened:
            what = self.what.format(self.digest)
            raise UserError(f"{what} is not open here; give its folder: --base FOLDER, or base=")
        return self.restore(for_groups(self.opened[self.digest], stage, training))


class InLayout(Fitted):
    """Windows with the channels and at the rate of a base. Buffers (G, ...); groups do not differ, so the first is
    used."""

    statistics: ClassVar[tuple[str, ...]] = ("channels", "rates")
    channels: Tensor
    rates: Tensor

    def __init__(self, **tensors: Tensor) -> None:
        super().__init__(**tensors)
        rate, wanted, times = self.rates[0].tolist()
        self.rate, self.wanted, self.times = rate, wanted, round(times)

    def laid_out(self, x: Tensor) -> Tensor:
        """Windows (n, C, T) -> (n, channels of the base, `times` samples or more)."""
        return in_layout(x, self.channels[0], self.rate, self.wanted, self.times)

    @abstractmethod
    def numbers(self, x: Tensor) -> Tensor:
        """Windows (n, C, T) -> (n, R, S)."""

    def graph(self) -> nn.Module:
        return InGraph(self.numbers, self)


@dataclass(frozen=True)
class Pretrained(OfBase):
    kind: ClassVar[str] = "base"
    n_classes: ClassVar[int] = 0
    opened: ClassVar[dict[str, Weights]] = {}
    what: ClassVar[str] = "the base {}"

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 1, self.n_classes + 1

    def restore(self, tensors: dict[str, Tensor]) -> Fitted:
        _check(tensors, self.n_classes)
        return FittedPretrained(**{name: tensors[name] for name in DIMENSIONS})


class FittedPretrained(InLayout):
    statistics = tuple(DIMENSIONS)
    spatial: Tensor
    temporal: Tensor
    shift: Tensor
    weight: Tensor
    bias: Tensor

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        members, filters, _ = self.spatial.shape[1:]
        return in_pieces(x, self.numbers, 3 * members * filters * max(self.times, int(x.shape[-1])))

    def numbers(self, x: Tensor) -> Tensor:
        """Windows (n, C, T) -> logits of the classes and log level (n, 1, classes + 1), the mean over members and
        pieces."""
        x = self.laid_out(x)
        begins = starts(int(x.shape[-1]), self.times)
        pieces = [self._numbers(*at_one_scale(x[..., at : at + self.times])) for at in begins]
        return torch.stack(pieces).mean(0)[:, None]

    def _numbers(self, x: Tensor, level: Tensor) -> Tensor:
        """Windows (n, C, times) at one scale, and their levels (n, 1) -> (n, classes + 1)."""
        spatial, temporal = self.spatial[0].to(x.dtype), self.temporal[0].to(x.dtype)
        filters, kernel = spatial.shape[0] * spatial.shape[1], temporal.shape[-1]
        h = F.conv1d(x, spatial.flatten(0, 1)[..., None])
        h = F.pad(h, ((kernel - 1) // 2, kernel // 2))
        h = F.conv1d(h, temporal.reshape(filters, 1, kernel), self.shift[0].to(x.dtype).flatten(), groups=filters)
        power = (F.avg_pool1d(h.square(), self.times // STRETCHES) + FLOOR).log()  # (n, M · F, S)
        logits = F.linear(power.flatten(1), self.mixed.to(x.dtype), self.bias[0].to(x.dtype).mean(0))
        return torch.cat([logits, level.log()], 1)

    @property
    def mixed(self) -> Tensor:
        """Weights (classes, M · F · S) of all members' powers, of which the mean over members is wanted."""
        members = self.weight.shape[1]
        return self.weight[0].transpose(0, 1).flatten(1) / members


def in_layout(x: Tensor, channels: Tensor, rate: float, wanted: float, times: int) -> Tensor:
    """Windows (n, C, T) at a rate with other channels, (C', C) @ those there are, at the wanted rate and of so many
    samples at least."""
    x = channels.to(x) @ x
    if rate != wanted:
        x = x @ torch.from_numpy(resampling(int(x.shape[-1]), rate, wanted)).to(x)
    missing = times - int(x.shape[-1])
    return x if missing <= 0 else torch.cat([x] * ceil(times / int(x.shape[-1])), -1)[..., :times]


def at_one_scale(x: Tensor) -> tuple[Tensor, Tensor]:
    """Windows (n, C, T) less the mean of each channel, over their deviation in all channels, and that (n, 1)."""
    centred = x - x.mean(-1, keepdim=True)
    level = centred.square().mean((-2, -1)).sqrt().clamp(min=QUIET)
    return centred / level[:, None, None], level[:, None]


def _check(tensors: Weights, n_classes: int) -> None:
    """Raise where tensors (G, ...) cannot be those of a base."""
    shapes = {name: tuple(tensors[name].shape[1:]) for name in DIMENSIONS}
    for name, dimensions in DIMENSIONS.items():
        if len(shapes[name]) != dimensions or not tensors[name].isfinite().all():
            raise ValueError(f"the tensor {name} of a base is not finite or has the shape {shapes[name]}")
    members, filters, channels = shapes["spatial"]
    rate, wanted, times = tensors["rates"][0].tolist() if shapes["rates"] == (3,) else (0.0, 0.0, 0.0)
    stretches = round(times) // (round(times) // STRETCHES) if STRETCHES <= times <= 1e6 else 0
    expected = {
        "channels": (channels, shapes["channels"][1]),
        "temporal": (members, filters, shapes["temporal"][2]),
        "shift": (members, filters),
        "weight": (members, n_classes, filters, stretches),
        "bias": (members, n_classes),
    }
    for name, shape in expected.items():
        if shapes[name] != shape:
            raise ValueError(f"the tensor {name} of a base has the shape {shapes[name]}, not {shape}")
    if not stretches or not rates_fit(rate, wanted):
        raise ValueError(f"the rates of a base are {tensors['rates'][0].tolist()}")


def rates_fit(rate: float, wanted: float) -> bool:
    """Whether windows can be brought from one rate to the other, Hz."""
    return 0 < rate < 1e6 and 0 < wanted < 1e6 and 1e-3 < wanted / rate < 1e3
