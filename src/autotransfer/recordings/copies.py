"""Detection of windows that two subjects share, and of subjects that are copies.

Copies in another unit or with another offset have no equal windows; `find_near_copies` finds most of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .chunks import window_chunks
from .raw import Array

LENGTH = 16  # largest distance of samples that are multiplied
PRODUCTS = 128  # products of samples that describe a window
STRONGEST = 16  # windows of a group that are compared
MOST_WINDOWS = 2000  # windows of a group that are whitened
RANK = 1e-4  # share of the largest eigenvalue below which a mixture of channels is noise
# With these limits no pair is found among 681 subjects of 30 data sets, but rounded, inverted and most re-referenced
# copies are found.
LEAST_CORRELATION = 0.8  # smallest correlation of a pair
MOST_DISTANCE = 0.3  # largest distance of the correlation of a pair from 1, relative to other groups


def find_shared_windows(X: Array | Tensor, group: NDArray[np.int64]) -> dict[tuple[int, int], tuple[int, float]]:
    """Return pairs of groups (N,) that have equal windows, with their number and their share in the smaller group.

    Windows without any change count as no windows, because they are equal for all subjects.
    """
    import pandas as pd  # takes long to import

    keys: list[int] = []
    for part in window_chunks(X):
        values = np.asarray(X[part], np.float32) + np.float32(0)  # -0 becomes 0
        is_varying = (values.max(-1) != values.min(-1)).any(-1)
        keys += [hash(x.tobytes()) if moves else 0 for x, moves in zip(values, is_varying.tolist(), strict=True)]
    windows = pd.DataFrame({"key": keys, "group": group}).query("key != 0").drop_duplicates()
    sizes = windows["group"].value_counts().to_dict()
    both = windows.merge(windows, on="key").query("group_x < group_y").value_counts(["group_x", "group_y"])
    return {(g, h): (n, n / min(sizes[g], sizes[h])) for g, h, n in both.reset_index().to_numpy().tolist()}


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
