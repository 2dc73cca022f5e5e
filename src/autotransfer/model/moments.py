"""First and second moments of the windows a temporal filter sees: what its batch normalisation needs.

A filter w of length K slides over a zero-padded signal ("same", left pad (K-1)//2). Over rows and
times its output has the mean  w·m  and the variance  wᵀ R w - (w·m)²,  where m (K,) and R (K, K) are
moments of the padded windows: data alone, so no filtered signal has to exist. R follows from K
autocorrelation lags and from products of the few samples near the two edges.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from scipy.fft import next_fast_len
from torch import Tensor

from ..fusing import fused
from ..gpu import elementwise


class Lags(NamedTuple):
    """What one set of rows contributes, edges apart."""

    total: Tensor  # (...,) sum of all samples
    lags: Tensor  # (..., K) sum over rows and times of x[t] x[t + lag]


class Moments(NamedTuple):
    """Of the padded windows of a batch, averaged over `positions` = rows × times."""

    mean: Tensor  # (..., K)
    covariance: Tensor  # (..., K, K) second moment minus the outer product of the mean
    positions: int


def padding(kernel: int) -> tuple[int, int]:
    """Zeros to the left and right of a signal that keep its length ("same")."""
    left = (kernel - 1) // 2
    return left, kernel - 1 - left


def edges(x: Tensor, rows: Tensor, kernel: int) -> Tensor:
    """x: (N, channels, times), rows: (G, B) -> (G, B·channels, K - 1): what `window_moments` reads of windows that are
    at least so long."""
    left, right = padding(kernel)
    return torch.cat([x[..., :right][rows], x[..., x.shape[-1] - left :][rows]], -1).flatten(1, 2)


def lag_sums(x: Tensor, kernel: int) -> Lags:
    """x: (..., rows, times) -> sums over rows and times. By FFT: one transform instead of K products."""
    times = x.shape[-1]
    n = next_fast_len(times + kernel - 1, real=True)
    power = torch.fft.rfft(x, n=n).abs().square().sum(-2)
    return Lags(x.sum((-2, -1)), torch.fft.irfft(power, n=n)[..., :kernel])


def _cumulate_diagonals(a: Tensor) -> Tensor:
    """(..., n, n) -> sums along each diagonal from its start: out[i, j] = Σ_{s≥0} a[i-s, j-s]."""
    if a.shape[-1] <= elementwise.WIDEST and not a.requires_grad and elementwise.available(a):
        return elementwise.cumulate_diagonals(a)
    shift = 1
    while shift < a.shape[-1]:  # doubling: each pass covers twice as many terms
        a = a + F.pad(a, (shift, 0, shift, 0))[..., : a.shape[-2], : a.shape[-1]]
        shift *= 2
    return a


def _edge(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """x: (..., rows, times), its first n samples -> what windows that start inside the padding miss.

    Returns cumulated sums (..., n) and cumulated diagonal products (..., n, n).
    """
    head = x[..., :n]
    if head.shape[-1] < n:
        head = F.pad(head, (0, n - head.shape[-1]))
    return head.sum(-2).cumsum(-1), _cumulate_diagonals(head.transpose(-1, -2) @ head)


@fused
def window_moments(x: Tensor, kernel: int, lags: Lags | None = None, times: int | None = None) -> Moments:
    """x: (..., rows, times) -> moments of its padded windows; `lags`, if known, saves the transform.

    With lags, the first and last samples of the windows are enough (`edges`); `times` then says how long these were.
    """
    rows, length = x.shape[-2:]
    times = length if times is None else times
    total, lag = lag_sums(x, kernel) if lags is None else lags
    left, right = padding(kernel)
    positions = rows * times

    k = torch.arange(kernel, device=x.device)
    second = lag[..., (k[:, None] - k[None, :]).abs()]
    first = total[..., None].expand(*total.shape, kernel)
    if right:  # windows right of the middle miss the first samples
        missed, products = _edge(x, right)
        first = first - F.pad(missed, (left + 1, 0))
        second = second - F.pad(products, (left + 1, 0, left + 1, 0))
    if left:  # windows left of the middle miss the last ones: the same, seen from the other end
        missed, products = _edge(x[..., max(length - left, 0) :].flip(-1), left)
        first = first - F.pad(missed.flip(-1), (0, right + 1))
        second = second - F.pad(products.flip(-1, -2), (0, right + 1, 0, right + 1))
    mean = first / positions
    return Moments(mean, second / positions - mean[..., :, None] * mean[..., None, :], positions)
