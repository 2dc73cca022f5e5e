"""All windows of a data set, in memory after the transforms that all folds share, or raw in their file.

`prepared` applies the transforms that depend on the fold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..augment import Scaling
from ..folds import Rows
from ..jobs import Job
from ..model.moments import constant_sums, edge_sums, lag_sums, n_sums
from ..preprocessing import FittedPreprocessing, Preprocessing
from ..preprocessing.append_scale import AppendScale
from ..preprocessing.standardize import Standardize
from ..recordings import Recordings
from ..recordings.chunks import window_chunks
from . import packing
from .representation import compute_representation
from .standardized_windows import StandardizedWindows

MAX_CACHED = 2  # preprocessings of one data set whose windows stay in memory


class Windows:
    """Windows on the device after the transforms that all folds share, or raw windows in their file."""

    def __init__(
        self, recordings: Recordings, preprocessing: Preprocessing, kernel: int, *, device: torch.device,
        dtype: torch.dtype, in_memory: bool = True, with_standardized: bool = True,
    ) -> None:  # fmt: skip
        """Prepare windows, with tables of their moments.

        kernel: length of the encoder's first filters, for which moments are tabulated; 0: no tables
        with_standardized: whether there is memory for `standardized`
        """
        self.recordings, self.preprocessing, self.in_memory = recordings, preprocessing, in_memory
        self.device, self.dtype = device, dtype
        self.y, self.subject = recordings.y.to(device), recordings.subject.to(device)
        self.kernel = kernel
        self.n_applied = 0  # number of transforms applied to X
        self.precomputed: tuple[int, Tensor] | None = None  # number of applied transforms, and all windows after them
        self.sums: Tensor | None = None  # (N, n_sums) or, without edges, (N, 1 + kernel)
        # None unless only the constant channels that `append_scale` appends depend on the fold
        self.standardized: StandardizedWindows | None = None
        self.chunks = list(window_chunks(recordings.X))
        if not in_memory:
            self.X = recordings.X
            return
        if preprocessing.n_until_representation:
            self.precomputed = self.n_applied, self.X = compute_representation(recordings, preprocessing, device, dtype)
        else:
            # `gather_windows` needs contiguous windows.
            self.X = recordings.X.to(device=device, dtype=dtype).contiguous()
        if preprocessing.n_shared_by_folds > self.n_applied:
            transform = partial(
                self.fit([np.arange(recordings.n_windows)]), start=self.n_applied, stop=preprocessing.n_shared_by_folds
            )
            parts = [transform(self.X[rows][None], self.subject[rows][None])[0] for rows in self.chunks]
            self.X, self.n_applied = torch.cat(parts), preprocessing.n_shared_by_folds
        edges = _has_edges(self.X[0].numel(), kernel)
        if self.kernel and preprocessing.has_cached_moments and self.n_applied == len(preprocessing.transforms):
            self.sums = self.tabulate_sums(lambda rows: self.X[rows], edges=edges)
        if with_standardized and self.kernel and _yields_standardized(preprocessing):
            self.standardized = StandardizedWindows(self.X, kernel, self.chunks, edges=edges)

    def fit(self, training: Sequence[Rows]) -> FittedPreprocessing:
        """Fit the preprocessing to raw windows, a chunk at a time on the device."""
        raw = self.recordings.X if self.n_applied else self.X
        like = torch.empty(0, device=self.device, dtype=self.dtype)
        return self.preprocessing.fit(raw, self.subject, training, self.recordings.derived, like, self.precomputed)

    def tabulate_sums(self, windows: Callable[[slice], Tensor], *, edges: bool) -> Tensor:
        """Return the sums of every window, computed in float64: (N, n_sums), or (N, 1 + kernel) without edges."""
        recordings, parts = self.recordings, []
        n_constant = self.preprocessing.n_constant_channels(recordings.n_channels, recordings.n_times)
        for rows in self.chunks:
            x = windows(rows)
            signals, constants = torch.split(x.double(), [x.shape[-2] - n_constant, n_constant], -2)
            sums = lag_sums(signals, self.kernel)
            if n_constant:  # the sums of constant channels need no products
                sums = sums + constant_sums(constants[..., 0], x.shape[-1], self.kernel)[..., : 1 + self.kernel]
            sums = sums.to(self.dtype)
            parts.append(torch.cat([sums, edge_sums(x, self.kernel)], -1) if edges else sums)
        return torch.cat(parts)


def prepare_windows(recordings: Recordings, job: Job, *, device: torch.device, dtype: torch.dtype) -> Windows:
    """Return the windows for all jobs of a job's program, in a file if the memory of the device is too small.

    Populations with equal preprocessing share the windows, which are cached until `release_windows`.
    """
    preprocessing = job.setting.preprocessing
    kernel = job.setting.network.moments_kernel(recordings.sfreq)
    if augmentation := job.setting.augmentation:  # only `standardized` has tables for augmented windows
        only_scales = all(isinstance(step, Scaling) for step in augmentation)
        kernel = kernel if only_scales and _yields_standardized(preprocessing) else 0
    key = (preprocessing, kernel, str(device), dtype)
    cache: dict[Any, Windows] = recordings.derived.setdefault("windows", {})
    if key not in cache:
        while len(cache) >= MAX_CACHED:  # consecutive populations mostly have equal preprocessing
            del cache[next(iter(cache))]
        size = math.prod(preprocessing.shape(recordings.n_channels, recordings.n_times))
        # numbers of values per window
        sums = n_sums(kernel) if kernel and _has_edges(size, kernel) else 0
        sums_per_channel = sums if sums and device.type == "cuda" else 1 + kernel
        standardized = recordings.X[0].numel() + recordings.n_channels * sums_per_channel
        free = packing.free_values_per_window(recordings, device, dtype, preprocessing)
        cache[key] = Windows(
            recordings, preprocessing, kernel, device=device, dtype=dtype, in_memory=sums <= free,
            with_standardized=sums + standardized <= free,
        )  # fmt: skip
    return cache[key]


def release_windows(recordings: Recordings) -> None:
    """Free prepared windows and statistics, except representations on the CPU, which later fits and models use."""
    representations = recordings.derived.get("represented", {})
    on_cpu = {key: windows for key, windows in representations.items() if windows.device.type == "cpu"}
    recordings.derived.clear()
    if on_cpu:
        recordings.derived["represented"] = on_cpu


def _yields_standardized(preprocessing: Preprocessing) -> bool:
    """Return whether only shift, scale and the constant channels of `append_scale` depend on the fold."""
    return preprocessing.transforms[preprocessing.n_shared_by_folds :] == (Standardize("train"), AppendScale())


def _has_edges(size: int, kernel: int) -> bool:
    """Return whether to tabulate sums of edges, with which the table must not be larger than the windows."""
    return n_sums(kernel) <= size


# ---- rows of windows, gathered for all groups at once --------------------------------------------------------------


def gather_windows(X: Tensor, rows: Tensor, shift: Tensor | None, inv_std: Tensor | None) -> Tensor:
    """Return windows (G, C, B, T) of X (N, C, T) at rows (G, B), standardized by shift and inv_std (G, C) if given."""
    _, channels, times = X.shape
    index = rows[:, None, :] * channels + torch.arange(channels, device=X.device)[None, :, None]
    x = X.view(-1, times).index_select(0, index.flatten()).view(*index.shape, times)
    if shift is None or inv_std is None:
        return x
    return x.sub_(shift[:, :, None, None]).mul_(inv_std[:, :, None, None])  # in place, because x is a copy


def channel_major(x: Tensor) -> Tensor:
    """Return windows (G, B, channels, times) with channel-major memory, which the encoder reads."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)
