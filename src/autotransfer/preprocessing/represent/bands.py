"""bands, fine_bands: log amplitude of every channel in frequency bands, as recorded and with common average reference.

bands has the classical bands of EEG, fine_bands has bands of 2 Hz. A linear classifier can compute relative power and
differences between hemispheres from logarithms, but not the common average reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from .base import Representation, log_power, subtract_means
from .spectra import Band, Bins, cut_segments, find_bins, fourier_matrix, segment_length

MIN_POWER = 1e-12  # ratio to the mean power of a window below which power is a rounding error


@dataclass(frozen=True)
class Bands(Representation):
    display_name = "band power"
    required_fields: ClassVar[tuple[str, ...]] = ("sfreq",)
    min_samples: ClassVar[int] = 16
    min_seconds: ClassVar[float] = 2.0
    name: ClassVar[str] = "bands"
    bands: ClassVar[tuple[Band, ...]] = ((1, 4), (4, 8), (8, 13), (13, 20), (20, 30), (30, 45))

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return channels * n_references(channels), len(self._bins(times))

    def values_per_window(self, channels: int, times: int) -> int:
        return 8 * channels * times

    def _bins(self, times: int) -> Bins:
        return find_bins(self.name, self.bands, self.rate, times)

    def compute(self, x: Tensor) -> Tensor:
        signals, _ = subtract_means(x)
        if n_references(int(x.shape[-2])) > 1:
            signals = torch.cat([signals, signals - signals.mean(-2, keepdim=True)], -2)
        bins, length = self._bins(int(x.shape[-1])), segment_length(self.rate, int(x.shape[-1]))
        matrix = fourier_matrix(length, sum(bins, ())).to(signals)
        coefficients = cut_segments(signals, length) @ matrix  # (..., C, n, 2 bins)
        power = coefficients.square().mean(-2) @ _averaging_matrix(tuple(map(len, bins))).to(signals)  # (..., C, bands)
        return 0.5 * log_power(power + MIN_POWER * power.mean((-2, -1), keepdim=True))


@dataclass(frozen=True)
class FineBands(Bands):
    display_name = "power in fine bands"
    name: ClassVar[str] = "fine_bands"
    bands: ClassVar[tuple[Band, ...]] = tuple((float(low), float(low + 2)) for low in range(1, 45, 2))


def n_references(channels: int) -> int:
    """Return the number of references: the recorded reference and, for several channels, the common average."""
    return 1 if channels == 1 else 2


@cache
def _averaging_matrix(counts: tuple[int, ...]) -> Tensor:
    """Return a matrix (2 bins, bands) that averages over the cosines and sines of each band; counts: bins per band."""
    columns = (torch.full((count, 1), 1 / count, dtype=torch.float64) for count in counts)
    matrix: Tensor = torch.block_diag(*columns)  # type: ignore[no-untyped-call]  # torch's
    return matrix.repeat(2, 1)
