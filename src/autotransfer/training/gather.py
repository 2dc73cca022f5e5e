"""Windows on the device, standardised where they are gathered. Members hold rows, never copies of data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..fusing import fused
from ..model.moments import Lags, Moments, lag_sums, window_moments
from ..recordings import Recordings
from ..recordings.people import People, Prior, measure
from ..recordings.running import Person
from .newcomers import Newcomers, channel_major, each_person

CHUNK = 2**22  # elements worked on at once while preparing


class FoldStatistics(NamedTuple):
    """What standardise="channel" needs of the training rows of each of G groups, and what alignment then does."""

    shift: Tensor  # (G, channels)
    gain: Tensor  # (G, channels)
    lags: Lags  # fields (G, N, ...)
    mix: Tensor | None = None  # (G, subjects, channels, channels)

    def select(self, keep: Tensor) -> FoldStatistics:
        lags = Lags(self.lags.total[keep], self.lags.lags[keep])
        mix = None if self.mix is None else self.mix[keep]
        return FoldStatistics(self.shift[keep], self.gain[keep], lags, mix)


class Windows:
    """All windows of a data set on the device, and what data alone determines about them."""

    def __init__(
        self, recordings: Recordings, kind: str, kernel: int, *, device: torch.device, dtype: torch.dtype,
        align: str = "none",
    ) -> None:  # fmt: skip
        self.kind, self.kernel, self.device, self.dtype, self.align = kind, kernel, device, dtype, align
        self.source = recordings.X  # raw, where it is: windows of held-out people may be prepared otherwise
        self.y = recordings.y.to(device)
        self.subject = recordings.subject.to(device)
        X = recordings.X.to(device=device, dtype=dtype)
        self.n_trials, self.n_channels, self.n_times = X.shape
        self.lags: Lags | None = None
        self.people: People | None = None
        if kind != "channel":  # the statistics depend on no fold: standardise and align once
            self.people = measure(X, self.subject, kind, align)
            if kind != "none" or align != "none":
                X = torch.cat([self.people.prepared(X[rows], rows) for rows in self._chunks()])
            self.lags = self._lag_table(X)
        self.X = X

    def _chunks(self) -> list[slice]:
        step = max(1, CHUNK // (self.n_channels * self.n_times))
        return [slice(start, start + step) for start in range(0, self.n_trials, step)]

    def _lag_table(self, X: Tensor, people: People | None = None) -> Lags:
        """Sums of every window, in float64 because they cancel later: fields (N, ...)."""
        if self.kernel == 0:  # an encoder that does not ask for moments
            return Lags(X.new_zeros(self.n_trials), X.new_zeros(self.n_trials, 0))
        parts = []
        for rows in self._chunks():
            x = X[rows] if people is None else people.prepared(X[rows], rows)
            parts.append(lag_sums(x.double(), self.kernel))
        return Lags(
            torch.cat([part.total for part in parts]).to(X.dtype),
            torch.cat([part.lags for part in parts]).to(X.dtype),
        )

    def fit(self, training: Sequence[NDArray[np.int64]]) -> FoldStatistics | None:
        """Statistics of the training rows of each group; None where standardisation needs none."""
        if self.kind != "channel":
            return None
        fitted = [self._people(rows) for rows in training]
        tables = [self._lag_table(self.X, people) for people in fitted]
        lags = Lags(torch.stack([table.total for table in tables]), torch.stack([table.lags for table in tables]))
        mixes = [people.mix for people in fitted if people.mix is not None]
        shift, gain = torch.cat([people.shift for people in fitted]), torch.cat([people.gain for people in fitted])
        return FoldStatistics(shift, gain, lags, torch.stack(mixes) if mixes else None)

    def _people(self, training: NDArray[np.int64]) -> People:
        """Whole-person statistics, which depend on the training rows only with standardise="channel"."""
        if self.people is not None:
            return self.people
        rows = torch.as_tensor(training, device=self.X.device)
        return measure(self.X, self.subject, self.kind, self.align, rows=rows)

    def newcomers(
        self, training: Sequence[NDArray[np.int64]], held_out: Sequence[NDArray[np.int64]]
    ) -> Newcomers | None:
        """Held-out windows of each group as a new person's; None: they are prepared as training windows are."""
        if "running" not in (self.kind, self.align):
            return None
        parts = []

        def prepare(prior: Prior, rows: Tensor) -> None:
            x = self.source[rows].to(device=self.device, dtype=self.dtype)
            parts.append(Person(self.kind, self.align, prior).feed(x)[0])

        places = each_person(self.subject, training, held_out, self._prior, prepare)
        return Newcomers(torch.cat(parts), places)

    def _prior(self, training: NDArray[np.int64]) -> Prior:
        return self._people(training).prior(torch.as_tensor(training, device=self.subject.device))

    def gather(self, rows: Tensor, fitted: FoldStatistics | None) -> Tensor:
        """rows: (G, B) -> standardised windows (G, B, channels, times), channel-major in memory."""
        shift, gain = (None, None) if fitted is None else (fitted.shift, fitted.gain)
        x = _gathered(self.X, rows, shift, gain).transpose(1, 2)
        return x if fitted is None or fitted.mix is None else mixed(fitted.mix, self.subject[rows], x)

    def moments(self, x: Tensor, rows: Tensor, fitted: FoldStatistics | None) -> Moments | None:
        """Of gathered windows x (G, B, C, T): the transform was done once, per row. None: nobody needs them."""
        if self.kernel == 0:
            return None
        if fitted is None:
            assert self.lags is not None
            own = Lags(self.lags.total[rows], self.lags.lags[rows])
        else:
            group = torch.arange(rows.shape[0], device=rows.device)[:, None]
            own = Lags(fitted.lags.total[group, rows], fitted.lags.lags[group, rows])
        batch = Lags(own.total.sum(1), own.lags.sum(1))
        return window_moments(x.transpose(1, 2).flatten(1, 2), self.kernel, batch)


@fused
def _gathered(X: Tensor, rows: Tensor, shift: Tensor | None, gain: Tensor | None) -> Tensor:
    """X (N, C, T) at rows (G, B), standardised by shift and gain (G, C) if given: (G, C, B, T)."""
    _, channels, times = X.shape
    places = rows[:, None, :] * channels + torch.arange(channels, device=X.device)[None, :, None]
    x = X.view(-1, times).index_select(0, places.flatten()).view(*places.shape, times)
    return x if shift is None or gain is None else (x - shift[:, :, None, None]) * gain[:, :, None, None]


def mixed(mix: Tensor, subject: Tensor, x: Tensor) -> Tensor:
    """Windows x (G, B, C, T) of these subjects (G, B), aligned by their group's matrices (G, subjects, C, C); the
    result is channel-major."""
    group = torch.arange(len(mix), device=mix.device)[:, None]
    return channel_major(mix[group, subject] @ x)
