"""Windows that stay where they are, in a file or in host memory, and are read a minibatch at a time.

For recordings larger than memory: the same windows as `Windows` gathers, standardised after reading. The next
minibatch is read while the present one trains. What `Windows` computes once for all (window moments) is computed
here for each minibatch, so memory does not grow with the number of trials beyond a few numbers for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..model.moments import Lags, Moments, window_moments
from ..recordings import Recordings
from ..recordings.chunks import row_chunks
from ..recordings.standardise import affine, apply
from .gather import FoldStatistics, Windows


class Stream(Windows):
    """Drop-in for Windows; X stays in its file."""

    resident = False

    def __init__(
        self, recordings: Recordings, kind: str, kernel: int, *, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.kind, self.kernel, self.device, self.dtype = kind, kernel, device, dtype
        self.y, self.subject = recordings.y.to(device), recordings.subject.to(device)
        self.X = recordings.X
        self.n_trials, self.n_channels, self.n_times = self.X.shape
        self.of_subject = affine(self.X, recordings.subject, "subject") if kind == "subject" else None
        self.spread = self._spread() if kind == "channel" else None

    def _spread(self) -> tuple[Tensor, Tensor]:
        """Mean and sum of squared deviations of every window and channel, (N, channels) float64 each, in one pass."""
        means, squares = [], []
        for rows in row_chunks(self.n_trials, self.n_channels * self.n_times):
            x = self.X[rows].double()
            mean = x.mean(-1)
            means.append(mean)
            squares.append((x - mean[..., None]).square().sum(-1))
        return torch.cat(means), torch.cat(squares)

    def fit(self, training: Sequence[NDArray[np.int64]]) -> FoldStatistics | None:
        if self.spread is None:
            return None
        shifts, gains = [], []
        for rows in training:
            mean, squares = (table[torch.from_numpy(rows)] for table in self.spread)
            centre = mean.mean(0)
            variance = squares.sum(0) / (len(rows) * self.n_times) + (mean - centre).square().mean(0)
            shifts.append(centre)
            gains.append(torch.where(variance > 0, variance.rsqrt(), 0.0))
        nothing = Lags(torch.empty(len(shifts), 0), torch.empty(len(shifts), 0))
        shift, gain = (torch.stack(rows).to(device=self.device, dtype=self.dtype) for rows in (shifts, gains))
        return FoldStatistics(shift, gain, nothing)

    def batches(self, plan: Tensor, fitted: FoldStatistics | None) -> Iterator[tuple[Tensor, Tensor]]:
        """The next minibatch is read while its predecessor trains.

        Two buffers take turns: memory that one thread takes and another frees piles up in the allocator.
        """
        buffers = [self.X.new_empty(plan[0].numel(), self.n_channels, self.n_times) for _ in range(2)]
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self._read, plan[0], buffers[0])
            for step, rows in enumerate(plan):
                x = coming.result()
                if step + 1 < len(plan):
                    coming = reader.submit(self._read, plan[step + 1], buffers[(step + 1) % 2])
                yield rows, self._standardise(x, rows, fitted)

    def gather(self, rows: Tensor, fitted: FoldStatistics | None) -> Tensor:
        return self._standardise(self._read(rows), rows, fitted)

    def _read(self, rows: Tensor, into: Tensor | None = None) -> Tensor:
        """rows: (G, B) -> raw windows (G, B, channels, times) in host memory, that of `into` (GB, channels, times)."""
        found = torch.index_select(self.X, 0, rows.flatten().cpu(), out=into)
        return found.view(*rows.shape, self.n_channels, self.n_times)

    def _standardise(self, x: Tensor, rows: Tensor, fitted: FoldStatistics | None) -> Tensor:
        x = x.to(device=self.device, dtype=self.dtype)
        if self.kind == "trial":
            shift, gain, _ = affine(x.flatten(0, 1), None, "trial")
            x = apply(x, shift.view(x.shape[:3]), gain.view(x.shape[:3]))
        elif self.of_subject is not None:
            shift, gain, index = self.of_subject
            own = index[rows.cpu()]
            x = apply(x, shift[own].to(x), gain[own].to(x))
        elif fitted is not None:
            x = apply(x, fitted.shift[:, None], fitted.gain[:, None])
        # Channel-major, as the encoder likes it, and never the buffer itself.
        return x.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)

    def moments(self, x: Tensor, rows: Tensor, fitted: FoldStatistics | None) -> Moments | None:
        if self.kernel == 0:
            return None
        return window_moments(x.transpose(1, 2).flatten(1, 2), self.kernel)
