"""First and second moments of the windows a temporal filter sees: what its batch normalization needs.

A filter w of length K slides over a zero-padded signal ("same", left pad (K-1)//2). Over rows and
times its output has the mean  w·m  and the variance  wᵀ R w - (w·m)²,  where m (K,) and R (K, K) are
moments of the padded windows: data alone, so no filtered signal has to exist. R follows from K
autocorrelation lags and from products of the few samples near the two edges.
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

ROWS_PER_SUM = 64  # rows that a kernel sums up in float32
MIN_PRODUCTS = 1024  # small ones, that keep a GPU busy


class SplitWindows(NamedTuple):
    """Windows whose last channels have one value each throughout a window."""

    signals: Tensor  # (G, B, C, T) the channels before these, channel-major in memory
    constants: Tensor  # (G, B, L) the values

    @property
    def n_channels(self) -> int:
        return self.signals.shape[2] + self.constants.shape[2]

    def times(self, factors: Tensor) -> SplitWindows:
        """Return every channel multiplied by its factor (G, B, C + L)."""
        channels = self.signals.shape[2]
        return SplitWindows(self.signals * factors[..., :channels, None], self.constants * factors[..., channels:])


class Moments(NamedTuple):
    """Moments of the padded windows of a batch, averaged over `positions` = rows × times."""

    mean: Tensor  # (..., K)
    covariance: Tensor  # (..., K, K) second moment minus the outer product of the mean
    positions: int


def padding(kernel: int) -> tuple[int, int]:
    """Return zeros to the left and right of a signal that keep its length ("same")."""
    left = (kernel - 1) // 2
    return left, kernel - 1 - left


def lag_sums(x: Tensor, kernel: int) -> Tensor:
    """Map x (..., rows, times) to (..., 1 + K), sums over rows and times of x[t] and of x[t] x[t + lag]. By FFT: one
    transform instead of K products; in float32 on a CPU by a kernel, which takes a quarter of the time."""
    times = x.shape[-1]
    if not x.requires_grad and cpu.available(x, taps=kernel):
        pieces = x.reshape(-1, math.gcd(x.shape[-2], ROWS_PER_SUM), times)
        lags = cpu.correlate_gradient(pieces, pieces, kernel, 0).view(*x.shape[:-2], -1, kernel).sum(-2)
    else:
        n = next_fast_len(times + kernel - 1, real=True)
        lags = torch.fft.irfft(torch.fft.rfft(x, n=n).abs().square().sum(-2), n=n)[..., :kernel]
    return torch.cat([x.sum((-2, -1))[..., None], lags], -1)


def edge_sums(x: Tensor, kernel: int) -> Tensor:
    """Map x (..., rows, times) to (..., E): what windows that start inside the padding miss, on the left and on the
    right.

    The sums first, then the products above the diagonal, and zeros up to `n_sums`.
    """
    left, right = padding(kernel)
    if not x.requires_grad and cpu.available(x, taps=kernel):
        return cpu.edge_sums(x, left, right, n_sums(kernel) - 1 - kernel)
    tail = x[..., max(x.shape[-1] - left, 0) :].flip(-1)  # the same, seen from the other end
    sums, products = zip(*(_sum_edge(edge, n) for edge, n in ((x, right), (tail, left))), strict=True)
    upper = [p[..., *torch.triu_indices(*p.shape[-2:], device=x.device)] for p in products]
    edges = torch.cat([*sums, *upper], -1)
    return F.pad(edges, (0, n_sums(kernel) - 1 - kernel - edges.shape[-1]))


def window_sums(x: Tensor, kernel: int) -> Tensor:
    """Map x (..., rows, times) to (..., n_sums): all that its moments need. Sums of several windows are those of
    all."""
    return torch.cat([lag_sums(x, kernel), edge_sums(x, kernel)], -1)


def constant_sums(constants: Tensor, times: int, kernel: int) -> Tensor:
    """Map constants (..., L) to (..., n_sums): the sums of L rows that have one value each, at so many times."""
    one, linear = _sums_of_ones(times, kernel, constants.dtype, constants.device)
    total, squares = constants.sum(-1, keepdim=True), constants.square().sum(-1, keepdim=True)
    return torch.where(linear, total, squares) * one


@cache
def _sums_of_ones(times: int, kernel: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the sums (n_sums,) of a row of ones, and which of them are of samples, not of products of two."""
    sums = window_sums(torch.ones(1, times, dtype=torch.float64), kernel).round()  # whole numbers
    return sums.to(device, dtype), find_linear_sums(kernel, device)


