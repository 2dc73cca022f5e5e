"""rhythms: canonical correlations of the channels with sine and cosine at given frequencies.

A flickering stimulus evokes EEG at its frequency and multiples of it (Lin et al. 2006). The correlation is that of the
best linear combination of channels, computed in sub-bands with increasing lower limits (filter bank, Chen et al. 2015).
Multiples are given as separate frequencies, so that the classifier learns their weights.

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

LOWS = (3.0, 11.0, 19.0)  # Hz, lower limits of the sub-bands
BEYOND = 1.5  # times the highest frequency: upper limit of all sub-bands
RIDGE = 1e-9  # added to unit variances, so that covariances of identical channels are invertible


@dataclass(frozen=True)
class Rhythms(Representation):
    """Canonical correlations with rhythms; constants are their frequencies in Hz."""

    display_name = "correlations with rhythms"

    required_fields: ClassVar[tuple[str, ...]] = ("sfreq", "constants")
    min_samples: ClassVar[int] = 16
    min_seconds: ClassVar[float] = 2.0

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 1, len(self._bank(times).kept_pairs)

    def values_per_window(self, channels: int, times: int) -> int:
        return 8 * len(LOWS) * channels * max(channels, times)

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
        signals = (windows @ bank.basis.to(windows))[..., None, :, :] * bank.inside.to(windows)  # (..., S, C, M)
        size = signals.square().sum(-1, keepdim=True).sqrt()
        unit = signals / (size + (size == 0).to(size.dtype))
        identity = torch.eye(int(unit.shape[-2]), dtype=unit.dtype, device=unit.device)
        shares = whiten(unit @ unit.transpose(-1, -2) + RIDGE * identity, unit @ bank.waves.to(unit))  # (..., S, C, 2F)
        sine, cosine = shares.chunk(2, -1)
        squares = torch.stack([sine.square(), cosine.square(), sine * cosine]).sum(-2)
        half, cross = 0.5 * (squares[0] - squares[1]), squares[2]
        largest = 0.5 * (squares[0] + squares[1]) + (half.square() + cross.square() + RIDGE**2).sqrt()
        return largest.clamp(max=1.0).sqrt().flatten(-2).index_select(-1, bank.kept_pairs.to(x.device))[..., None, :]


class WaveBank(NamedTuple):
    """Orthonormal basis of M waves with whole numbers of periods, and its S sub-bands and F reference frequencies."""

    basis: Tensor  # (T, M)
    inside: Tensor  # (S, 1, M): 1 if the wave belongs to the sub-band
    waves: Tensor  # (M, 2F): reference sines, then cosines
    kept_pairs: Tensor  # indices of the S · F pairs whose frequency is in the sub-band


def whiten(covariance: Tensor, products: Tensor) -> Tensor:
    """Return L⁻¹ B of covariances L Lᵀ (..., C, C) and B (..., C, K)."""
    root = torch.linalg.cholesky(covariance)
    white: Tensor = torch.linalg.solve_triangular(root, products, upper=False)
    return white


def whiten_by_elimination(covariance: Tensor, products: Tensor) -> Tensor:
    """Compute `whiten` row by row for export, because export formats have no matrix decompositions."""
    channels = int(covariance.shape[-1])
    both = torch.cat([covariance, products], -1)
    rows = []
    for k in range(channels):
        row = both[..., :1, :] / both[..., :1, k : k + 1].sqrt()
        rows.append(row[..., channels:])
        both = both[..., 1:, :] - row[..., k + 1 : channels].transpose(-1, -2) @ row
    return torch.cat(rows, -2)


@cache
def _make_bank(sfreq: float, frequencies: tuple[float, ...], times: int) -> WaveBank:
    highest = max(frequencies, default=0.0)
    if not 0 < min(frequencies, default=0.0) <= highest < sfreq / 2:
        raise UserError(f"represent 'rhythms' needs frequencies between 0 and {sfreq / 2:g} Hz, half the sampling "
                        f"rate; constants is {list(frequencies)}")  # fmt: skip
    time = np.arange(times)
    of_basis = np.arange(1, (times - 1) // 2 + 1) * sfreq / times
    of_basis = of_basis[(of_basis >= LOWS[0]) & (of_basis <= BEYOND * highest)]
    if not len(of_basis):
        raise UserError(f"represent 'rhythms': windows of {times} samples at {sfreq:g} Hz hold no wave between "
                        f"{LOWS[0]:g} and {BEYOND * highest:g} Hz")  # fmt: skip
    angle = 2 * math.pi / sfreq * np.outer(time, of_basis)
    basis = np.concatenate([np.cos(angle), np.sin(angle)], 1) * math.sqrt(2 / times)
    waves = np.zeros((times, 2, len(frequencies)))
    for place, f in enumerate(frequencies):
        phase = 2 * math.pi * f / sfreq * time
        pair = np.stack([np.sin(phase), np.cos(phase)], 1)
        waves[:, :, place] = np.linalg.qr(pair - pair.mean(0))[0]
    inside = np.array([np.tile(of_basis >= low, 2) for low in LOWS], np.float64)
    # The lowest sub-band gets every frequency, because lower ones are visible there if anywhere.
    kept_pairs = [s * len(frequencies) + place for s, low in enumerate(LOWS) for place, f in enumerate(frequencies)
            if s == 0 or (f >= low and inside[s].any())]  # fmt: skip
    arrays = basis, inside[:, None], basis.T @ waves.reshape(times, -1), np.array(kept_pairs)
    return WaveBank(*map(torch.from_numpy, arrays))
