"""Detection of samples that two subjects share, and of subjects that are copies.

Windows may overlap from any sample on, so every stretch of LENGTH samples gets a fingerprint of 64 bits that does not
depend on its position in a window. Copies in another unit or with another offset have no fingerprint in common;
`find_near_copies` finds most of them.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from .chunks import row_chunks
from .raw import Array

LENGTH = 16  # samples of a stretch, but at most half of a window
KEPT = 8  # one of this many stretches of a long window is kept
MIN_CHANGES = 4  # changes of value within a stretch, because resting and lost signals are equal in all subjects
PRODUCTS = 128  # products of samples that describe a window
STRONGEST = 16  # windows of a group that are compared
MOST_WINDOWS = 2000  # windows of a group that are whitened
RANK = 1e-4  # share of the largest eigenvalue below which a mixture of channels is noise
# With these limits no pair is found among 681 subjects of 30 data sets, but rounded, inverted and most re-referenced
# copies are found.
LEAST_CORRELATION = 0.8  # smallest correlation of a pair
MOST_DISTANCE = 0.3  # largest distance of the correlation of a pair from 1, relative to other groups


class SharedPair(NamedTuple):
    """Two groups of windows that share samples."""

    first: int
    second: int
    windows: int  # number of windows with shared samples, in the group that has fewer such windows
    share: float  # share of such windows in a group, the larger one of both groups


def find_shared_samples(fingerprints: csr_array, group: NDArray[np.int64]) -> list[SharedPair]:
    """Return pairs of groups (N,) that share samples, the largest share first."""
    n = len(group)
    membership = csr_array((np.ones(n, np.int64), (group, np.arange(n))))  # (groups, N)
    shares = fingerprints @ (membership @ fingerprints).T  # (N, groups) number of stretches of a window in a group
    window, other = shares.nonzero()
    own = group[window]
    is_shared = own != other
    n_windows = Counter(zip(own[is_shared].tolist(), other[is_shared].tolist(), strict=True))
    sizes = np.bincount(group)
    shared = []
    for first, second in sorted(pair for pair in n_windows if pair[0] < pair[1]):
        counts = n_windows[first, second], n_windows[second, first]
        share = max(counts[0] / sizes[first], counts[1] / sizes[second])
        shared.append(SharedPair(first, second, min(counts), float(share)))
    return sorted(shared, key=lambda pair: -pair.share)


def fingerprint_windows(X: Array | Tensor) -> csr_array:
    """Return a sparse matrix (N, K), which is positive if a window of X (N, C, T) has a fingerprint."""
    n_channels, n_times = int(X.shape[1]), int(X.shape[2])
    length = min(LENGTH, max(2, n_times // 2))
    odd = np.random.default_rng(0).integers(1, 2**63, n_channels + length, dtype=np.uint64) | np.uint64(1)
    keys, rows = [], []
    for part in row_chunks(int(X.shape[0]), 8 * n_channels * n_times):
        values = np.ascontiguousarray(np.asarray(X[part], dtype=np.float32)) + np.float32(0)  # -0 becomes 0
        samples = _mix(values.view(np.uint32) * odd[:n_channels, None]).sum(1)  # (n, T)
        stretches = sliding_window_view(samples, length, axis=1)  # (n, T - length + 1, length)
        prints = _mix(stretches @ odd[n_channels:])
        changes = (stretches[:, :, 1:] != stretches[:, :, :-1]).sum(2)
        rate = min(KEPT, 1 + prints.shape[1] // LENGTH)  # short windows have few stretches
        kept = (changes >= MIN_CHANGES - 1) & ((prints >> np.uint64(40)) % np.uint64(rate) == 0)
        where, _ = np.nonzero(kept)
        keys.append(prints[kept])
        rows.append(where + part.start)
    known, key = np.unique(np.concatenate(keys), return_inverse=True)
    found = np.ones(len(key), np.int64), (np.concatenate(rows), key)
    return csr_array(found, shape=(int(X.shape[0]), len(known)))


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix bits modulo 2⁶⁴, so that every bit of the result depends on every bit of the value."""
    return (values ^ (values >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)


def find_near_copies(X: Array | Tensor, group: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return pairs of groups (N,) that are one recording up to rounding and an invertible mixture of channels.

    Whitening removes gain, sign, order and most references of channels, so that products of whitened samples, summed
    over channels, are equal in both groups. The windows with most energy of a pair resemble each other much more than
    windows of any third group.
    """
    n_groups, draw = int(group.max()) + 1, np.random.default_rng(0)
    first = draw.integers(0, X.shape[2], PRODUCTS)
    second = (first + draw.integers(0, min(LENGTH, X.shape[2]), PRODUCTS)) % X.shape[2]
    parts = [_describe_windows(X, np.flatnonzero(group == g), first, second) for g in range(n_groups)]
    described = np.concatenate(parts)
    described -= np.median(described, axis=0)
    described -= described.mean(1, keepdims=True)
    described /= np.linalg.norm(described, axis=1, keepdims=True) + 1e-30
    sizes = np.array([len(part) for part in parts])
    known, starts = np.flatnonzero(sizes), np.concatenate([[0], np.cumsum(sizes)])
    # Median over windows of the highest correlation with a window of another group.
    similarity = np.zeros((n_groups, n_groups), np.float32)
    for g in known:
        correlation = described[starts[g] : starts[g + 1]] @ described.T
        similarity[g, known] = np.median(np.maximum.reduceat(correlation, starts[known], axis=1), axis=0)
    similarity = np.minimum(similarity, similarity.T)
    pairs = []
    for g, h in zip(*np.nonzero(np.triu(similarity, 1) >= LEAST_CORRELATION), strict=True):
        others = np.delete(similarity[[g, h]], [g, h], axis=1)
        usual = float(np.median(others, axis=1).max()) if others.shape[1] else 0.0
        if 1 - similarity[g, h] <= MOST_DISTANCE * (1 - usual):
            pairs.append((int(g), int(h)))
    return pairs


def _describe_windows(
    X: Array | Tensor, rows: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return products of whitened samples of the windows with most energy (n, PRODUCTS), for rows of one group."""
    x = np.asarray(X[rows[:MOST_WINDOWS]], np.float64)
    x = x[np.isfinite(x).all((1, 2))]
    x -= x.mean(-1, keepdims=True)
    x /= np.abs(x).max(initial=1e-30)
    covariances = x @ x.transpose(0, 2, 1)  # (n, C, C)
    values, vectors = np.linalg.eigh(covariances.sum(0))
    kept = values > RANK * values[-1]
    whitening = vectors[:, kept] / np.sqrt(values[kept])  # (C, rank)
    energy = (covariances * (whitening @ whitening.T)).sum((1, 2))
    white = whitening.T @ x[np.argsort(-energy)[:STRONGEST]]
    products: NDArray[np.float32] = (white[:, :, first] * white[:, :, second]).sum(1, dtype=np.float32)
    return products
