"""Windows on the device, standardised where they are gathered. Members hold rows, never copies of data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..fusing import fused
from ..model.moments import Lags, Moments, lag_sums, window_moments
from ..recordings import Recordings
from ..recordings.standardise import affine, apply

CHUNK = 2**22  # elements worked on at once while preparing


class FoldStatistics(NamedTuple):
    """What standardise="channel" needs of the training rows of each of G groups."""

    shift: Tensor  # (G, channels)
    gain: Tensor  # (G, channels)
    lags: Lags  # fields (G, N, ...)

    def select(self, keep: Tensor) -> FoldStatistics:
        lags = Lags(self.lags.total[keep], self.lags.lags[keep])
        return FoldStatistics(self.shift[keep], self.gain[keep], lags)


class Windows:
    """All windows of a data set on the device, and what data alone determines about them."""

    resident = True  # rows that are known on the device alone can be gathered

    def __init__(
        self, recordings: Recordings, kind: str, kernel: int, *, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.kind, self.kernel, self.device, self.dtype = kind, kernel, device, dtype
        self.y = recordings.y.to(device)
        self.subject = recordings.subject.to(device)
        X = recordings.X.to(device=device, dtype=dtype)
        self.n_trials, self.n_channels, self.n_times = X.shape
        self.lags: Lags | None = None
        if kind != "channel":  # the statistics depend on no fold: standardise once
            shift, gain, index = affine(X, self.subject, kind)
            if kind != "none":
                X = torch.cat([apply(X[rows], shift[index[rows]], gain[index[rows]]) for rows in self._chunks()])
            self.lags = self._lag_table(X)
        self.X = X

    def _chunks(self) -> list[slice]:
        step = max(1, CHUNK // (self.n_channels * self.n_times))
        return [slice(start, start + step) for start in range(0, self.n_trials, step)]

    def _lag_table(self, X: Tensor, shift: Tensor | None = None, gain: Tensor | None = None) -> Lags:
        """Sums of every window, in float64 because they cancel later: fields (N, ...)."""
        if self.kernel == 0:  # an encoder that does not ask for moments
            return Lags(X.new_zeros(self.n_trials), X.new_zeros(self.n_trials, 0))
        parts = []
        for rows in self._chunks():
            x = X[rows] if shift is None or gain is None else apply(X[rows], shift, gain)
            parts.append(lag_sums(x.double(), self.kernel))
        return Lags(
            torch.cat([part.total for part in parts]).to(X.dtype),
            torch.cat([part.lags for part in parts]).to(X.dtype),
        )

    def fit(self, training: Sequence[NDArray[np.int64]]) -> FoldStatistics | None:
        """Statistics of the training rows of each group; None where standardisation needs none."""
        if self.kind != "channel":
            return None
        shifts, gains, tables = [], [], []
        for rows in training:
            shift, gain, _ = affine(self.X, self.subject, "channel", rows=torch.as_tensor(rows, device=self.X.device))
            shifts.append(shift[0])
            gains.append(gain[0])
            tables.append(self._lag_table(self.X, shift, gain))
        lags = Lags(torch.stack([table.total for table in tables]), torch.stack([table.lags for table in tables]))
        return FoldStatistics(torch.stack(shifts), torch.stack(gains), lags)

    def batches(self, plan: Tensor, fitted: FoldStatistics | None) -> Iterator[tuple[Tensor, Tensor]]:
        """plan: (steps, G, B) -> for every step its rows (G, B) and their windows, as `gather` gives them."""
        for rows in plan:
            yield rows, self.gather(rows, fitted)

    def gather(self, rows: Tensor, fitted: FoldStatistics | None) -> Tensor:
        """rows: (G, B) -> standardised windows (G, B, channels, times), channel-major in memory."""
        shift, gain = (None, None) if fitted is None else (fitted.shift, fitted.gain)
        return _channel_major(self.X, rows, shift, gain).transpose(1, 2)

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
def _channel_major(X: Tensor, rows: Tensor, shift: Tensor | None, gain: Tensor | None) -> Tensor:
    """X (N, C, T) at rows (G, B), standardised by shift and gain (G, C) if given: (G, C, B, T)."""
    _, channels, times = X.shape
    places = rows[:, None, :] * channels + torch.arange(channels, device=X.device)[None, :, None]
    x = X.view(-1, times).index_select(0, places.flatten()).view(*places.shape, times)
    return x if shift is None or gain is None else (x - shift[:, :, None, None]) * gain[:, :, None, None]
