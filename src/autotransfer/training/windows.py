"""All windows of a data set, as far as no fold matters: in memory, or left in their file.

In memory, what no fold matters to is done once for all windows; `prepared` does the rest. How a window is prepared is
known to `preprocessing` alone.
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

KEPT = 2  # preprocessings of one data set whose windows stay in memory


class Windows:
    """All windows of a data set, prepared as far as no fold matters, on the device; or raw, in their file."""

    def __init__(
        self, recordings: Recordings, preprocessing: Preprocessing, kernel: int, *, device: torch.device,
        dtype: torch.dtype, in_memory: bool = True, with_standardized: bool = True,
    ) -> None:  # fmt: skip
        """kernel: of the encoder's first filters, for which moments of the windows are tabulated; 0: nobody asks.
        with_standardized: there is memory for `standardized`."""
        self.recordings, self.preprocessing, self.in_memory = recordings, preprocessing, in_memory
        self.device, self.dtype = device, dtype
        self.y, self.subject = recordings.y.to(device), recordings.subject.to(device)
        self.kernel = kernel
        self.done = 0  # transforms that X has been through
        self.ready: tuple[int, Tensor] | None = None  # see TransformedWindows
        self.sums: Tensor | None = None  # (N, n_sums) or, without edges, (N, 1 + kernel)
        self.standardized: StandardizedWindows | None = None  # where a fold changes nothing but appended levels
        self.chunks = list(window_chunks(recordings.X))
        if not in_memory:
            self.X = recordings.X
            return
        if preprocessing.n_until_representation:
            self.ready = self.done, self.X = compute_representation(recordings, preprocessing, device, dtype)
        else:
            # Recordings keep an array as it was given; rows of channels are gathered from contiguous memory.
            self.X = recordings.X.to(device=device, dtype=dtype).contiguous()
        if preprocessing.n_shared_by_folds > self.done:
            everybody = partial(
                self.fit([np.arange(recordings.n_windows)]), start=self.done, stop=preprocessing.n_shared_by_folds
            )
            parts = [everybody(self.X[rows][None], self.subject[rows][None])[0] for rows in self.chunks]
            self.X, self.done = torch.cat(parts), preprocessing.n_shared_by_folds
        edges = _has_edges(self.X[0].numel(), kernel)
        if self.kernel and preprocessing.has_cached_moments and self.done == len(preprocessing.transforms):
            self.sums = self.table(lambda rows: self.X[rows], edges=edges)
        if with_standardized and self.kernel and _yields_standardized(preprocessing):
            self.standardized = StandardizedWindows(self.X, kernel, self.chunks, edges=edges)

    def fit(self, training: Sequence[Rows]) -> FittedPreprocessing:
        """Fit on raw windows where they are, a piece at a time on the device."""
        raw, like = self.recordings.X if self.done else self.X, torch.empty(0, device=self.device, dtype=self.dtype)
        return self.preprocessing.fit(raw, self.subject, training, self.recordings.derived, like, self.ready)

    def table(self, windows: Callable[[slice], Tensor], *, edges: bool) -> Tensor:
        """Return the sums of every window, worked out in float64: (N, n_sums), without edges (N, 1 + kernel)."""
        recordings, parts = self.recordings, []
        n_constant = self.preprocessing.n_constant_channels(recordings.n_channels, recordings.n_times)
        for rows in self.chunks:
            x = windows(rows)
            signals, levels = torch.split(x.double(), [x.shape[-2] - n_constant, n_constant], -2)
            sums = lag_sums(signals, self.kernel)
            if n_constant:  # rows of one value each need no transform
                sums = sums + constant_sums(levels[..., 0], x.shape[-1], self.kernel)[..., : 1 + self.kernel]
            sums = sums.to(self.dtype)
            parts.append(torch.cat([sums, edge_sums(x, self.kernel)], -1) if edges else sums)
        return torch.cat(parts)


def prepare_windows(recordings: Recordings, job: Job, *, device: torch.device, dtype: torch.dtype) -> Windows:
    """Return windows for a job's program, prepared once for all populations on these recordings that need the same.

    In the device's memory where they fit, else read from where they are a minibatch at a time. They hang on the
    recordings, so that nobody can be given another data set's; `release_windows` lets them go.
    """
    preprocessing = job.setting.preprocessing
    kernel = job.setting.network.moments_kernel(recordings.sfreq)
    if augmentation := job.setting.augmentation:  # of tables, shapes alone serve changed windows
        scaled = all(isinstance(step, Scaling) for step in augmentation)
        kernel = kernel if scaled and _yields_standardized(preprocessing) else 0
    key = (preprocessing, kernel, str(device), dtype)
    kept: dict[Any, Windows] = recordings.derived.setdefault("windows", {})
    if key not in kept:
        while len(kept) >= KEPT:  # populations of one preprocessing follow each other
            del kept[next(iter(kept))]
        size = math.prod(preprocessing.shape(recordings.n_channels, recordings.n_times))
        sums = n_sums(kernel) if kernel and _has_edges(size, kernel) else 0
        of_channel = sums if sums and device.type == "cuda" else 1 + kernel
        shapes = recordings.X[0].numel() + recordings.n_channels * of_channel
        room = packing.free_values_per_window(recordings, device, dtype, preprocessing)
        kept[key] = Windows(
            recordings, preprocessing, kernel, device=device, dtype=dtype, in_memory=sums <= room,
            with_standardized=sums + shapes <= room,
        )  # fmt: skip
    return kept[key]


def release_windows(recordings: Recordings) -> None:
    """Free prepared windows and statistics on a device. Representations in memory, which need less than the recordings,
    stay for the next training or model."""
    every = recordings.derived.get("represented", {})
    kept = {key: windows for key, windows in every.items() if windows.device.type == "cpu"}
    recordings.derived.clear()
    if kept:
        recordings.derived["represented"] = kept


def _yields_standardized(preprocessing: Preprocessing) -> bool:
    """Tell whether `StandardizedWindows` are what folds leave unchanged of windows."""
    return preprocessing.transforms[preprocessing.n_shared_by_folds :] == (Standardize("train"), AppendScale())


def _has_edges(size: int, kernel: int) -> bool:
    """Tell whether sums are tabulated with the edges of windows of so many samples. Where that is more than the windows
    themselves, edges are read from these."""
    return n_sums(kernel) <= size


# ---- rows of windows and of tables, picked for every group at once ---------------------------------------------------


def gather_windows(X: Tensor, rows: Tensor, shift: Tensor | None, inv_std: Tensor | None) -> Tensor:
    """Gather X (N, C, T) at rows (G, B), standardized by shift and inv_std (G, C) if given: (G, C, B, T)."""
    _, channels, times = X.shape
    places = rows[:, None, :] * channels + torch.arange(channels, device=X.device)[None, :, None]
    x = X.view(-1, times).index_select(0, places.flatten()).view(*places.shape, times)
    if shift is None or inv_std is None:
        return x
    return x.sub_(shift[:, :, None, None]).mul_(inv_std[:, :, None, None])  # in place: it is a copy already


def channel_major(x: Tensor) -> Tensor:
    """Lay out windows (G, B, channels, times) channel-major in memory, as the encoder reads them."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)
