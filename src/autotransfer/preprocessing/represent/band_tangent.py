"""band_tangent: the tangent vector of covariances in the theta, alpha and beta bands.

A filter bank before the tangent space, in the frequency domain: the covariance of a band is that of the coefficients
of its frequencies in segments of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from .base import Representation, centered
from .spectra import Band, Bins, bands_within, fourier, segment_length, segments
from .tangent import logarithm, logarithm_by_roots, tangent_of

BANDS: tuple[Band, ...] = ((4, 8), (8, 13), (13, 30))


@dataclass(frozen=True)
class BandTangent(Representation):
    display_names = ("Tangent space of bands", "tangent space of bands")
    reads: ClassVar[tuple[str, ...]] = ("sfreq",)
    shortest: ClassVar[int] = 16
    seconds: ClassVar[float] = 2.0

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 1, len(self._bins(times)) * (channels + channels * (channels + 1) // 2)

    def room(self, channels: int, times: int) -> int:
        return 8 * len(BANDS) * channels * max(channels, times)

    def _bins(self, times: int) -> Bins:
        return bands_within("band_tangent", BANDS, self.rate, times)

    def numbers(self, x: Tensor) -> Tensor:
        # Bands of few frequencies have covariances of low rank, whose equal eigenvalues leave eigenvectors no gradient.
        return self._numbers(x, logarithm_by_roots if x.requires_grad else logarithm)

    def numbers_in_graph(self, x: Tensor) -> Tensor:
        return self._numbers(x, logarithm_by_roots)

    def _numbers(self, x: Tensor, log_of: Callable[[Tensor], Tensor]) -> Tensor:
        length, bins = segment_length(self.rate, int(x.shape[-1])), self._bins(int(x.shape[-1]))
        cut = segments(centered(x)[0], length)
        coefficients = cut @ fourier(length, sum(bins, ())).to(cut)  # (..., C, n, 2 bins)
        inside = _inside(tuple(map(len, bins))).to(cut)
        of_bands = (coefficients[..., None, :, :, :] * inside[:, None, None]).flatten(-2)  # (..., bands, C, n · 2 bins)
        samples = int(cut.shape[-2]) * inside.sum(-1)[:, None, None]
        return tangent_of(of_bands, samples, log_of).flatten(-3)[..., None, :]


@cache
def _inside(counts: tuple[int, ...]) -> Tensor:
    """Return a matrix (bands, 2 bins): 1 where a cosine or a sine belongs to the band."""
    of_bin = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return (of_bin == torch.arange(len(counts))[:, None]).to(torch.float64).repeat(1, 2)
