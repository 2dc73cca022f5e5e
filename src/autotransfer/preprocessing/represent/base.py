"""What a representation is: a window as numbers that a linear classifier can read, the same for everybody.

A file has one representation, a frozen dataclass with `shape` and `numbers`. What it must know of the recordings, their
sampling rate or a few constants, it `reads` from the setting; statistics of training rows, without labels, it fits: see
`fit`. Where a person's amplitudes would be factors a representation takes logarithms: what differs between people is
then a shift, which `center` can take away.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ...recordings.chunks import row_chunks
from ..transform import Fitted, Rows, Stage

POINTS = 16  # stretches of a window, and bands of a spectrum
QUIET = float(np.finfo(np.float32).tiny ** 0.5)  # lower bound before a logarithm: that of a flat channel is finite


@dataclass(frozen=True)
class Representation(ABC):
    """Windows (..., C, T) -> (..., R, S). The fields are None unless `reads` names them."""

    sfreq: float | None = None  # Hz
    constants: tuple[float, ...] | None = None  # as the class says: frequencies of stimuli, pairs of channels

    display_names: ClassVar[tuple[str, str] | None] = None  # as a label of reports, and inside a sentence
    reads: ClassVar[tuple[str, ...]] = ()  # the fields that it needs
    shortest: ClassVar[int] = 4  # samples of a window
    seconds: ClassVar[float] = 0.0  # of a window, for which it is meant: a run does not try it on shorter ones
    by_fold: ClassVar[bool] = False  # whether it is fitted, so that windows depend on who is trained on
    costly: ClassVar[bool] = False  # whether a run leaves it to a later stage
    counts: ClassVar[bool] = False  # whether it counts samples, so that rounding may move it by one of them

    @property
    def rate(self) -> float:
        """Return sfreq of a representation that reads it."""
        assert self.sfreq is not None, "it reads it"
        return self.sfreq

    @abstractmethod
    def shape(self, channels: int, times: int) -> tuple[int, int]:
        """Return R and S. Where channels keep apart R is C, else 1."""

    @abstractmethod
    def numbers(self, x: Tensor) -> Tensor:
        """Map windows (..., C, T) in any floating dtype to (..., R, S) in float64."""

    def numbers_in_graph(self, x: Tensor) -> Tensor:
        """Compute `numbers` in operations that every format of export has; overridden where `numbers` has others."""
        return self.numbers(x)

    def room(self, channels: int, times: int) -> int:
        """Return how many numbers one window needs in memory meanwhile; decides how many windows are taken at once."""
        return 4 * channels * max(channels, times)

    def fit(self, stage: Stage, training: Sequence[Rows]) -> Fitted:
        """Fit as `Transform.fit` does. Overridden, with `restore` and `by_fold`, where there are statistics to fit."""
        return EveryWindow(self)

    def restore(self, tensors: dict[str, Tensor]) -> Fitted:
        return EveryWindow(self)


class EveryWindow(Fitted):
    """A representation without statistics."""

    def __init__(self, spec: Representation) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        return in_pieces(x, self.spec.numbers, self.spec.room(int(x.shape[-2]), int(x.shape[-1])))

    def graph(self) -> nn.Module:
        return InGraph(self.spec.numbers_in_graph)


class InGraph(nn.Module):
    """For export: windows (G, N, C, T) -> (G, N, R, S), as (G · N, C, T): with the number of windows on the first axis
    no stride depends on it, which spares an exporter much of its time.

    numbers: what it does to windows (n, C, T)
    """

    def __init__(self, numbers: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.numbers = numbers

    def forward(self, x: Tensor) -> Tensor:
        numbers = self.numbers(x.flatten(0, 1)).to(torch.float32)
        return numbers.view(x.shape[0], -1, *numbers.shape[1:])


def in_pieces(x: Tensor, work: Callable[[Tensor], Tensor], room: int) -> Tensor:
    """Apply work to windows (G, B, C, T), some at a time, by the `room` of each; in the dtype of x."""
    groups, batch = (int(n) for n in x.shape[:2])
    rows = x.flatten(0, 1)
    pieces = [work(rows[piece]).to(x.dtype) for piece in row_chunks(groups * batch, room)]
    numbers = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
    return numbers.view(groups, batch, *numbers.shape[1:])


# ---- functions that several representations share --------------------------------------------------------------------


def stretches(x: Tensor, most: int = POINTS) -> Tensor:
    """Map (..., T) to means (..., S) of `most` stretches, T if that is less, as equal as can be."""
    times = int(x.shape[-1])  # the other sizes are left alone: in a graph the number of windows is not known yet
    count = min(most, times)
    length, longer = divmod(times, count)
    cut = longer * (length + 1)
    parts = [x[..., :cut].reshape(*x.shape[:-1], longer, length + 1)] if longer else []
    parts += [x[..., cut:].reshape(*x.shape[:-1], count - longer, length)]
    return torch.cat([part.mean(-1) for part in parts], -1)


def centered(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return windows (..., C, T) in float64 less their means, and the means (..., C, 1). Exactly 0 for a flat
    channel: less its first sample it has no rounding left to be taken for a signal."""
    exact = x.to(torch.float64)
    first = exact[..., :1]
    moved = exact - first
    mean = moved.mean(-1, keepdim=True)
    return moved - mean, first + mean


def deviation(x: Tensor) -> Tensor:
    """Return the deviation (...) of (..., T) about the mean."""
    return centered(x)[0].square().mean(-1).sqrt()


def log(x: Tensor) -> Tensor:
    """Return the logarithm of what is not negative; finite for 0."""
    return x.clamp(min=QUIET).log()


def log_power(x: Tensor) -> Tensor:
    """Return the logarithm of squares: finite for 0, and as far down as `log` goes for their roots (magnetic fields
    are 1e-13 tesla)."""
    return x.clamp(min=QUIET**2).log()
