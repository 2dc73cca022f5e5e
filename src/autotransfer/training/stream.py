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
from ..recordings.people import People, Prior, measure
from ..recordings.running import Map, Person
from ..recordings.standardise import affine, apply
from .gather import FoldStatistics, Windows, mixed
from .newcomers import MappedNewcomers, each_person


class Stream(Windows):
    """Drop-in for Windows; X stays in its file."""

    def __init__(
        self, recordings: Recordings, kind: str, kernel: int, *, device: torch.device, dtype: torch.dtype,
        align: str = "none",
    ) -> None:  # fmt: skip
        self.kind, self.kernel, self.device, self.dtype, self.align = kind, kernel, device, dtype, align
        self.y, self.subject = recordings.y.to(device), recordings.subject.to(device)
        self.X = recordings.X
        self.n_trials, self.n_channels, self.n_times = self.X.shape
        self._who = recordings.subject
        self.people = self._measure(None) if align != "none" and kind != "channel" else None
        self.of_subject = affine(self.X, recordings.subject, kind) if kind in ("subject", "running") else None
        self.spread = self._spread() if kind == "channel" else None

    def _measure(self, training: NDArray[np.int64] | None) -> People:
        """Whole-person statistics in a pass or two over the file."""
        rows = None if training is None else torch.from_numpy(training)
        return measure(self.X, self._who, self.kind, self.align, rows=rows)

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
        if self.align == "none":
            return FoldStatistics(shift, gain, nothing)
        mixes = [self._measure(rows).mix for rows in training]
        mix = torch.stack([mix for mix in mixes if mix is not None]).to(device=self.device, dtype=self.dtype)
        return FoldStatistics(shift, gain, nothing, mix)

    def batches(self, plan: Tensor, fitted: FoldStatistics | None) -> Iterator[tuple[Tensor, Tensor]]:
        """plan: (steps, G, B) -> for every step its rows (G, B) and their windows, as `gather` gives them.

        The next minibatch is read while its predecessor trains.

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
        if fitted is not None and fitted.mix is not None:
            return mixed(fitted.mix, self.subject[rows], x)
        if self.people is not None and self.people.mix is not None:
            x = self.people.mix[self._who[rows.cpu()]].to(x) @ x
        # Channel-major, as the encoder likes it, and never the buffer itself.
        return x.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)

    def newcomers(
        self, training: Sequence[NDArray[np.int64]], held_out: Sequence[NDArray[np.int64]]
    ) -> MappedNewcomers | None:
        """As of Windows, but only what is done with each window is kept, not the window."""
        if "running" not in (self.kind, self.align):
            return None
        parts: list[Map] = []

        def prepare(prior: Prior, rows: Tensor) -> None:
            person = Person(self.kind, self.align, prior)
            at_once = "subject" in (self.kind, self.align)  # all of a person's windows are needed together
            for chunk in [slice(None)] if at_once else row_chunks(len(rows), self.n_channels * self.n_times):
                parts.append(person.maps(self.X[rows[chunk]].to(self.dtype)))

        places = each_person(self._who, training, held_out, self._prior, prepare)
        maps = [None if part[0] is None else torch.cat([p[0] for p in part]) for part in zip(*parts, strict=True)]
        shift, gain, mix = (None if m is None else m.to(device=self.device, dtype=self.dtype) for m in maps)
        return MappedNewcomers(Map(shift, gain, mix), places.to(self.device), self._read)  # type: ignore[arg-type]

    def _prior(self, training: NDArray[np.int64]) -> Prior:
        people = self.people if self.people is not None else self._measure(training)
        return people.prior(torch.from_numpy(training))

    def moments(self, x: Tensor, rows: Tensor, fitted: FoldStatistics | None) -> Moments | None:
        if self.kernel == 0:
            return None
        return window_moments(x.transpose(1, 2).flatten(1, 2), self.kernel)
