"""Time-domain features of muscle activity: sets of LibEMG (Eddy et al. 2023), computed for each centered channel.

    tdar   mean absolute value, zero crossings, slope sign changes, waveform length (Hudgins et al. 1993), and four
           autoregressive coefficients by Burg's method
    ls9    L-scale, waveform length, mean square root, Willison amplitude, zero crossings, deviation, mean absolute
           value, deviation of the slope

Features of amplitude are logarithms, so that a factor between subjects is a constant, and counts are shares of samples.
LibEMG's variance and integral are left out because they repeat other features. The threshold of the Willison amplitude
is the standard deviation of the window, because the unit is arbitrary. Flat parts have no slope sign changes.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import LOG_FLOOR, Representation, log, subtract_means

ORDER = 4  # order of the autoregressive model


@dataclass(frozen=True)
class TimeDomain(Representation):
    """Time-domain features of each channel."""

    n_features: ClassVar[int]  # per channel
    has_sample_counts: ClassVar[bool] = True

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return channels, self.n_features

    def values_per_window(self, channels: int, times: int) -> int:
        return 8 * channels * times

    def compute(self, x: Tensor) -> Tensor:
        signal, _ = subtract_means(x)
        return torch.stack(self.features(signal, difference(signal)), -1)

    @abstractmethod
    def features(self, signal: Tensor, slope: Tensor) -> list[Tensor]:
        """Return features (...) of centered signals (..., T); slope: differences of successive samples."""


@dataclass(frozen=True)
class TimeDomainAR(TimeDomain):
    display_name = "time-domain features with autoregression"
    n_features = 4 + ORDER
    min_samples = 2 * ORDER

    def features(self, signal: Tensor, slope: Tensor) -> list[Tensor]:
        amplitude, length = log(mean_absolute(signal)), log(mean_absolute(slope))
        return [amplitude, crossings(signal), crossings(slope), length, *autoregression(signal).unbind(-1)]


@dataclass(frozen=True)
class LS9(TimeDomain):
    display_name = "the nine features of LS9"
    n_features = 8

    def features(self, signal: Tensor, slope: Tensor) -> list[Tensor]:
        willison = (slope.abs() > root_mean_square(signal)[..., None]).to(signal.dtype).mean(-1)
        shape = [log(l_scale(signal)), log(mean_absolute(slope)), log(mean_root(signal)), willison, crossings(signal)]
        return [*shape, log(root_mean_square(signal)), log(mean_absolute(signal)), log(root_mean_square(slope))]


def difference(x: Tensor) -> Tensor:
    """Return differences of successive samples: (..., T) -> (..., T − 1)."""
    return x[..., 1:] - x[..., :-1]


def mean_absolute(x: Tensor) -> Tensor:
    """Return the mean absolute values (...) of signals (..., T)."""
    return x.abs().mean(-1)


def root_mean_square(x: Tensor) -> Tensor:
    """Return the root mean squares (...) of signals (..., T)."""
    # `tiny` keeps the gradient finite at 0. Exported graphs round `tiny` to 0, so the result is bounded, too.
    return (x.square().mean(-1) + torch.finfo(x.dtype).tiny).sqrt().clamp(min=LOG_FLOOR)


def crossings(x: Tensor) -> Tensor:
    """Return the share (...) of successive samples of signals (..., T) between which the sign changes."""
    positive, negative = x > 0, x < 0  # no products of samples, which may underflow
    changes = (positive[..., 1:] & negative[..., :-1]) | (negative[..., 1:] & positive[..., :-1])
    return changes.to(x.dtype).mean(-1)


def l_scale(x: Tensor) -> Tensor:
    """Return the second L-moments (...) of signals (..., T), half the mean absolute difference of two samples."""
    times = int(x.shape[-1])
    rank = torch.arange(1, times + 1, dtype=x.dtype, device=x.device)
    weight = (2 * rank - times - 1) / (times * (times - 1))
    return (x.sort(-1).values * weight).sum(-1)


def mean_root(x: Tensor) -> Tensor:
    """Return the modulus (...) of the mean complex square root of signals (..., T)."""
    # `tiny` keeps the gradient finite at 0. Exported graphs round `tiny` to 0, and `log` bounds the result.
    root = (x.abs() + torch.finfo(x.dtype).tiny).sqrt()
    real, imaginary = (torch.where(has_sign, root, 0.0).mean(-1) for has_sign in (x > 0, x < 0))
    return (real.square() + imaginary.square() + torch.finfo(x.dtype).tiny).sqrt()


def autoregression(x: Tensor, order: int = ORDER) -> Tensor:
    """Return coefficients a (..., order) of x_t + Σ a_i x_{t-i} = e_t for signals (..., T), by Burg's method."""
    forward, backward = x[..., 1:], x[..., :-1]
    a = torch.ones_like(x[..., :1])
    for _ in range(order):
        energy = (forward.square() + backward.square()).sum(-1, keepdim=True)
        reflection = -2 * (forward * backward).sum(-1, keepdim=True) / energy.clamp(min=LOG_FLOOR**2)
        forward, backward = forward + reflection * backward, backward + reflection * forward
        forward, backward = forward[..., 1:], backward[..., :-1]
        extended = torch.cat([a, torch.zeros_like(a[..., :1])], -1)
        a = extended + reflection * extended.flip(-1)
    return a[..., 1:]
