"""band_tangent: tangent vectors of covariances in the theta, alpha and beta bands.

The covariance of a band is computed from Fourier coefficients of segments of one second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from .base import Representation, subtract_means
from .spectra import Band, Bins, cut_segments, find_bins, fourier_matrix, segment_length
from .tangent import logarithm, logarithm_by_roots, tangent_vectors

BANDS: tuple[Band, ...] = ((4, 8), (8, 13), (13, 30))


@dataclass(frozen=True)
class BandTangent(Representation):
    display_name = "tangent space of bands"
    required_fields: ClassVar[tuple[str, ...]] = ("sfreq",)
    min_samples: ClassVar[int] = 16
    min_seconds: ClassVar[float] = 2.0

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 1, len(self._bins(times)) * (channels + channels * (channels + 1) // 2)

    def values_per_window(self, channels: int, times: int) -> int:
        return 8 * len(BANDS) * channels * max(channels, times)

    def _bins(self, times: int) -> Bins:
        return find_bins("band_tangent", BANDS, self.rate, times)

    def compute(self, x: Tensor) -> Tensor:
        # Covariances of low rank have equal eigenvalues, for which `eigh` has no gradient.
        return self._compute(x, logarithm_by_roots if x.requires_grad else logarithm)

    def compute_in_graph(self, x: Tensor) -> Tensor:
        return self._compute(x, logarithm_by_roots)

    def _compute(self, x: Tensor, matrix_log: Callable[[Tensor], Tensor]) -> Tensor:
        length, bins = segment_length(self.rate, int(x.shape[-1])), self._bins(int(x.shape[-1]))
        segments = cut_segments(subtract_means(x)[0], length)
        coefficients = segments @ fourier_matrix(length, sum(bins, ())).to(segments)  # (..., C, n, 2 bins)
        in_band = _band_mask(tuple(map(len, bins))).to(segments)
        signals = (coefficients[..., None, :, :, :] * in_band[:, None, None]).flatten(-2)  # (..., bands, C, n · 2 bins)
        samples = int(segments.shape[-2]) * in_band.sum(-1)[:, None, None]
        return tangent_vectors(signals, samples, matrix_log).flatten(-3)[..., None, :]


@cache
def _band_mask(counts: tuple[int, ...]) -> Tensor:
    """Return a mask (bands, 2 bins), 1 if a cosine or sine belongs to the band; counts: bins of each band."""
    bin_band = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return (bin_band == torch.arange(len(counts))[:, None]).to(torch.float64).repeat(1, 2)
