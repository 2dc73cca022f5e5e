"""Minibatches of prepared windows, gathered from memory or read from a file.

Transforms that depend on the fold are applied to each minibatch. If windows are in a file, all transforms are applied
to each minibatch, and the next minibatch is read during a training step.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from ..folds import Rows
from ..model.moments import Moments, SplitWindows, constant_sums, edge_sums, moments_from_sums, n_sums
from .held_out_windows import HeldOutWindows
from .windows import Windows, channel_major, gather_windows


class PreparedWindows:
    """Windows prepared for each of G groups, with the preprocessing fitted to the training rows of the group."""

    def __init__(self, windows: Windows, training: Sequence[Rows], held_out: Sequence[Rows]) -> None:
        self.windows = windows
        self.fitted = windows.fit(training)
        self.standardized = windows.standardized
        if self.standardized is not None and not self.standardized.is_exact_for(self._shift_and_scale()[1], training):
            self.standardized = None
        self.group_sums: Tensor | None = None  # (G, N, 1 + kernel) if prepared windows depend on the fold
        if (
            self.standardized is None
            and windows.kernel
            and windows.preprocessing.has_cached_moments
            and windows.in_memory
            and windows.sums is None
        ):
            self.group_sums = torch.stack([self._tabulate(group) for group in range(len(training))])
        # None if held-out windows are prepared like training windows
        self.held_out_windows: HeldOutWindows | None = None
        if windows.preprocessing.is_online and any(len(rows) for rows in held_out):
            self.held_out_windows = HeldOutWindows(windows, self.fitted, training, held_out)

    def _tabulate(self, group: int) -> Tensor:
        """Return sums (N, 1 + kernel) of all windows after the preprocessing of a group."""
        windows, fitted = self.windows, self.fitted.get_group(group)

        def prepare(rows: slice) -> Tensor:
            x: Tensor = fitted(windows.X[rows][None], windows.subject[rows][None], start=windows.n_applied)
            return x[0]

        return windows.tabulate_sums(prepare, edges=False)

    def get_group(self, group: int) -> PreparedWindows:
        """Return the windows of one group, with views of its statistics."""
        prepared = copy.copy(self)
        prepared.fitted, prepared.group_sums = self.fitted.get_group(group), None
        prepared.held_out_windows, prepared.standardized = None, None
        return prepared

    def gather(self, rows: Tensor) -> Tensor:
        """Return training windows (G, B, channels, times) of rows (G, B), channel-major in memory."""
        windows = self.windows
        if not windows.in_memory:
            return self._prepare(self._read(rows), rows)
        start, steps = windows.n_applied, self.fitted.steps
        affine = steps[start].affine() if start < len(steps) else None
        if affine is None:
            x = gather_windows(windows.X, rows, None, None).transpose(1, 2)
        else:
            x, start = gather_windows(windows.X, rows, *affine).transpose(1, 2), start + 1
        return x if start == len(steps) else channel_major(self.fitted(x, windows.subject[rows], start=start))

    def split_windows(self, rows: Tensor) -> SplitWindows | None:
        """Return windows whose constant channels are stored as one number each; None without `standardized`."""
        if self.standardized is None:
            return None
        signals = gather_windows(self.standardized.x, rows, None, None).transpose(1, 2)
        return SplitWindows(signals, self.standardized.levels(rows, *self._shift_and_scale()))

    def _shift_and_scale(self) -> tuple[Tensor, Tensor]:
        """Return shift and scale (G, C) of every group."""
        affine = self.fitted.steps[self.windows.n_applied].affine()
        assert affine is not None
        return affine

    def gather_held_out(self, rows: Tensor) -> Tensor:
        """Return windows (G, B, channels, times) of held-out rows (G, B), channel-major in memory."""
        return self.gather(rows) if self.held_out_windows is None else self.held_out_windows.gather(rows)

    def gather_any(self, rows: Tensor) -> Tensor:
        """Return windows of any rows (G, B), prepared as held-out or training windows of the group."""
        x = self.gather(rows)
        return x if self.held_out_windows is None else self.held_out_windows.gather_any(rows, x)

    def batches(self, epoch_rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield rows (G, B), and their windows read from the file, for every step of epoch_rows (steps, G, B)."""
        # Two buffers are used in turn, because allocators retain memory that one thread allocates and another frees.
        X = self.windows.X
        buffers = [X.new_empty(epoch_rows[0].numel(), *X.shape[1:]) for _ in range(2)]
        with ThreadPoolExecutor(1) as reader:
            next_read = reader.submit(self._read, epoch_rows[0], buffers[0])
            for step, rows in enumerate(epoch_rows):
                x = next_read.result()
                if step + 1 < len(epoch_rows):
                    next_read = reader.submit(self._read, epoch_rows[step + 1], buffers[(step + 1) % 2])
                yield rows, self._prepare(x, rows)

    def _read(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """Return raw windows (G, B, channels, times) of rows (G, B), in the memory of `out` if given."""
        X = self.windows.X
        return torch.index_select(X, 0, rows.flatten().cpu(), out=out).view(*rows.shape, *X.shape[1:])

    def _prepare(self, x: Tensor, rows: Tensor) -> Tensor:
        x = x.to(device=self.windows.device, dtype=self.windows.dtype)
        x = self.fitted(x, self.windows.subject[rows])
        # `clone` makes x channel-major for the encoder, and independent of the buffer, which is used again.
        return x.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)

    def moments(self, x: Tensor | SplitWindows, rows: Tensor) -> Moments | None:
        """Return the moments of gathered windows x (G, B, C, T) from tables of sums; None if there are no tables."""
        windows = self.windows
        split = x if isinstance(x, SplitWindows) else self.split_windows(rows)
        if split is not None:
            return self.moments_of_standardized(split, rows)
        assert not isinstance(x, SplitWindows)
        if windows.sums is not None:
            sums = embedding_bag(rows, windows.sums, mode="sum")
        elif self.group_sums is not None:
            sums = self.group_sums[torch.arange(rows.shape[0], device=rows.device)[:, None], rows].sum(1)
        else:
            return None
        return moments_from_sums(self._append_edges(sums, x), windows.kernel, x[0].numel())

    def moments_of_standardized(self, x: SplitWindows, rows: Tensor, factors: Tensor | None = None) -> Moments:
        """Return the moments of x, whose channels are standardized and multiplied by factors (G, B, channels)."""
        assert self.standardized is not None
        _, batch, channels, times = x.signals.shape
        kernel = self.windows.kernel
        if factors is None:
            sums = embedding_bag(rows, self.standardized.sums, mode="sum")
        else:
            sums = self.standardized.sum_scaled_rows(rows, factors[..., :channels])
        sums = self._append_edges(sums, x.signals) + constant_sums(x.constants.flatten(1), times, kernel)
        return moments_from_sums(sums, kernel, batch * x.n_channels * times)

    def _append_edges(self, sums: Tensor, x: Tensor) -> Tensor:
        """Return sums (G, n) with edge sums of windows x (G, B, C, T) appended if the table has none."""
        if sums.shape[1] == n_sums(self.windows.kernel):
            return sums
        return torch.cat([sums, edge_sums(x.transpose(1, 2).flatten(1, 2), self.windows.kernel)], -1)

    def select(self, groups: Tensor) -> None:
        """Keep only these groups."""
        self.fitted.select(groups)
        if self.group_sums is not None:
            self.group_sums = self.group_sums[groups]
        if self.held_out_windows is not None:
            self.held_out_windows.select(groups)
