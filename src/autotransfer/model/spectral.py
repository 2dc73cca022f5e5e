"""Filters along time by way of their spectra: for a few windows and many networks on a CPU.

In training the filters change with every step, and matrix products are quickest. In use they stay: their spectra are
worked out once, mixtures of channels are taken of the windows' spectra, and one transform back gives all signals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy.fft import next_fast_len
from torch import Tensor
from torch.fft import irfft, rfft

from .moments import padding

ROOT = math.log2(math.e)


def transform_length(times: int, kernel: int) -> int:
    """Of signals (..., times) whose end must not run into their beginning: the least even 2ᵃ3ᵇ5ᶜ."""
    least = max(times + max(padding(kernel)), kernel)
    return 2 * int(next_fast_len((least + 1) // 2, real=True))


def spectra(filters: Tensor, length: int) -> Tensor:
    """Filters (..., K), applied as `filter_times` does -> what a signal's spectrum is multiplied by, complex64."""
    left, _ = padding(filters.shape[-1])
    placed = torch.zeros(*filters.shape[:-1], length, dtype=torch.float64)
    placed[..., : filters.shape[-1]] = filters.double()
    factors: Tensor = rfft(placed.roll(-left, -1)).conj().resolve_conj().to(torch.complex64)
    return factors


def products(a: Tensor, b: Tensor) -> Tensor:
    """(P, i, j) × (P, j, k) -> (P, i, k). NumPy spends less than torch on each of many small matrices."""
    return torch.from_numpy(np.matmul(a.numpy(), b.numpy()))


class MixedFilters:
    """P members with F filters each: a mixture of channels (P, F, C), a kernel along time (P, F, K), a constant (P, F).

    n_constant: channels, the last ones, that have one value throughout a window. What a filter makes of a constant is
    known beforehand, so that only their sum is worked out.
    """

    def __init__(
        self, spatial: Tensor, temporal: Tensor, constant: Tensor | None, times: int, n_constant: int = 0
    ) -> None:
        self.times, self.length = times, transform_length(times, temporal.shape[-1])
        self.members, self.filters, self.channels = *spatial.shape[:2], spatial.shape[2] - n_constant
        rows = spatial.detach().float().flatten(0, 1)
        self.spatial, self.constant_spatial = (
            rows[:, : self.channels].contiguous(),
            rows[:, self.channels :].contiguous(),
        )
        self.spectra = spectra(temporal, self.length)[:, :, None]  # (P, F, 1, m)
        ones = rfft(torch.ones(times, dtype=torch.float64), self.length).to(torch.complex64)
        self.response = irfft(ones * self.spectra, self.length)[..., :times].contiguous() if n_constant else None
        # The first entry of a spectrum is the sum of its signal.
        self.constant = None if constant is None else (constant.double() * self.length).float()[..., None]

    def __call__(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """Windows (G, n, C, T), each of the next so many members -> signals (P, F, n, T)."""
        n = int(x.shape[1])
        spectrum = torch.view_as_real(rfft(x[:, :, : self.channels].transpose(1, 2), self.length)).flatten(2)
        # (G, C, n·m·2) -> (P, F, n, m, 2)
        mixed = self._mixed(self.spatial, spectrum, sizes).view(self.members, self.filters, n, -1, 2)
        filtered = torch.view_as_complex(mixed).mul_(self.spectra)
        if self.constant is not None:
            torch.view_as_real(filtered)[..., 0, 0] += self.constant
        signals: Tensor = irfft(filtered, self.length)
        signals = signals[..., : self.times]
        if self.response is None:
            return signals
        level = self._mixed(self.constant_spatial, x[:, :, self.channels :, 0].transpose(1, 2), sizes)
        constants: Tensor = self.response * level.view(self.members, self.filters, n, 1)
        return constants.add_(signals)

    def _mixed(self, weight: Tensor, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """Rows (P·F, C) of all members, each times the matrix of its group, (G, C, k) -> (P·F, k)."""
        mixed = x.new_empty(len(weight), int(x.shape[-1]))
        start = 0
        for of_group, size in zip(x, sizes, strict=True):
            rows = slice(start * self.filters, (start + size) * self.filters)
            torch.mm(weight[rows], of_group, out=mixed[rows])
            start += size
        return mixed


class FilteredMixtures:
    """The other way round: P members filter W signals each, (P, W, K), and mix them, (P, F, W), with a constant."""

    def __init__(self, temporal: Tensor, mixing: Tensor, constant: Tensor, times: int) -> None:
        self.times, self.length = times, transform_length(times, temporal.shape[-1])
        self.spectra = spectra(temporal, self.length)[:, :, None]
        self.mixing = mixing.float().contiguous()
        self.constant = (constant.double() * self.length).float()[..., None]

    def __call__(self, h: Tensor) -> Tensor:
        """Signals (P, W, n, T) -> (P, F, n, T)."""
        filtered = torch.view_as_real(rfft(h, self.length).mul_(self.spectra)).flatten(2)
        mixed = products(self.mixing, filtered).view(*self.mixing.shape[:2], int(h.shape[2]), -1, 2)
        mixed[..., 0, 0] += self.constant
        signals: Tensor = irfft(torch.view_as_complex(mixed), self.length)
        return signals[..., : self.times]


def elu_mean(h: Tensor, pool: int) -> Tensor:
    """Signals (..., T) times log₂ e -> the mean of ELU over `pool` neighbours (..., T // pool). A power of two is
    quicker than an exponential."""
    size = [int(n) for n in h.shape]
    steps = size[-1] // pool
    used = h[..., : steps * pool]
    value = torch.add(used.clamp(max=0.0).exp2_(), used.clamp(min=0.0), alpha=1 / ROOT)
    parts = value.view(*size[:-1], steps, pool)
    total: Tensor = parts[..., 0] + parts[..., 1] if pool > 1 else parts[..., 0].clone()
    for i in range(2, pool):  # slices add faster than a strided reduction of so few elements
        total += parts[..., i]
    return total.div_(pool).sub_(1.0)


def mean_square(v: Tensor, length: int) -> Tensor:
    """Signals (..., T) -> mean squares of stretches of so many samples (..., T // length)."""
    size = [int(n) for n in v.shape]
    steps = size[-1] // length
    stretches = v[..., : steps * length].reshape(*size[:-1], steps, length)
    norm: Tensor = torch.linalg.vector_norm(stretches, dim=-1)
    return norm.square_().div_(length)
