"""First and second moments of the samples under a temporal filter, which determine batch normalization of its output.

A filter w of length K slides over a zero-padded signal ("same", left pad (K-1)//2). Over rows and times the output has
the mean  w·m  and the variance  wᵀ R w - (w·m)², where m (K,) and R (K, K) are moments of the padded windows, so the
filtered signal is not needed. R follows from K autocorrelation lags and products of the samples near the two edges.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from scipy.fft import next_fast_len
from torch import Tensor

from .. import cpu

ROWS_PER_SUM = 64  # number of rows that a kernel sums in float32
MIN_PRODUCTS = 1024  # number of small matrix products that keeps a GPU busy


class SplitWindows(NamedTuple):
    """Windows split into varying channels, and last channels that are constant within each window."""

    signals: Tensor  # (G, B, C, T), channel-major in memory
    constants: Tensor  # (G, B, L) values of the constant channels

    @property
    def n_channels(self) -> int:
        return self.signals.shape[2] + self.constants.shape[2]

    def scale(self, factors: Tensor) -> SplitWindows:
        """Multiply the channels by factors (G, B, C + L)."""
        channels = self.signals.shape[2]
        return SplitWindows(self.signals * factors[..., :channels, None], self.constants * factors[..., channels:])


class Moments(NamedTuple):
    """Moments of padded windows, averaged over `positions` = rows × times."""

    mean: Tensor  # (..., K)
    covariance: Tensor  # (..., K, K) second moment minus the outer product of the mean
    positions: int


def padding(kernel: int) -> tuple[int, int]:
    """Return the numbers of zeros on the left and right with which a filtered signal keeps its length."""
    left = (kernel - 1) // 2
    return left, kernel - 1 - left


def lag_sums(x: Tensor, kernel: int) -> Tensor:
    """Map x (..., rows, times) to sums (..., 1 + K) of x[t] and of x[t] x[t + lag] for K lags."""
    times = x.shape[-1]
    if not x.requires_grad and cpu.is_available(x, taps=kernel):
        pieces = x.reshape(-1, math.gcd(x.shape[-2], ROWS_PER_SUM), times)
        lags = cpu.correlate_gradient(pieces, pieces, kernel, 0).view(*x.shape[:-2], -1, kernel).sum(-2)
    else:
        n = next_fast_len(times + kernel - 1, real=True)
        lags = torch.fft.irfft(torch.fft.rfft(x, n=n).abs().square().sum(-2), n=n)[..., :kernel]
    return torch.cat([x.sum((-2, -1))[..., None], lags], -1)


def edge_sums(x: Tensor, kernel: int) -> Tensor:
    """Map x (..., rows, times) to sums and products (..., E) of first and last samples, which not all taps reach."""
    left, right = padding(kernel)
    if not x.requires_grad and cpu.is_available(x, taps=kernel):
        return cpu.edge_sums(x, left, right, n_sums(kernel) - 1 - kernel)
    tail = x[..., max(x.shape[-1] - left, 0) :].flip(-1)
    sums, products = zip(*(_sum_edge(edge, n) for edge, n in ((x, right), (tail, left))), strict=True)
    upper = [p[..., *torch.triu_indices(*p.shape[-2:], device=x.device)] for p in products]
    edges = torch.cat([*sums, *upper], -1)
    return F.pad(edges, (0, n_sums(kernel) - 1 - kernel - edges.shape[-1]))


def window_sums(x: Tensor, kernel: int) -> Tensor:
    """Map x (..., rows, times) to sums (..., n_sums), which determine the moments and can be added over windows."""
    return torch.cat([lag_sums(x, kernel), edge_sums(x, kernel)], -1)


def constant_sums(constants: Tensor, times: int, kernel: int) -> Tensor:
    """Return the `window_sums` of L rows with constant values (..., L)."""
    row_sums, is_linear = _sums_of_ones(times, kernel, constants.dtype, constants.device)
    total, squares = constants.sum(-1, keepdim=True), constants.square().sum(-1, keepdim=True)
    return torch.where(is_linear, total, squares) * row_sums


@cache
def _sums_of_ones(times: int, kernel: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the `window_sums` of a row of ones, and a mask of the sums that are linear in the samples."""
    sums = window_sums(torch.ones(1, times, dtype=torch.float64), kernel).round()
    return sums.to(device, dtype), find_linear_sums(kernel, device)


