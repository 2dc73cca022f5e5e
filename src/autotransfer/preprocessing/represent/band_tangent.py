"""band_tangent: tangent vectors of covariances in the theta, alpha and beta bands.

The covariance of a band is computed from the Fourier coefficients of its frequencies in segments of one second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from .base import Representation, subtract_means
from .spectra import Band, Bins, bands_within, fourier, segment_length, segments
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
        return bands_within("band_tangent", BANDS, self.rate, times)

    def compute(self, x: Tensor) -> Tensor:
        # Covariances of low rank have equal eigenvalues, for which `eigh` has no gradient.
        return self._compute(x, logarithm_by_roots if x.requires_grad else logarithm)

    def compute_in_graph(self, x: Tensor) -> Tensor:
        return self._compute(x, logarithm_by_roots)

    def _compute(self, x: Tensor, log_of: Callable[[Tensor], Tensor]) -> Tensor:
        length, bins = segment_length(self.rate, int(x.shape[-1])), self._bins(int(x.shape[-1]))
        cut = segments(subtract_means(x)[0], length)
        coefficients = cut @ fourier(length, sum(bins, ())).to(cut)  # (..., C, n, 2 bins)
        inside = _inside(tuple(map(len, bins))).to(cut)
        of_bands = (coefficients[..., None, :, :, :] * inside[:, None, None]).flatten(-2)  # (..., bands, C, n · 2 bins)
        samples = int(cut.shape[-2]) * inside.sum(-1)[:, None, None]
        return tangent_vectors(of_bands, samples, log_of).flatten(-3)[..., None, :]


@cache
def _inside(counts: tuple[int, ...]) -> Tensor:
    """Return a mask (bands, 2 bins): 1 if a cosine or sine belongs to the band."""
    of_bin = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return (of_bin == torch.arange(len(counts))[:, None]).to(torch.float64).repeat(1, 2)
