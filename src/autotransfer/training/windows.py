"""Windows of recordings as an encoder gets them: gathered from memory, or read from their file a minibatch at a time.

Members hold rows, never copies of data. In memory, what no fold matters to is done once for all windows; the rest is
done to each minibatch. From a file everything is done to each minibatch, and the next one is read while the present one
trains. How a window is prepared is known to `preprocessing` alone.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import gpu
from ..augment import Scaling
from ..errors import UserError
from ..folds import Fold
from ..fusing import fused
from ..gpu import Picked
from ..jobs import Job
from ..model.moments import Levelled, Moments, edge_sums, lag_sums, level_sums, moments_of, n_sums
from ..preprocessing import FittedPreprocessing, Preprocessing
from ..preprocessing.append_scale import AppendScale
from ..preprocessing.standardise import Standardise
from ..recordings import Recordings
from ..recordings.chunks import row_chunks
from . import packing
from .shapes import Shapes

Rows = NDArray[np.int64]
CHUNK = 2**22  # elements worked on at once while preparing
KEPT = 2  # preprocessings of one data set whose windows stay in memory


class Windows:
    """All windows of a data set, prepared as far as no fold matters, on the device; or raw, in their file."""

    def __init__(
        self, recordings: Recordings, preprocessing: Preprocessing, kernel: int, *, device: torch.device,
        dtype: torch.dtype, in_memory: bool = True, apart: bool = True,
    ) -> None:  # fmt: skip
        """kernel: of the encoder's first filters, for which moments of the windows are tabulated; 0: nobody asks.
        apart: there is memory for `shapes`."""
        self.recordings, self.preprocessing, self.in_memory = recordings, preprocessing, in_memory
        self.device, self.dtype = device, dtype
        self.y, self.subject = recordings.y.to(device), recordings.subject.to(device)
        self.kernel = kernel
        self.done = 0  # transforms that X has been through
        self.ready: tuple[int, Tensor] | None = None  # see Stage
        self.sums: Tensor | None = None  # (N, n_sums) or, without edges, (N, 1 + kernel)
        self.shapes: Shapes | None = None  # where a fold changes nothing but appended levels
        if not in_memory:
            self.X = recordings.X
            return
        if preprocessing.represented:
            self.ready = self.done, self.X = _represented(recordings, preprocessing, device, dtype)
        else:
            # Recordings keep an array as it was given; rows of channels are gathered from contiguous memory.
            self.X = recordings.X.to(device=device, dtype=dtype).contiguous()
        if preprocessing.by_fold > self.done:
            everybody = partial(
                self._fit([np.arange(recordings.n_trials)]), start=self.done, stop=preprocessing.by_fold
            )
            parts = [everybody(self.X[rows][None], self.subject[rows][None])[0] for rows in self._chunks()]
            self.X, self.done = torch.cat(parts), preprocessing.by_fold
        if self.kernel and preprocessing.tabulated and self.done == len(preprocessing.transforms):
            self.sums = self._table(lambda rows: self.X[rows], edges=_has_edges(self.X[0].numel(), kernel))
        if apart and self.kernel and _has_shapes(preprocessing, device):
            self.shapes = Shapes(self.X, kernel, self._chunks(), edges=_has_edges(self.X[0].numel(), kernel))

    def _chunks(self) -> list[slice]:
        return _chunks(self.recordings)

    def _fit(self, training: Sequence[Rows]) -> FittedPreprocessing:
        """On raw windows, where they are, a piece at a time on the device."""
        raw, like = self.recordings.X if self.done else self.X, torch.empty(0, device=self.device, dtype=self.dtype)
        derived, ring = self.recordings.derived, self.recordings.ring
        return self.preprocessing.fit(raw, self.subject, training, derived, like, ring, self.ready)

    def _table(self, windows: Callable[[slice], Tensor], *, edges: bool) -> Tensor:
        """Sums of every window, in float64 where transforms would round: (N, n_sums), without edges (N, 1 + kernel)."""
        recordings, parts = self.recordings, []
        n_constant = self.preprocessing.n_constant(recordings.n_channels, recordings.n_times)
        for rows in self._chunks():
            x = windows(rows)
            sums = lag_sums(x.double(), self.kernel, n_constant).to(self.dtype)
            parts.append(torch.cat([sums, edge_sums(x, self.kernel)], -1) if edges else sums)
        return torch.cat(parts)

    def for_groups(self, training: Sequence[Rows], held_out: Sequence[Rows]) -> Prepared:
        """The windows as each of G groups has them, fitted on its training rows."""
        return Prepared(self, training, held_out)


class Prepared:
    """Windows of G groups: `gather` those that a group trains on, `held_out` those of people it has never seen."""

    def __init__(self, windows: Windows, training: Sequence[Rows], held_out: Sequence[Rows]) -> None:
        self.windows = windows
        self.fitted = windows._fit(training)
        self.shapes = windows.shapes
        if self.shapes is not None and not self.shapes.hold(self._scale()[1], training):
            self.shapes = None
        self.lags: Tensor | None = None  # (G, N, 1 + kernel) where windows depend on the fold
        if (
            self.shapes is None
            and windows.kernel
            and windows.preprocessing.tabulated
            and windows.in_memory
            and windows.sums is None
        ):
            self.lags = self._lags_by_group(len(training))
        self.newcomers: Newcomers | None = None  # None: held-out windows are prepared as training windows are
        if windows.preprocessing.follows and any(len(rows) for rows in held_out):
            self.newcomers = self._newcomers(training, held_out)

    def _lags_by_group(self, groups: int) -> Tensor:
        windows, tables = self.windows, []
        for group in range(groups):
            alone = self.fitted.of_group(group)
            tables.append(
                windows._table(
                    lambda rows, f=alone: f(  # type: ignore[misc]  # bound now
                        windows.X[rows][None], windows.subject[rows][None], start=windows.done
                    )[0],
                    edges=False,
                )
            )
        return torch.stack(tables)

    def _newcomers(self, training: Sequence[Rows], held_out: Sequence[Rows]) -> Newcomers:
        """Every held-out person of every group, followed in the order of recording with the group's prior.

        The prior comes from the training people, so a held-out window looks different in every fold. Folds that
        several groups share are computed once for all of them.
        """
        windows, rec = self.windows, self.windows.recordings
        start, X = (0, rec.X) if windows.ready is None else windows.ready
        who = rec.subject.numpy()
        places = np.full((len(training), len(who)), -1, dtype=np.int64)
        first: dict[tuple[bytes, bytes], int] = {}
        parts = _Parts(in_memory=windows.in_memory)
        for g, (train, held) in enumerate(zip(training, held_out, strict=True)):
            same = first.setdefault((train.tobytes(), held.tobytes()), g)
            if same < g:
                places[g] = places[same]
                continue
            fitted = self.fitted.of_group(g)
            for person in np.unique(who[held]):
                rows = np.sort(held[who[held] == person])
                places[g, rows] = np.arange(parts.count, parts.count + len(rows))
                follower = fitted.follow(start)
                whole = follower.at_once or windows.in_memory
                for chunk in [slice(None)] if whole else row_chunks(len(rows), rec.X[0].numel()):
                    raw = X[torch.from_numpy(rows[chunk])].to(device=windows.device, dtype=windows.dtype)
                    parts.add(follower.feed(raw)[0])
        return Newcomers(parts.joined(), torch.from_numpy(places).to(windows.device))

    def of_group(self, group: int) -> Prepared:
        """What one group alone trains on, to `gather` from; statistics are views."""
        alone = copy.copy(self)
        alone.fitted, alone.lags, alone.newcomers, alone.shapes = self.fitted.of_group(group), None, None, None
        return alone

    def gather(self, rows: Tensor) -> Tensor:
        """rows: (G, B) -> windows (G, B, channels, times), channel-major in memory."""
        windows = self.windows
        if not windows.in_memory:
            return self._prepared(self._read(rows), rows)
        start, steps = windows.done, self.fitted.steps
        affine = steps[start].affine() if start < len(steps) else None
        if affine is None:
            x = _gathered(windows.X, rows, None, None).transpose(1, 2)
        else:
            x, start = _gathered(windows.X, rows, *affine).transpose(1, 2), start + 1
        return x if start == len(steps) else channel_major(self.fitted(x, windows.subject[rows], start=start))

    def picked(self, rows: Tensor) -> Picked | None:
        """What `gather` would give, left where it is: None where windows are changed before the encoder sees them, or
        no kernel reads them there."""
        windows = self.windows
        ready = windows.sums is not None and windows.sums.shape[1] == n_sums(windows.kernel)
        return Picked(windows.X, rows) if ready and gpu.available(windows.X) else None

    def levelled(self, rows: Tensor) -> Levelled | None:
        """What `gather` would give of training rows (G, B), without drawing levels out over time: None where there is
        no table of shapes."""
        if self.shapes is None:
            return None
        signals = _gathered(self.shapes.x, rows, None, None).transpose(1, 2)
        return Levelled(signals, self.shapes.levels(rows, *self._scale()))

    def _scale(self) -> tuple[Tensor, Tensor]:
        """Shift and scale (G, C) of every group."""
        affine = self.fitted.steps[self.windows.done].affine()
        assert affine is not None
        return affine

    def held_out(self, rows: Tensor) -> Tensor:
        """What `gather` gives for people whom the groups are not trained on."""
        return self.gather(rows) if self.newcomers is None else self.newcomers.gather(rows, self.windows)

    def mixed(self, rows: Tensor) -> Tensor:
        """Windows of anybody: as held out where the group has followed them, else as trained on."""
        x = self.gather(rows)
        if self.newcomers is None:
            return x
        new = self.newcomers.places.gather(1, rows) >= 0
        return torch.where(new[..., None, None], self.newcomers.gather(rows, self.windows), x)

    def batches(self, plan: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """plan: (steps, G, B) -> for every step its rows (G, B) and their windows, read from the file.

        The next minibatch is read while its predecessor trains. Two buffers take turns: memory that one thread takes
        and another frees piles up in the allocator.
        """
        X = self.windows.X
        buffers = [X.new_empty(plan[0].numel(), *X.shape[1:]) for _ in range(2)]
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self._read, plan[0], buffers[0])
            for step, rows in enumerate(plan):
                x = coming.result()
                if step + 1 < len(plan):
                    coming = reader.submit(self._read, plan[step + 1], buffers[(step + 1) % 2])
                yield rows, self._prepared(x, rows)

    def _read(self, rows: Tensor, into: Tensor | None = None) -> Tensor:
        """rows: (G, B) -> raw windows (G, B, channels, times) in host memory, that of `into` (GB, channels, times)."""
        X = self.windows.X
        return torch.index_select(X, 0, rows.flatten().cpu(), out=into).view(*rows.shape, *X.shape[1:])

    def _prepared(self, x: Tensor, rows: Tensor) -> Tensor:
        x = x.to(device=self.windows.device, dtype=self.windows.dtype)
        x = self.fitted(x, self.windows.subject[rows])
        # Channel-major, as the encoder likes it, and never the buffer itself.
        return x.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)

    def moments(self, x: Tensor | Picked | Levelled, rows: Tensor) -> Moments | None:
        """Of gathered windows x (G, B, C, T), from the table where there is one. None: nobody needs them, or the
        encoder works them out."""
        windows = self.windows
        kernel = windows.kernel
        levelled = x if isinstance(x, Levelled) else self.levelled(rows)
        if levelled is not None:
            return self.moments_of_shapes(levelled, rows)
        assert not isinstance(x, Levelled)
        if windows.sums is not None:
            sums = sum_rows(windows.sums, rows)
        elif self.lags is not None:
            sums = self.lags[torch.arange(rows.shape[0], device=rows.device)[:, None], rows].sum(1)
        else:
            return None
        if isinstance(x, Picked):
            return moments_of(sums, kernel, rows.shape[1] * windows.X[0].numel())
        if sums.shape[1] < n_sums(kernel):
            sums = torch.cat([sums, edge_sums(x.transpose(1, 2).flatten(1, 2), kernel)], -1)
        return moments_of(sums, kernel, x[0].numel())

    def moments_of_shapes(self, x: Levelled, rows: Tensor, factors: Tensor | None = None) -> Moments:
        """factors: (G, B, channels) that channels of `levelled` were multiplied by to give x."""
        assert self.shapes is not None
        _, batch, channels, times = x.signals.shape
        kernel = self.windows.kernel
        if factors is None:
            sums = sum_rows(self.shapes.sums, rows)
        else:
            sums = self.shapes.scaled_lags(rows, factors[..., :channels])
        if sums.shape[1] < n_sums(kernel):
            sums = torch.cat([sums, edge_sums(x.signals.transpose(1, 2).flatten(1, 2), kernel)], -1)
        sums = sums + level_sums(x.levels.flatten(1), times, kernel)
        return moments_of(sums, kernel, batch * x.n_channels * times)

    def select(self, stay: Tensor) -> None:
        """Keep these groups."""
        self.fitted.select(stay)
        if self.lags is not None:
            self.lags = self.lags[stay]
        if self.newcomers is not None:
            self.newcomers.places = self.newcomers.places[stay]


class Newcomers:
    """Prepared windows of the held-out people of G groups."""

    def __init__(self, prepared: Tensor, places: Tensor) -> None:
        self.prepared = prepared  # (K, channels, times), in memory or in a temporary file
        self.places = places  # (G, N): where a group finds a row's window; -1: it is not held out there

    def gather(self, rows: Tensor, windows: Windows) -> Tensor:
        """rows: (G, B) -> windows (G, B, channels, times), channel-major in memory; those of -1 are anybody's."""
        places = self.places.gather(1, rows).clamp(min=0)
        return channel_major(self.prepared[places.to(self.prepared.device)].to(device=windows.device))