@cache
def find_linear_sums(kernel: int, device: torch.device) -> Tensor:
    """Tell which sums (n_sums,) are of samples, not of products: the total, and what windows miss at the edges."""
    place = torch.arange(n_sums(kernel))
    return ((place == 0) | ((place > kernel) & (place < 2 * kernel))).to(device)


def split_window_moments(x: SplitWindows, kernel: int) -> Moments:
    """Return moments of the padded windows of each of G groups."""
    _, batch, _, times = x.signals.shape
    rows = x.signals.transpose(1, 2).flatten(1, 2)
    sums = window_sums(rows, kernel) + constant_sums(x.constants.flatten(1), times, kernel)
    return moments_from_sums(sums, kernel, batch * x.n_channels * times)


def n_sums(kernel: int) -> int:
    """Return the number of sums of a window: with a zero at the end, and a multiple of 16, as a GPU reads them best."""
    left, right = padding(kernel)
    used = kernel + kernel + (left * (left + 1) + right * (right + 1)) // 2  # total and lags, edges, products
    return used // 16 * 16 + 16


@cache
def _moment_indices(kernel: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return indices into the sums of a window: of the sum that the mean at tap k lacks (K,), and for each pair of
    taps (K, K) of their lag and of the product that it lacks. Where nothing is lacking they point at the zero at the
    end."""
    left, right = padding(kernel)
    zero, k = n_sums(kernel) - 1, torch.arange(kernel)
    lags = 1 + (k[:, None] - k).abs()
    missed, products = torch.full((kernel,), zero), torch.full((kernel, kernel), zero)
    begin = 1 + kernel
    missed[left + 1 :] = begin + torch.arange(right)  # windows right of the middle miss the first samples
    missed[:left] = begin + right + torch.arange(left).flip(0)  # those left of it the last
    begin += right + left
    products[left + 1 :, left + 1 :] = _triangle_indices(right, begin)
    products[:left, :left] = _triangle_indices(left, begin + right * (right + 1) // 2).flip(0, 1)
    return missed.to(device), lags.to(device), products.to(device)


def _triangle_indices(n: int, begin: int) -> Tensor:
    """Return the places (n, n) from `begin` on of a symmetric matrix of which the upper half is kept."""
    i, j = torch.triu_indices(n, n)
    places = torch.empty(n, n, dtype=torch.long)
    places[i, j] = places[j, i] = begin + torch.arange(len(i))
    return places


def _cumulate_diagonals(a: Tensor) -> Tensor:
    """Map (..., n, n) to sums along each diagonal from its start: out[i, j] = Σ_{s≥0} a[i-s, j-s]."""
    shift = 1
    while shift < a.shape[-1]:  # doubling: each pass covers twice as many terms
        a = a + F.pad(a, (shift, 0, shift, 0))[..., : a.shape[-2], : a.shape[-1]]
        shift *= 2
    return a


def _sum_edge(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Map the first n samples of x (..., rows, times) to what windows that start inside the padding miss.

    Returns cumulated sums (..., n) and cumulated diagonal products (..., n, n).
    """
    head = x[..., :n]
    if head.shape[-1] < n:
        head = F.pad(head, (0, n - head.shape[-1]))
    pieces = split_rows(head)
    products = (pieces.transpose(-1, -2) @ pieces).sum(-3)
    return pieces.sum(-2).sum(-2).cumsum(-1), _cumulate_diagonals(products)


def split_rows(x: Tensor) -> Tensor:
    """Cut (..., rows, n) into (..., pieces, rows / pieces, n): one piece, or as many as keep a GPU busy, whose
    library gives a sum over many rows to a single processor."""
    pieces, rows = 1, x.shape[-2]
    if x.device.type == "cuda":
        several = max(MIN_PRODUCTS // max(math.prod(x.shape[:-2]), 1), 1)
        pieces = math.gcd(rows, 1 << (several.bit_length() - 1))
    return x.reshape(*x.shape[:-2], pieces, rows // pieces, x.shape[-1])


def window_moments(x: Tensor, kernel: int) -> Moments:
    """Map x (..., rows, times) to moments of its padded windows."""
    return moments_from_sums(window_sums(x, kernel), kernel, x.shape[-2] * x.shape[-1])


def moments_from_sums(sums: Tensor, kernel: int, positions: int) -> Moments:
    """Return the moments of sums (..., n_sums) of windows with so many rows × times."""
    missed, lags, products = _moment_indices(kernel, sums.device)
    mean = (sums[..., :1] - sums[..., missed]) / positions
    second = (sums[..., lags] - sums[..., products]) / positions
    return Moments(mean, second - mean[..., :, None] * mean[..., None, :], positions)
