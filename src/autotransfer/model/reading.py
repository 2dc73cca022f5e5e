"""How EEGNet may read its windows: compressed, or every window standardised by itself with its levels beside it.

A temporal filter and ELU see shapes well and amplitudes badly. In muscle activity amplitude says most, and differs
between people by a factor, which compression makes a summand. In slow signals level and spread of a whole window say
something that its shape does not: read apart, neither drowns the other.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

FLAT = 1e-4  # a channel that varies by less, in units of the training subjects' deviation, counts as flat
QUIET = 1e-3  # added to deviations before their logarithm


class Reading(NamedTuple):
    compress: float | None = None  # μ
    levels: bool = False

    @property
    def as_is(self) -> bool:
        return self.compress is None and not self.levels

    def inputs(self, channels: int) -> int:
        """How many signals the network has for so many channels."""
        return channels * (3 if self.levels else 1)


def compressed(x: Tensor, strength: float) -> Tensor:
    """sign(x) log(1 + μ|x|) / log(1 + μ): 0 and ±1 stay, small values grow, large ones shrink."""
    return torch.log1p(x.abs() * strength) * torch.sign(x) / math.log1p(strength)


def parted(x: Tensor) -> tuple[Tensor, Tensor]:
    """Windows (..., C, T) as shapes (..., C, T), each with mean 0 and deviation 1, and levels (..., 2C, T): mean and
    logarithm of the deviation of every channel, at all times the same."""
    exact = x.double()  # what float32 leaves of a flat channel less its mean would become its shape
    mean = exact.mean(-1, keepdim=True)
    centred = exact - mean
    deviation = centred.square().mean(-1, keepdim=True).sqrt()
    levels = torch.cat([mean, (deviation + QUIET).log()], -2).to(x.dtype)
    return (centred / deviation.clamp(min=FLAT)).to(x.dtype), levels.expand(*levels.shape[:-1], x.shape[-1])


def read(x: Tensor, reading: Reading) -> Tensor:
    """Standardised windows (..., C, T) as the network has them: (..., C, T), or (..., 3C, T) with the levels."""
    signal, levels = parted(x) if reading.levels else (x, None)
    if reading.compress is not None:
        signal = compressed(signal, reading.compress)
    return signal if levels is None else torch.cat([signal, levels], -2)
