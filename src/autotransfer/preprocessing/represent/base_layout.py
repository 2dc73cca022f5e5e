"""base_layout: windows as the networks of a base see them: its channels, its rate and one scale.

Networks that learn on from a base, and networks of the same shape from scratch, read these. A window keeps its length
at the base's rate; where it is shorter than the base's windows it is repeated, as it was in pretraining.

A setting names them by a digest and the shape of a window, "base_layout:0123456789abcdef:8:200". Channels and rates
come from a base that was opened in this process (models/base.py), or from the tensors of a saved model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from ...errors import UserError, shown
from ...recordings.layout import resampling
from ..transform import Fitted
from .base import in_pieces
from .pretrained import InLayout, OfBase, Weights, at_one_scale, rates_fit

PREFIX = "base_layout"
NAME = re.compile(rf"{PREFIX}:([0-9a-f]{{16}}):([1-9][0-9]{{0,3}}):([1-9][0-9]{{0,5}})")


def is_layout(name: object) -> bool:
    """Whether a representation has this name because it is the layout of a base."""
    return isinstance(name, str) and name.partition(":")[0] == PREFIX


def know_layout(digest: str, channels: Tensor, rates: Tensor, n_times: int) -> str:
    """Register a layout, so that settings of this process can use the name, which is returned.

    channels: (channels of the base, channels of the recordings); rates: (3,), Hz of the recordings and of the base, and
    samples of the base's windows; n_times: of the recordings.
    """
    BaseLayout.opened[digest] = {"channels": channels, "rates": rates}
    rate, wanted, times = rates.tolist()
    converted = n_times if rate == wanted else resampling(n_times, rate, wanted).shape[1]
    return f"{PREFIX}:{digest}:{len(channels)}:{max(converted, round(times))}"


@cache
def layout_class(name: str) -> type[BaseLayout]:
    """The representation of that name."""
    parts = NAME.fullmatch(name)
    if parts is None:
        raise UserError(
            f"represent is {shown(name)}; the layout of a base is written as {PREFIX}:DIGEST:CHANNELS:TIMES"
        )
    fields = {"digest": parts[1], "channels": int(parts[2]), "times": int(parts[3])}
    return type("BaseLayout", (BaseLayout,), fields)


@dataclass(frozen=True)
class BaseLayout(OfBase):
    opened: ClassVar[dict[str, Weights]] = {}
    what: ClassVar[str] = "the layout {} of a base"
    channels: ClassVar[int] = 0
    times: ClassVar[int] = 0

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return self.channels, self.times

    def restore(self, tensors: dict[str, Tensor]) -> Fitted:
        channels, rates = tensors["channels"], tensors["rates"]
        if channels.dim() != 3 or channels.shape[1] != self.channels or rates.shape[1:] != (3,):
            shapes = tuple(channels.shape[1:]), tuple(rates.shape[1:])
            raise ValueError(f"the layout of a base has channels and rates of the shapes {shapes}")
        rate, wanted, times = rates[0].tolist()
        if not (rates_fit(rate, wanted) and 1 <= times <= self.times):
            raise ValueError(f"the rates of a base are {rates[0].tolist()}")
        if not channels.isfinite().all():
            raise ValueError("the channels of a base are not finite")
        return FittedLayout(channels=channels, rates=rates)


class FittedLayout(InLayout):
    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        room = 3 * max(self.channels.shape[1:]) * max(self.times, int(x.shape[-1]))
        return in_pieces(x, self.numbers, room)

    def numbers(self, x: Tensor) -> Tensor:
        """Windows (n, C, T) -> (n, channels of the base, times)."""
        return at_one_scale(self.laid_out(x.to(torch.float32)))[0]