@cache
def find_linear_sums(kernel: int, device: torch.device) -> Tensor:
    """Return a mask (n_sums,) of the sums that are linear in the samples."""
    index = torch.arange(n_sums(kernel))
    return ((index == 0) | ((index > kernel) & (index < 2 * kernel))).to(device)


def n_sums(kernel: int) -> int:
    """Return the number of sums of a window, padded with at least one 0 to a multiple of 16."""
    left, right = padding(kernel)
    n = kernel + kernel + (left * (left + 1) + right * (right + 1)) // 2  # total and lags, edge sums, products
    return n // 16 * 16 + 16


@cache
def _moment_indices(kernel: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return indices of window sums: the edge sum of each tap (K,), lags and edge products of two taps (K, K)."""
    left, right = padding(kernel)
    zero, k = n_sums(kernel) - 1, torch.arange(kernel)  # the last sum is 0
    lags = 1 + (k[:, None] - k).abs()
    edges, products = torch.full((kernel,), zero), torch.full((kernel, kernel), zero)
    begin = 1 + kernel
    edges[left + 1 :] = begin + torch.arange(right)  # taps right of the middle do not reach the first samples
    edges[:left] = begin + right + torch.arange(left).flip(0)  # taps left of the middle do not reach the last samples
    begin += right + left
    products[left + 1 :, left + 1 :] = _triangle_indices(right, begin)
    products[:left, :left] = _triangle_indices(left, begin + right * (right + 1) // 2).flip(0, 1)
    return edges.to(device), lags.to(device), products.to(device)


def _triangle_indices(n: int, begin: int) -> Tensor:
    """Return the indices (n, n) of a symmetric matrix whose upper triangle is stored from index `begin` on."""
    i, j = torch.triu_indices(n, n)
    indices = torch.empty(n, n, dtype=torch.long)
    indices[i, j] = indices[j, i] = begin + torch.arange(len(i))
    return indices


def _cumulate_diagonals(a: Tensor) -> Tensor:
    """Map (..., n, n) to cumulative sums along diagonals: out[i, j] = Σ_{s≥0} a[i-s, j-s]."""
    shift = 1
    while shift < a.shape[-1]:  # each pass doubles the number of terms
        a = a + F.pad(a, (shift, 0, shift, 0))[..., : a.shape[-2], : a.shape[-1]]
        shift *= 2
    return a


def _sum_edge(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return cumulative sums (..., n) and diagonal products (..., n, n) of the first n samples of rows."""
    head = x[..., :n]
    if head.shape[-1] < n:
        head = F.pad(head, (0, n - head.shape[-1]))
    pieces = split_rows(head)
    products = (pieces.transpose(-1, -2) @ pieces).sum(-3)
    return pieces.sum(-2).sum(-2).cumsum(-1), _cumulate_diagonals(products)


def split_rows(x: Tensor) -> Tensor:
    """Split (..., rows, n) into (..., pieces, rows / pieces, n); a GPU needs many pieces, a CPU one."""
    pieces, rows = 1, x.shape[-2]
    if x.device.type == "cuda":
        min_pieces = max(MIN_PRODUCTS // max(math.prod(x.shape[:-2]), 1), 1)
        pieces = math.gcd(rows, 1 << (min_pieces.bit_length() - 1))
    return x.reshape(*x.shape[:-2], pieces, rows // pieces, x.shape[-1])


def window_moments(x: Tensor | SplitWindows, kernel: int) -> Moments:
    """Return the moments of padded windows (G, B, C, T) for each of G groups."""
    signals, channels = (x.signals, x.n_channels) if isinstance(x, SplitWindows) else (x, x.shape[2])
    _, batch, _, times = signals.shape
    sums = window_sums(signals.transpose(1, 2).flatten(1, 2), kernel)
    if isinstance(x, SplitWindows):
        sums = sums + constant_sums(x.constants.flatten(1), times, kernel)
    return moments_from_sums(sums, kernel, batch * channels * times)


def moments_from_sums(sums: Tensor, kernel: int, positions: int) -> Moments:
    """Return the moments of windows from sums (..., n_sums); positions: rows × times."""
    edges, lags, products = _moment_indices(kernel, sums.device)
    mean = (sums[..., :1] - sums[..., edges]) / positions
    second_moment = (sums[..., lags] - sums[..., products]) / positions
    return Moments(mean, second_moment - mean[..., :, None] * mean[..., None, :], positions)