class _Parts:
    """Prepared windows as they come: in memory, or, where the data stay in a file, in a temporary one (TMPDIR)."""

    def __init__(self, *, in_memory: bool) -> None:
        self.count = 0
        self.parts: list[Tensor] = []
        self.path: Path | None = None
        if not in_memory:
            handle, name = tempfile.mkstemp(prefix="autotransfer-")
            os.close(handle)
            self.path = Path(name)

    def add(self, x: Tensor) -> None:
        """x: (n, channels, times)."""
        self.count += len(x)
        if self.path is None:
            self.parts.append(x)
            return
        array = x.cpu().contiguous().numpy()
        self.shape, self.dtype = array.shape[1:], array.dtype
        with self.path.open("ab") as file:
            file.write(array.tobytes())

    def joined(self) -> Tensor:
        if self.path is None:
            return torch.cat(self.parts)
        mapped = np.memmap(self.path, mode="c", dtype=self.dtype, shape=(self.count, *self.shape))
        weakref.finalize(mapped, _remove, self.path)  # the file goes with the last tensor that reads it
        return torch.from_numpy(mapped)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # Windows keeps a file that is still mapped
        path.unlink()


@fused
def _gathered(X: Tensor, rows: Tensor, shift: Tensor | None, inv_std: Tensor | None) -> Tensor:
    """X (N, C, T) at rows (G, B), standardised by shift and inv_std (G, C) if given: (G, C, B, T)."""
    _, channels, times = X.shape
    places = rows[:, None, :] * channels + torch.arange(channels, device=X.device)[None, :, None]
    x = X.view(-1, times).index_select(0, places.flatten()).view(*places.shape, times)
    if shift is None or inv_std is None:
        return x
    return x.sub_(shift[:, :, None, None]).mul_(inv_std[:, :, None, None])  # in place: it is a copy already


