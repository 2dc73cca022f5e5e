"""Held-out people under "running": every window prepared from the person's own windows so far and the fold's prior.

The prior comes from the training subjects, so a held-out window looks different in every fold. It is computed once,
when a population is made, for held-out rows alone; folds that several groups share are computed once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError
from ..folds import Fold
from ..jobs import Job
from ..recordings import Recordings
from ..recordings.people import Prior
from ..recordings.running import Map

Rows = NDArray[np.int64]


class Newcomers:
    """Windows of the held-out people of G groups."""

    def __init__(self, windows: Tensor, places: Tensor) -> None:
        self.windows = windows  # (K, channels, times)
        self.places = places  # (G, N): where a group finds a row's window; -1: it is not held out there

    def gather(self, rows: Tensor) -> Tensor:
        """rows: (G, B) -> windows (G, B, channels, times), channel-major in memory; those of -1 are anybody's."""
        own = self.places.gather(1, rows).clamp(min=0)
        return channel_major(self.windows[own])

    def select(self, stay: Tensor) -> None:
        """Keep these groups."""
        self.places = self.places[stay]


class MappedNewcomers(Newcomers):
    """The same for windows that stay in their file: only what is done with each of them is kept."""

    def __init__(self, maps: Map, places: Tensor, read: Callable[[Tensor], Tensor]) -> None:
        """maps: of K windows, (K, channels) and (K, channels, channels); read: rows (G, B) -> raw windows."""
        self.maps, self.places, self.read = maps, places, read

    def gather(self, rows: Tensor) -> Tensor:
        own = self.places.gather(1, rows).clamp(min=0)
        shift, gain, mix = self.maps
        x = self.read(rows).to(device=shift.device, dtype=shift.dtype)
        return channel_major(Map(shift[own], gain[own], None if mix is None else mix[own]).apply(x))


def channel_major(x: Tensor) -> Tensor:
    """Windows (G, B, channels, times) laid out in memory as the encoder likes them."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def held_out_rows(fold: Fold) -> Rows:
    return np.union1d(fold.validation, fold.test)


def each_person(
    people: Tensor, training: Sequence[Rows], held_out: Sequence[Rows], prior_of: Callable[[Rows], Prior],
    prepare: Callable[[Prior, Tensor], None],
) -> Tensor:  # fmt: skip
    """Calls `prepare(prior, rows)` for every held-out person of every group, rows in the order of recording.

    people: (N,) whose each row is. Returns `places` (G, N), which counts the rows in the order of the calls.
    """
    who = people.cpu().numpy()
    places = np.full((len(training), len(who)), -1, dtype=np.int64)
    first: dict[tuple[bytes, bytes], int] = {}
    used = 0
    for g, (train, held) in enumerate(zip(training, held_out, strict=True)):
        same = first.setdefault((train.tobytes(), held.tobytes()), g)
        if same < g:
            places[g] = places[same]
            continue
        prior = prior_of(train)
        for person in np.unique(who[held]):
            rows = np.sort(held[who[held] == person])
            prepare(prior, torch.from_numpy(rows))
            places[g, rows] = np.arange(used, used + len(rows))
            used += len(rows)
    return torch.from_numpy(places).to(people.device)


def check_whole_subjects(recordings: Recordings, jobs: Sequence[Job]) -> None:
    """Training subjects are prepared with all their windows, so none of these may be held out."""
    subject, seen = recordings.subject.numpy(), set[str]()
    for job in jobs:
        fold = job.fold
        if job.setting.adaptation != "running" or fold.trajectory in seen:
            continue
        seen.add(fold.trajectory)
        trains = np.bincount(subject[fold.train], minlength=recordings.n_subjects)
        split = (trains > 0) & (trains < np.bincount(subject, minlength=recordings.n_subjects))
        if split.any():
            name = recordings.subjects[int(split.argmax())]
            raise UserError(
                f"a fold trains on some of subject {name!r}'s windows only; standardise or align 'running' needs folds "
                "that leave out whole subjects"
            )
