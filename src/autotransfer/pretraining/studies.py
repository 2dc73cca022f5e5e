"""Studies: recordings of several studies as one data set, in which people and classes stay distinct."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations
from math import prod
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import UserError, shown
from ..preprocessing.represent.pretrained import at_one_scale
from ..recordings import Recordings, load
from ..recordings.chunks import row_chunks
from ..recordings.copies import Traces, traces
from ..recordings.layout import channel_map, lengthened, plain_name, resampling, starts
from ..recordings.windows import channel_names
from ..training import packing

FEWEST = 2  # studies
SHORTEST = 16  # samples of a common window


class Studies:
    """Several studies as one data set: common channels, rate, window length and scale.

    Parameters
    ----------
    studies : sequence of Recordings, or of what `load` takes
        At least two. People are never shared: samples that two studies have in common are found and refused.
    channels : sequence of str, optional
        Channels of the common windows. Default: those of a ring where all studies have one, else those that at least
        half of the studies have. A channel that a study lacks is interpolated from its neighbours where names tell the
        positions of electrodes (10-10 system), and is 0 elsewhere.
    sfreq : float, optional
        Rate in Hz. Default: that of most studies.
    window : float, optional
        Seconds of a window. Default: the shortest of all. Longer windows are cut into several, shorter ones repeated.

    Attributes
    ----------
    recordings : Recordings
        All windows. Classes are "study: class", and compete with those of the same study (`Recordings.heads`); people
        are "study: person"; the column "study" holds the study, as a nuisance for penalties. Every window has mean 0 in
        each channel and deviation 1 over all channels, because amplifiers, skins and units differ between studies.
    names, channels, sfreq, n_times : of the studies, and of the common windows
    traces : list of Traces
        Fingerprints by which people of each study are recognised.

    Examples
    --------
    >>> import autotransfer as at
    >>> one, two = at.synthetic(n_subjects=3, seed=1), at.synthetic(n_subjects=3, seed=2)
    >>> at.Studies([one, two]).recordings.n_subjects
    6
    """

    def __init__(
        self,
        studies: Sequence[Recordings | str | os.PathLike[str]],
        *,
        channels: Sequence[str] | None = None,
        sfreq: float | None = None,
        window: float | None = None,
    ) -> None:
        if isinstance(studies, (str, Recordings)) or len(studies) < FEWEST:
            raise UserError(f"Studies needs at least {FEWEST} data sets, in a list; one alone is what run is for")
        self.studies = [study if isinstance(study, Recordings) else load(study) for study in studies]
        self.names = _distinct_names([study.name for study in self.studies])
        self.sfreq = self._rate(sfreq)
        self.n_times = self._times(window)
        self.rings = [study.ring for study in self.studies]
        self.channels = channel_names(channels, len(channels)) if channels is not None else self._usual_channels()
        first = next((study for study in self.studies if study.channels == self.channels), None)
        # A ring of all studies is that of the channels: in their order, or as the first study states it.
        self.ring: tuple[int, ...] | None = None
        if all(ring is not None for ring in self.rings):
            self.ring = tuple(range(len(self.channels))) if first is None else first.ring
        self.mixings = [self._channel_mixing(study, name) for study, name in zip(self.studies, self.names, strict=True)]
        self.traces = [traces(study.X, study.subject.numpy()) for study in self.studies]
        self._check_people()

    def _rate(self, asked: float | None) -> float | None:
        known = [study.sfreq for study in self.studies]
        if asked is None and all(rate is None for rate in known):
            return None
        for name, rate in zip(self.names, known, strict=True):
            if rate is None:
                raise UserError(f"{shown(name)} does not say its sampling rate, and others do; load it with sfreq=")
        if asked is not None:
            if not 0 < asked < 1e6:
                raise UserError(f"sfreq is {shown(asked)}; it must be a positive number of samples per second, or None")
            return float(asked)
        counts = Counter(rate for rate in known if rate is not None)
        return max(counts, key=lambda rate: (counts[rate], -rate))

    def _times(self, window: float | None) -> int:
        if self.sfreq is None:
            if window is not None:
                raise UserError("window is in seconds, and no study says its sampling rate; leave window out")
            return min(study.n_times for study in self.studies)
        if window is not None and not 0 < window < 1e6:
            raise UserError(f"window is {shown(window)}; it must be a positive number of seconds, or None")
        seconds = min(study.n_times / (study.sfreq or 1.0) for study in self.studies) if window is None else window
        times = round(seconds * self.sfreq)
        if times < SHORTEST:
            raise UserError(
                f"common windows would have {times} samples; give a longer window or a higher sfreq, or leave out the "
                "study with the shortest ones"
            )
        return times

    def _usual_channels(self) -> tuple[str, ...]:
        if all(ring is not None for ring in self.rings):
            sizes = Counter(len(ring) for ring in self.rings if ring is not None)
            most = max(sizes, key=lambda size: (sizes[size], -size))
            channels, ring = next(
                (study.channels, study.ring) for study in self.studies if study.ring and len(study.ring) == most
            )
            return channels if len(channels) == most else tuple(channels[place] for place in ring)
        spelled: dict[str, str] = {}
        counts: Counter[str] = Counter()
        for study in self.studies:
            names = dict.fromkeys(plain_name(channel) for channel in study.channels)
            counts.update(list(names))
            for channel in study.channels:
                spelled.setdefault(plain_name(channel), channel)
        common = [spelled[name] for name, count in counts.items() if 2 * count >= len(self.studies) and count > 1]
        if not common:
            raise UserError(
                f"no two studies have a channel in common ({', '.join(map(shown, self.names))}); name channels alike, "
                "state the rings of armbands (ring=), or give channels="
            )
        return tuple(common)

    def _channel_mixing(self, study: Recordings, name: str) -> NDArray[np.float64]:
        mixing = channel_map(study.channels, study.ring, self.channels, self.ring)
        if not mixing.any():
            raise UserError(
                f"{shown(name)} has none of the common channels ({', '.join(self.channels[:8])}); leave it out"
            )
        return mixing

    def _check_people(self) -> None:
        for (here, first), (there, second) in combinations(enumerate(self.traces), 2):
            pairs = first.shared(second)
            if pairs:
                (person, twin), share = max(pairs.items(), key=lambda pair: pair[1])
                raise UserError(
                    f"{shown(self.studies[here].subjects[person])} of {shown(self.names[here])} and "
                    f"{shown(self.studies[there].subjects[twin])} of {shown(self.names[there])} share samples "
                    f"({share:.0%}), and {len(pairs) - 1} further pairs; people may be in one study only: leave them "
                    "out of one"
                )

    @property
    def classes(self) -> list[tuple[str, Any]]:
        """(study, class), in the order of the classes of `recordings`."""
        return [(name, label) for name, study in zip(self.names, self.studies, strict=True) for label in study.classes]

    @property
    def all_traces(self) -> Traces:
        """Of all people, numbered as in `recordings`."""
        shift = np.cumsum([0, *(study.n_subjects for study in self.studies)])
        keys = np.concatenate([known.keys for known in self.traces])
        people = np.concatenate([known.people + first for known, first in zip(self.traces, shift, strict=False)])
        order = np.argsort(keys, kind="stable")
        return Traces(keys[order], people[order])

    @cached_property
    def recordings(self) -> Recordings:
        X = np.empty(self.shape, np.float32)
        for first, part in self._parts():
            X[first : first + len(part)] = part
        return self._labelled(X)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the windows of all studies."""
        windows = sum(study.n_trials * len(self._begins(study)) for study in self.studies)
        return windows, len(self.channels), self.n_times

    @property
    def fit_into_memory(self) -> bool:
        """Whether windows of all studies do, with room for training."""
        return 4 * prod(self.shape) <= packing.SHARE * packing.free_memory(torch.device("cpu"))

    def in_file(self, folder: Path) -> Recordings:
        """`recordings` whose windows are read from a file as they are needed. It lies in a folder without a name, so
        that a killed process leaves none behind."""
        needed, free = 4 * prod(self.shape), disk_usage(folder).free
        if needed > free:
            raise UserError(
                f"windows of all studies need {needed / 1e9:.3g} GB in {folder}, where {free / 1e9:.3g} GB are free; "
                "choose another --out, a shorter window or a lower sfreq"
            )
        with TemporaryFile(dir=folder) as file:
            for first, part in self._parts():
                file.seek(first * part[0].nbytes)
                file.write(np.ascontiguousarray(part).data)
            file.flush()
            return self._labelled(np.memmap(file, np.float32, "r", shape=self.shape))

    def _labelled(self, X: NDArray[np.float32]) -> Recordings:
        y, people, of_study = [], [], []
        first_class = first_person = 0
        for number, study in enumerate(self.studies):
            pieces = len(self._begins(study))
            y.append(np.tile(study.y.numpy() + first_class, pieces))
            people.append(np.tile(study.subject.numpy() + first_person, pieces))
            of_study.append(np.full(len(y[-1]), number))
            first_class, first_person = first_class + study.n_classes, first_person + study.n_subjects
        named = list(zip(self.names, self.studies, strict=True))
        return Recordings(
            X, np.concatenate(y), np.concatenate(people), sfreq=self.sfreq, channels=self.channels,
            ring=self.ring or False, classes=[f"{name}: {label}" for name, label in self.classes],
            subjects=[f"{name}: {person}" for name, study in named for person in study.subjects],
            name=" + ".join(self.names), columns={"study": [self.names[n] for n in np.concatenate(of_study)]},
            heads=[number for number, study in enumerate(self.studies) for _ in study.classes],
        )  # fmt: skip

    def _parts(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Common windows, a few at a time, and the place of the first among all: study after study and, of windows that
        are cut into several, first pieces before second ones."""
        first = 0
        for study, mixing in zip(self.studies, self.mixings, strict=True):
            begins = self._begins(study)
            for rows in row_chunks(study.n_trials, study.X[0].numel()):
                X = lengthened(self._in_common_layout(study, mixing, rows), self.n_times)
                for piece, at in enumerate(begins):
                    scaled, _ = at_one_scale(torch.from_numpy(X[..., at : at + self.n_times]))
                    yield first + piece * study.n_trials + rows.start, scaled.numpy()
            first += len(begins) * study.n_trials

    def _begins(self, study: Recordings) -> list[int]:
        """Where the common windows begin in a window of a study."""
        resampled = self._resampling(study)
        return starts(study.n_times if resampled is None else resampled.shape[1], self.n_times)

    def _in_common_layout(self, study: Recordings, mixing: NDArray[np.float64], rows: slice) -> NDArray[np.float32]:
        """Windows with the common channels, at the common rate."""
        X = np.einsum("ij,njt->nit", mixing.astype(np.float32), study.X[rows].numpy(), optimize=True)
        resampled = self._resampling(study)
        return np.asarray(X if resampled is None else X @ resampled, dtype=np.float32)

    def _resampling(self, study: Recordings) -> NDArray[np.float32] | None:
        """What brings windows of a study to the common rate; None where they have it."""
        if study.sfreq is None or self.sfreq is None or study.sfreq == self.sfreq:
            return None
        return resampling(study.n_times, study.sfreq, self.sfreq)

    def __repr__(self) -> str:
        people = sum(study.n_subjects for study in self.studies)
        rate = "" if self.sfreq is None else f" at {self.sfreq:g} Hz"
        return (
            f"<Studies {', '.join(self.names)}: {people} people, {len(self.classes)} classes, windows of "
            f"{len(self.channels)} channels × {self.n_times} samples{rate}>"
        )


def _distinct_names(names: Sequence[str]) -> list[str]:
    """Names, with a number where several studies have the same."""
    total, met = Counter(names), Counter[str]()
    distinct = []
    for name in names:
        met[name] += 1
        distinct.append(name if total[name] == 1 else f"{name} ({met[name]})")
    return distinct
