"""band_tangent: the tangent vector of covariances in the theta, alpha and beta bands.

A filter bank before the tangent space, in the frequency domain: the covariance of a band is that of the coefficients
of its frequencies in segments of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Representation, centred
from .spectra import Band, bands_within, fourier, segment_length, segments
from .tangent import logarithm, logarithm_by_roots, tangent_of

BANDS: tuple[Band, ...] = ((4, 8), (8, 13), (13, 30))


@dataclass(frozen=True)
class BandTangent(Representation):
    reads: ClassVar[tuple[str, ...]] = ("sfreq",)
    shortest: ClassVar[int] = 16

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 1, len(self._bins(times)) * (channels + channels * (channels + 1) // 2)

    def _bins(self, times: int) -> list[list[int]]:
        assert self.sfreq is not None, "it reads it"
        return bands_within("band_tangent", BANDS, self.sfreq, times)

    def numbers(self, x: Tensor) -> Tensor:
        # Bands of few frequencies have covariances of low rank, whose equal eigenvalues leave eigenvectors no gradient.
        return self._numbers(x, logarithm_by_roots if x.requires_grad else logarithm)

    def numbers_in_graph(self, x: Tensor) -> Tensor:
        return self._numbers(x, logarithm_by_roots)

    def _numbers(self, x: Tensor, log_of: Callable[[Tensor], Tensor]) -> Tensor:
        assert self.sfreq is not None, "it reads it"
        length = segment_length(self.sfreq, int(x.shape[-1]))
        cut = segments(centred(x)[0], length)
        parts = [(cut @ fourier(length, tuple(band)).to(cut)).flatten(-2) for band in self._bins(int(x.shape[-1]))]
        return torch.cat([tangent_of(part, log_of) for part in parts], -1)
