"""rhythms: how much of the channels, mixed at best, is a sine: canonical correlations at given frequencies.

What a flickering stimulus evokes in EEG is a rhythm of its frequency and of the multiples of it (Lin et al. 2006). The
correlation with sine and cosine of a frequency is that of the best mixture of channels, in sub-bands that leave out
more and more of what is slow (the filter bank of Chen et al. 2015). Multiples are frequencies of their own here: how
much they count, a classifier learns.

For one frequency the squared correlation is the largest eigenvalue of a matrix 2 × 2, QᵀXᵀ(XXᵀ)⁻¹XQ with Q the
reference waves, orthonormal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...errors import UserError
from .base import Representation, centred

LOWS = (3.0, 11.0, 19.0)  # Hz, where the sub-bands begin
BEYOND = 1.5  # times the highest frequency, where all of them end
RIDGE = 1e-9  # of unit variances: copied channels leave covariances invertible


@dataclass(frozen=True)
class Rhythms(Representation):
    """constants: the frequencies, Hz."""

    reads: ClassVar[tuple[str, ...]] = ("sfreq", "constants")
    shortest: ClassVar[int] = 16

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 1, sum(waves.shape[1] // 2 for _, waves in self._banks(times))

    def room(self, channels: int, times: int) -> int:
        return 8 * channels * max(channels, times)

    def _banks(self, times: int) -> tuple[tuple[Tensor, Tensor], ...]:
        assert self.sfreq is not None and self.constants is not None, "it reads them"  # noqa: PT018
        return _banks(self.sfreq, self.constants, times)

    def numbers(self, x: Tensor) -> Tensor:
        return self._numbers(x, whitened)

    def numbers_in_graph(self, x: Tensor) -> Tensor:
        return self._numbers(x, whitened_by_elimination)

    def _numbers(self, x: Tensor, whiten: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        own, _ = centred(x)
        return torch.cat([self._correlations(own @ basis.to(own), waves.to(own), whiten)
                          for basis, waves in self._banks(int(x.shape[-1]))], -1)[..., None, :]  # fmt: skip

    @staticmethod
    def _correlations(signals: Tensor, waves: Tensor, whiten: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """signals (..., C, M), waves (M, 2F), both in the basis of a sub-band -> (..., F)."""
        size = signals.square().sum(-1, keepdim=True).sqrt()
        unit = signals / (size + (size == 0).to(size.dtype))
        identity = torch.eye(int(unit.shape[-2]), dtype=unit.dtype, device=unit.device)
        shares = whiten(unit @ unit.transpose(-1, -2) + RIDGE * identity, unit @ waves)  # (..., C, 2F), sines first
        sine, cosine = shares.chunk(2, -1)
        half = 0.5 * (sine.square() - cosine.square()).sum(-2)
        cross = (sine * cosine).sum(-2)
        mean = 0.5 * (sine.square() + cosine.square()).sum(-2)
        return (mean + (half.square() + cross.square() + RIDGE**2).sqrt()).clamp(max=1.0).sqrt()


def whitened(covariance: Tensor, products: Tensor) -> Tensor:
    """L⁻¹ B of covariances L Lᵀ (..., C, C) and B (..., C, K)."""
    root = torch.linalg.cholesky(covariance)
    return torch.linalg.solve_triangular(root, products, upper=False)


def whitened_by_elimination(covariance: Tensor, products: Tensor) -> Tensor:
    """The same row by row, for graphs: what formats of export have no decomposition for."""
    channels = int(covariance.shape[-1])
    both = torch.cat([covariance, products], -1)
    rows = []
    for k in range(channels):
        row = both[..., :1, :] / both[..., :1, k : k + 1].sqrt()
        rows.append(row[..., channels:])
        both = both[..., 1:, :] - row[..., k + 1 : channels].transpose(-1, -2) @ row
    return torch.cat(rows, -2)


@cache
def _banks(sfreq: float, frequencies: tuple[float, ...], times: int) -> tuple[tuple[Tensor, Tensor], ...]:
    """Of each sub-band an orthonormal basis (T, M), and in it the waves (M, 2F) of the frequencies that it holds."""
    highest = max(frequencies, default=0.0)
    if not 0 < min(frequencies, default=0.0) <= highest < sfreq / 2:
        raise UserError(f"represent 'rhythms' needs frequencies between 0 and {sfreq / 2:g} Hz, half the sampling "
                        f"rate; constants is {list(frequencies)}")  # fmt: skip
    time, step = np.arange(times), sfreq / times
    banks = []
    for low in LOWS:
        held = [f for f in frequencies if f >= low or low == LOWS[0]]
        bins = np.array([k for k in range(1, (times - 1) // 2 + 1) if low <= k * step <= BEYOND * highest])
        if not held or not len(bins):
            continue
        angle = np.outer(time, bins) * (2 * math.pi / times)
        basis = np.concatenate([np.cos(angle), np.sin(angle)], 1) * math.sqrt(2 / times)
        waves = np.zeros((times, 2, len(held)))
        for place, f in enumerate(held):
            angle = 2 * math.pi * f / sfreq * time
            pair = np.stack([np.sin(angle), np.cos(angle)], 1)
            waves[:, :, place] = np.linalg.qr(pair - pair.mean(0))[0]
        banks.append((torch.from_numpy(basis), torch.from_numpy(basis.T @ waves.reshape(times, -1))))
    if not banks:
        raise UserError(f"represent 'rhythms': windows of {times} samples at {sfreq:g} Hz hold no wave between "
                        f"{LOWS[0]:g} and {BEYOND * highest:g} Hz")  # fmt: skip
    return tuple(banks)
