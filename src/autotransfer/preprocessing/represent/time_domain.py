"""Features of muscle activity over time, as LibEMG groups them (Eddy et al. 2023), of each channel less its mean.

    hudgins   mean absolute value, zero crossings, slope sign changes, waveform length (Hudgins et al. 1993)
    tdar      the same, and four coefficients of an autoregression by Burg's method
    ls4       L-scale, waveform length, mean square root, Willison amplitude
    ls9       the same, zero crossings, deviation, mean absolute value, deviation of the slope

Amplitudes are logarithms, and counts are shares of the samples. So a person's amplitude is a shift. LibEMG's variance
and integral would be others of these numbers once more, and are left out. Recordings come in any unit, so the threshold
of the Willison amplitude is the deviation of the window and no number of volts; a flat stretch has no change of slope.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import QUIET, Representation, centered, log

ORDER = 4  # of the autoregression


@dataclass(frozen=True)
class TimeDomain(Representation):
    """A representation of every channel by itself."""

    count: ClassVar[int]  # numbers of a channel
    counts: ClassVar[bool] = True

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return channels, self.count

    def room(self, channels: int, times: int) -> int:
        return 8 * channels * times

    def numbers(self, x: Tensor) -> Tensor:
        signal, _ = centered(x)
        return torch.stack(self.features(signal, difference(signal)), -1)

    @abstractmethod
    def features(self, signal: Tensor, slope: Tensor) -> list[Tensor]:
        """Return the numbers (...) of signals (..., T) with mean 0. slope: of the signals, from sample to sample."""


@dataclass(frozen=True)
class Hudgins(TimeDomain):
    display_names = ("Hudgins features", "Hudgins' time-domain features")
    count = 4

    def features(self, signal: Tensor, slope: Tensor) -> list[Tensor]:
        return [log(size(signal)), crossings(signal), crossings(slope), log(size(slope))]


@dataclass(frozen=True)
class TimeDomainAR(Hudgins):
    display_names = ("Time domain and AR", "time-domain features with autoregression")
    count = Hudgins.count + ORDER
    shortest = 2 * ORDER

    def features(self, signal: Tensor, slope: Tensor) -> list[Tensor]:
        return [*super().features(signal, slope), *autoregression(signal).unbind(-1)]


@dataclass(frozen=True)
class LS4(TimeDomain):
    display_names = ("LS4 features", "the four features of LS4")
    count = 4

    def features(self, signal: Tensor, slope: Tensor) -> list[Tensor]:
        jumps = (slope.abs() > deviation_of(signal)[..., None]).to(signal.dtype).mean(-1)
        return [log(l_scale(signal)), log(size(slope)), log(mean_root(signal)), jumps]


@dataclass(frozen=True)
class LS9(LS4):
    display_names = ("LS9 features", "the nine features of LS9")
    count = LS4.count + 4

    def features(self, signal: Tensor, slope: Tensor) -> list[Tensor]:
        amplitudes = [log(of) for of in (deviation_of(signal), size(signal), deviation_of(slope))]
        return [*super().features(signal, slope), crossings(signal), *amplitudes]


def difference(x: Tensor) -> Tensor:
    """Return the difference from sample to sample: (..., T) to (..., T - 1)."""
    return x[..., 1:] - x[..., :-1]


def size(x: Tensor) -> Tensor:
    """Return the mean absolute value of (..., T): (...)."""
    return x.abs().mean(-1)


def deviation_of(x: Tensor) -> Tensor:
    """Return the root mean square of (..., T): (...)."""
    # Away from 0, where the root has no slope; bounded once more because exporters drop a number as small as `tiny`.
    return (x.square().mean(-1) + torch.finfo(x.dtype).tiny).sqrt().clamp(min=QUIET)


def crossings(x: Tensor) -> Tensor:
    """Return the share of steps of (..., T) in which the sign changes: (...). A product of tiny samples would be 0."""
    positive, negative = x > 0, x < 0
    changes = (positive[..., 1:] & negative[..., :-1]) | (negative[..., 1:] & positive[..., :-1])
    return changes.to(x.dtype).mean(-1)


def l_scale(x: Tensor) -> Tensor:
    """Return the second L-moment of (..., T), half the mean distance of two samples: (...)."""
    times = int(x.shape[-1])
    rank = torch.arange(1, times + 1, dtype=x.dtype, device=x.device)
    weight = (2 * rank - times - 1) / (times * (times - 1))
    return (x.sort(-1).values * weight).sum(-1)


def mean_root(x: Tensor) -> Tensor:
    """Return the modulus of the mean of complex square roots of (..., T)."""
    # A root has no slope at 0: what is below the least normal number is 0 in every respect. Where exporters drop that
    # number the result is 0, which `log` bounds as well.
    root = (x.abs() + torch.finfo(x.dtype).tiny).sqrt()
    real, imaginary = (torch.where(sign, root, 0.0).mean(-1) for sign in (x > 0, x < 0))
    return (real.square() + imaginary.square() + torch.finfo(x.dtype).tiny).sqrt()


def autoregression(x: Tensor, order: int = ORDER) -> Tensor:
    """Return coefficients a of x_t + Σ a_i x_{t-i} = e_t for signals (..., T), by Burg's method: (..., order). In
    every step the reflection makes the errors of prediction forwards and backwards least."""
    forward, backward = x[..., 1:], x[..., :-1]
    a = torch.ones_like(x[..., :1])
    for _ in range(order):
        energy = (forward.square() + backward.square()).sum(-1, keepdim=True)
        reflection = -2 * (forward * backward).sum(-1, keepdim=True) / energy.clamp(min=QUIET**2)
        forward, backward = forward + reflection * backward, backward + reflection * forward
        forward, backward = forward[..., 1:], backward[..., :-1]
        longer = torch.cat([a, torch.zeros_like(a[..., :1])], -1)
        a = longer + reflection * longer.flip(-1)
    return a[..., 1:]