def sum_rows(table: Tensor, rows: Tensor) -> Tensor:
    """table: (N, n), rows: (G, B) -> (G, n), the sum over a group's rows."""
    if gpu.available(table):
        return gpu.sum_rows(table, rows)
    return torch.nn.functional.embedding_bag(rows, table, mode="sum")


def channel_major(x: Tensor) -> Tensor:
    """Windows (G, B, channels, times) laid out in memory as the encoder likes them."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def windows_for(recordings: Recordings, job: Job, *, device: torch.device, dtype: torch.dtype) -> Windows:
    """Windows for a job's program, prepared once for all populations on these recordings that need the same.

    In the device's memory where they fit, else read from where they are a minibatch at a time. They hang on the
    recordings, so that nobody can be given another data set's; `release` lets them go.
    """
    preprocessing = job.setting.preprocessing
    kernel = job.setting.network.moments_kernel(recordings.sfreq)
    if augmentation := job.setting.augmentation:  # of tables, shapes alone serve changed windows
        scaled = all(isinstance(step, Scaling) for step in augmentation)
        kernel = kernel if scaled and _has_shapes(preprocessing, device) else 0
    key = (preprocessing, kernel, str(device), dtype)
    kept: dict[Any, Windows] = recordings.derived.setdefault("windows", {})
    if key not in kept:
        while len(kept) >= KEPT:  # populations of one preprocessing follow each other
            del kept[next(iter(kept))]
        size = math.prod(preprocessing.shape(recordings.n_channels, recordings.n_times))
        sums = n_sums(kernel) if kernel and _has_edges(size, kernel) else 0
        in_memory = packing.fits(recordings, device, dtype, preprocessing, sums)
        shapes = recordings.X[0].numel() + recordings.n_channels * (1 + kernel)
        apart = packing.fits(recordings, device, dtype, preprocessing, sums + shapes)
        kept[key] = Windows(
            recordings, preprocessing, kernel, device=device, dtype=dtype, in_memory=in_memory, apart=apart
        )
    return kept[key]


def represented(recordings: Recordings, preprocessing: Preprocessing) -> tuple[int, Tensor] | None:
    """How many transforms lead to a representation that is the same for everybody, and all windows after these, to use
    a model on the recordings it was trained on. None where there is no such representation, or no memory for it."""
    device, dtype = torch.device("cpu"), torch.float32
    if not preprocessing.represented or not packing.fits(recordings, device, dtype, preprocessing):
        return None
    return _represented(recordings, preprocessing, device, dtype)


def _represented(
    recordings: Recordings, preprocessing: Preprocessing, device: torch.device, dtype: torch.dtype
) -> tuple[int, Tensor]:
    """Computed once for every preprocessing that begins with the same transforms. All that are kept need less memory
    than the recordings."""
    chain = Preprocessing(preprocessing.transforms[: preprocessing.represented])
    kept: dict[Any, Tensor] = recordings.derived.setdefault("represented", {})
    key = (chain, str(device), dtype)
    if key not in kept:
        X, subject = recordings.X.to(device=device, dtype=dtype), recordings.subject.to(device)
        fitted = chain.fit(X, subject, [np.arange(len(X))], ring=recordings.ring)
        made = torch.cat([fitted(X[rows][None], subject[rows][None])[0] for rows in _chunks(recordings)])
        while kept and sum(windows.numel() for windows in kept.values()) + made.numel() > X.numel():
            del kept[next(iter(kept))]
        kept[key] = made
    return preprocessing.represented, kept[key]


def _chunks(recordings: Recordings) -> list[slice]:
    """Of windows to work on at once."""
    step = max(1, CHUNK // max(1, recordings.X[0].numel()))
    return [slice(start, start + step) for start in range(0, recordings.n_trials, step)]


def _has_shapes(preprocessing: Preprocessing, device: torch.device) -> bool:
    """Whether `Shapes` are what folds leave unchanged of windows, where there is a use for them."""
    by_fold = preprocessing.transforms[preprocessing.by_fold :]
    return device.type == "cpu" and by_fold == (Standardise("train"), AppendScale())


def _has_edges(size: int, kernel: int) -> bool:
    """Whether sums are tabulated with the edges of windows of so many samples. Where that is more than the windows
    themselves, edges are read from these."""
    return n_sums(kernel) <= size


def release(recordings: Recordings) -> None:
    """Free prepared windows and statistics on a device. Representations in memory, which need less than the recordings,
    stay for the next training or model."""
    every = recordings.derived.get("represented", {})
    kept = {key: windows for key, windows in every.items() if windows.device.type == "cpu"}
    recordings.derived.clear()
    if kept:
        recordings.derived["represented"] = kept


def held_out_rows(fold: Fold) -> Rows:
    return np.union1d(fold.validation, fold.test).astype(np.int64)


def check_whole_subjects(recordings: Recordings, jobs: Sequence[Job]) -> None:
    """Online transforms prepare training subjects with all their windows, so none of these may be held out."""
    subject, seen = recordings.subject.numpy(), set[str]()
    for job in jobs:
        fold = job.fold
        if not job.setting.preprocessing.follows or fold.trajectory in seen:
            continue
        seen.add(fold.trajectory)
        trains = np.bincount(subject[fold.train], minlength=recordings.n_subjects)
        split = (trains > 0) & (trains < np.bincount(subject, minlength=recordings.n_subjects))
        if split.any():
            name = recordings.subjects[int(split.argmax())]
            raise UserError(
                f"a fold trains on some of subject {name!r}'s windows only; turn, standardise, align or centre "
                "'online' needs folds that leave out whole subjects"
            )
