"""Copies: samples that windows share. Shared by two people, they show one recording under two names; shared by two
sessions of a person, they show windows that overlap, so that test windows hold samples of training windows.

Overlapping windows may begin at different samples. Every stretch of LENGTH samples therefore has a fingerprint that
does not depend on its position. One fingerprint in KEPT is kept, chosen by its value, so that the same stretches are
kept of every copy. Windows with a common fingerprint share samples: 64 bits do not coincide by chance in a million
windows. A copy in another unit or with another offset shares no sample.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .chunks import row_chunks
from .raw import Array

LENGTH = 16  # samples of a stretch; of shorter windows half of them
KEPT = 8
VARIED = 4  # different values that a stretch must have at least: resting or lost signals are alike in everybody


class Shared(NamedTuple):
    """Windows of two groups that share samples."""

    first: int
    second: int
    windows: int  # of the group that has fewer of them
    share: float  # of that group's windows


class Stretches(NamedTuple):
    """Fingerprints of stretches of samples."""

    keys: NDArray[np.uint64]  # (K,)
    rows: NDArray[np.int64]  # (K,) the window that each lies in


def shared_samples(
    stretches: Stretches, group: NDArray[np.int64], within: NDArray[np.int64] | None = None
) -> list[Shared]:
    """Return pairs of groups that share samples, most first. group (N,); within (N,): only groups of the same."""
    from scipy.sparse import csr_matrix

    if not len(stretches.keys):
        return []
    _, key = np.unique(stretches.keys, return_inverse=True)
    present = np.ones(len(key), np.int64)
    of_window = csr_matrix((present, (stretches.rows, key)), shape=(len(group), len(key)))
    of_group = csr_matrix((present, (group[stretches.rows], key)), shape=(int(group.max()) + 1, len(key)))
    window, other = (of_window @ of_group.T).nonzero()  # windows, and groups that have a stretch of theirs
    own = group[window]
    apart = own != other
    if within is not None:
        owner = np.zeros(len(of_group.indptr) - 1, np.int64)
        owner[group] = within
        apart &= owner[own] == owner[other]
    n_windows = Counter(zip(own[apart].tolist(), other[apart].tolist(), strict=True))
    sizes = np.bincount(group)
    shared = []
    for first, second in sorted(pair for pair in n_windows if pair[0] < pair[1]):
        counts = n_windows[first, second], n_windows[second, first]
        share = max(counts[0] / sizes[first], counts[1] / sizes[second])
        shared.append(Shared(first, second, min(counts), float(share)))
    return sorted(shared, key=lambda pair: -pair.share)


def stretches(X: Array | Tensor) -> Stretches:
    """Return the stretches that are kept of windows X (N, C, T)."""
    draw = np.random.default_rng(0)
    n_channels, n_times = int(X.shape[1]), int(X.shape[2])
    length = 1 << (min(LENGTH, max(2, n_times // 2)).bit_length() - 1)
    odd = draw.integers(1, 2**63, n_channels + 8, dtype=np.uint64) | np.uint64(1)
    keys, rows = [], []
    for part in row_chunks(int(X.shape[0]), 4 * n_channels * n_times):
        values = np.ascontiguousarray(np.asarray(X[part], dtype=np.float32)) + np.float32(0)  # -0 is 0
        codes = values.view(np.uint32).astype(np.uint64)
        prints = np.zeros((len(codes), n_times), np.uint64)
        for c in range(n_channels):
            prints += _mixed(codes[:, c] * odd[c])
        varied = prints[:, 1:] != prints[:, :-1]
        span, step = 1, 0
        while span < length:
            prints = prints[:, :-span] + _mixed(prints[:, span:] * odd[n_channels + step])
            span, step = 2 * span, step + 1
        changes = np.cumsum(np.pad(varied, ((0, 0), (1, 0))), axis=1)  # how many steps so far have another value
        enough = changes[:, length - 1 :] - changes[:, : prints.shape[1]] >= VARIED - 1
        kept = enough & ((prints >> np.uint64(40)) % np.uint64(KEPT) == 0)
        where, _ = np.nonzero(kept)
        keys.append(prints[kept])
        rows.append(where + part.start)
    return Stretches(np.concatenate(keys), np.concatenate(rows))


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix bits: every bit of the result depends on every bit of the value, modulo 2⁶⁴."""
    return (values ^ (values >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
