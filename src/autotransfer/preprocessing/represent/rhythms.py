"""rhythms: canonical correlations of the channels with sine and cosine at given frequencies.

A flickering stimulus evokes EEG at its frequency and at multiples of this frequency (Lin et al. 2006). Correlations are
maximized over linear combinations of channels, in sub-bands with increasing lower limits (filter bank, Chen et al.
2015). Multiples are given as separate frequencies, so that the classifier learns their weights.

For one frequency the squared correlation is the largest eigenvalue of the 2 × 2 matrix QᵀXᵀ(XXᵀ)⁻¹XQ, where Q are the
orthonormal reference waves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...errors import UserError
from .base import Representation, subtract_means

LOWER_LIMITS = (3.0, 11.0, 19.0)  # lower limits of the sub-bands in Hz
UPPER_RATIO = 1.5  # ratio of the upper limit of all sub-bands to the highest frequency
RIDGE = 1e-9  # added to unit variances, so that covariances of identical channels are invertible


@dataclass(frozen=True)
class Rhythms(Representation):
    """Canonical correlations with rhythms; constants are the frequencies of the rhythms in Hz."""

    display_name = "correlations with rhythms"

    required_fields: ClassVar[tuple[str, ...]] = ("sfreq", "constants")
    min_samples: ClassVar[int] = 16
    min_seconds: ClassVar[float] = 2.0

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 1, len(self._bank(times).kept_pairs)

    def values_per_window(self, channels: int, times: int) -> int:
        return 8 * len(LOWER_LIMITS) * channels * max(channels, times)

    def _bank(self, times: int) -> WaveBank:
        assert self.constants is not None, "required_fields has constants"
        return _make_bank(self.rate, self.constants, times)

    def compute(self, x: Tensor) -> Tensor:
        return self._compute(x, whiten)

    def compute_in_graph(self, x: Tensor) -> Tensor:
        return self._compute(x, whiten_by_elimination)

    def _compute(self, x: Tensor, whiten: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        windows, _ = subtract_means(x)
        bank = self._bank(int(x.shape[-1]))
        signals = (windows @ bank.basis.to(windows))[..., None, :, :] * bank.in_band.to(windows)  # (..., S, C, M)
        size = signals.square().sum(-1, keepdim=True).sqrt()
        unit = signals / (size + (size == 0).to(size.dtype))
        identity = torch.eye(int(unit.shape[-2]), dtype=unit.dtype, device=unit.device)
        covariance = unit @ unit.transpose(-1, -2) + RIDGE * identity
        sine, cosine = whiten(covariance, unit @ bank.waves.to(unit)).chunk(2, -1)  # (..., S, C, F) each
        squares = torch.stack([sine.square(), cosine.square(), sine * cosine]).sum(-2)
        half_difference, cross = 0.5 * (squares[0] - squares[1]), squares[2]
        largest = 0.5 * (squares[0] + squares[1]) + (half_difference.square() + cross.square() + RIDGE**2).sqrt()
        return largest.clamp(max=1.0).sqrt().flatten(-2).index_select(-1, bank.kept_pairs.to(x.device))[..., None, :]


class WaveBank(NamedTuple):
    """Orthonormal basis of M waves with whole numbers of periods, S sub-bands of the basis, and F reference waves."""

    basis: Tensor  # (T, M)
    in_band: Tensor  # (S, 1, M) 1 if the wave belongs to the sub-band, otherwise 0
    waves: Tensor  # (M, 2F) reference sines, then cosines, in the basis
    kept_pairs: Tensor  # indices of the pairs (sub-band, frequency) that are features, out of S · F


def whiten(covariance: Tensor, products: Tensor) -> Tensor:
    """Return L⁻¹ B of covariances L Lᵀ (..., C, C) and B (..., C, K)."""
    root = torch.linalg.cholesky(covariance)
    whitened: Tensor = torch.linalg.solve_triangular(root, products, upper=False)
    return whitened


def whiten_by_elimination(covariance: Tensor, products: Tensor) -> Tensor:
    """Compute `whiten` row by row, because export formats have no matrix decompositions."""
    channels = int(covariance.shape[-1])
    augmented = torch.cat([covariance, products], -1)
    rows = []
    for k in range(channels):
        row = augmented[..., :1, :] / augmented[..., :1, k : k + 1].sqrt()
        rows.append(row[..., channels:])
        augmented = augmented[..., 1:, :] - row[..., k + 1 : channels].transpose(-1, -2) @ row
    return torch.cat(rows, -2)


@cache
def _make_bank(sfreq: float, frequencies: tuple[float, ...], times: int) -> WaveBank:
    highest = max(frequencies, default=0.0)
    if not 0 < min(frequencies, default=0.0) <= highest < sfreq / 2:
        raise UserError(f"represent 'rhythms' needs frequencies between 0 and {sfreq / 2:g} Hz, half the sampling "
                        f"rate; constants is {list(frequencies)}")  # fmt: skip
    time = np.arange(times)
    wave_frequency = np.arange(1, (times - 1) // 2 + 1) * sfreq / times
    wave_frequency = wave_frequency[(wave_frequency >= LOWER_LIMITS[0]) & (wave_frequency <= UPPER_RATIO * highest)]
    if not len(wave_frequency):
        raise UserError(f"represent 'rhythms': windows of {times} samples at {sfreq:g} Hz hold no wave between "
                        f"{LOWER_LIMITS[0]:g} and {UPPER_RATIO * highest:g} Hz")  # fmt: skip
    angle = 2 * math.pi / sfreq * np.outer(time, wave_frequency)
    basis = np.concatenate([np.cos(angle), np.sin(angle)], 1) * math.sqrt(2 / times)
    waves = np.zeros((times, 2, len(frequencies)))
    for index, f in enumerate(frequencies):
        phase = 2 * math.pi * f / sfreq * time
        pair = np.stack([np.sin(phase), np.cos(phase)], 1)
        waves[:, :, index] = np.linalg.qr(pair - pair.mean(0))[0]
    in_band = np.array([np.tile(wave_frequency >= low, 2) for low in LOWER_LIMITS], np.float64)
    # The lowest sub-band has all frequencies, because frequencies below its limit are in no sub-band.
    kept_pairs = [s * len(frequencies) + i for s, low in enumerate(LOWER_LIMITS) for i, f in enumerate(frequencies)
                  if s == 0 or (f >= low and in_band[s].any())]  # fmt: skip
    arrays = basis, in_band[:, None], basis.T @ waves.reshape(times, -1), np.array(kept_pairs)
    return WaveBank(*map(torch.from_numpy, arrays))
