"""Whole recordings with their events, uncut and unfiltered, for replay as a stream."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from .blocks import Block
from .container import check_sfreq
from .continuous import Options, blocks_of, opened, with_labels
from .cutting import Continuous, Cutting, Event, known_rate
from .labels import named
from .npy import check_memory
from .pattern import Labels
from .raw import Array
from .sources import continuous_files, read
from .windows import channel_names, window_array

BYTES = 16  # of a value while a file is read: 64 bits here and in the format's own reader


@dataclass(frozen=True, kw_only=True)
class WholeRecording:
    """One person's recording from its beginning to its end, or to a hole of unknown length.

    values: (n, channels) float32, NaN where a stretch is marked as bad
    times: (n,) s, with gaps where samples are missing
    """

    name: str
    study: str  # the file or folder that it is of
    subject: str
    values: Array
    times: Array
    channels: tuple[str, ...] | None
    sfreq: float | None  # Hz
    events: tuple[Event, ...]


def read_whole(source: str, cutting: Cutting | None = None) -> list[WholeRecording]:
    """The recordings of a file or folder. Windows that are cut already are one recording each, with their class as an
    event that lasts as long as the window. `cutting` says how files are named and written."""
    cutting = cutting or Cutting()
    find = continuous_files(source, cutting)
    if find is None:
        return _trials(source, cutting)
    labelled = find()
    with blocks_of(whole_block, labelled, replace(cutting, pattern=None)) as blocks:
        return [piece for block in blocks for piece in _pieces(block, labelled.name)]


def whole_block(path: Path, known: dict[str, Labels], options: Options, cutting: dict[str, Any], bids: bool) -> Block:
    """All samples of one file; runs in the child."""
    labels = known[str(path)]
    block = with_labels(_block(opened(path, Cutting(**cutting), options, bids), path), labels)
    if "class" in labels:  # the file is one event
        block.timeline = [(0.0, float(block.X[0, -1, -1]) + 1 / (block.sfreq or 1.0), labels["class"])]
    return block


def _block(recording: Continuous, path: Path) -> Block:
    """X (1, channels + 1, times) of 64 bits, because times are its last row."""
    n, sfreq = recording.n_times, known_rate(recording.sfreq, path)
    check_memory(BYTES * n * (len(recording.channels) + 1), "the samples", path, "record in shorter files")
    X = np.empty((1, len(recording.channels) + 1, n))
    X[0, :-1] = recording.read(0, n)
    X[0, -1] = np.arange(n) / sfreq if recording.times is None else recording.times
    for bad in recording.bad:
        X[0, :-1, (X[0, -1] >= bad.onset) & (X[0, -1] <= bad.onset + bad.duration)] = np.nan
    return Block(
        X=X, channels=recording.channels, sfreq=sfreq, name=path.name,
        timeline=[(*event,) for event in recording.events],
        breaks=[] if recording.times is not None else list(recording.breaks),
    )  # fmt: skip


def _pieces(block: Block, study: str) -> Iterator[WholeRecording]:
    """The recording, or what lies between its holes."""
    assert block.subject is not None, "with_labels gave it"
    times, events = block.X[0, -1], sorted(Event(*event) for event in block.timeline)
    with np.errstate(over="ignore"):  # overflow gives infinite values, which count as lost
        values = np.ascontiguousarray(block.X[0, :-1].T, dtype=np.float32)
    edges = [0, *block.breaks, len(times)]
    for begin, end in pairwise(edges):
        first = -math.inf if begin == 0 else times[begin]
        last = math.inf if end == len(times) else times[end]
        yield WholeRecording(
            name=block.name, study=study, subject=str(block.subject[0]), values=values[begin:end],
            times=times[begin:end], channels=block.channels, sfreq=block.sfreq,
            events=tuple(event for event in events if first <= event.onset < last),
        )  # fmt: skip


def _trials(source: str, cutting: Cutting) -> list[WholeRecording]:
    asked = Cutting(sfreq=cutting.sfreq) if cutting.pattern is None else Cutting(pattern=cutting.pattern)
    raw = read(source, asked)  # refuses a pattern
    X, sfreq = np.asarray(window_array(raw.X)), known_rate(check_sfreq(raw.sfreq), Path(source))
    n, channels, length = X.shape
    names = None if raw.channels is None else channel_names(raw.channels, channels)
    whose = [""] * n if raw.subject is None else named(raw.subject, n, "subject", raw.subjects)
    labels = [None] * n if raw.y is None else named(raw.y, n, "y", raw.classes)
    return [
        WholeRecording(
            name=f"trial {row}", study=raw.name, subject=str(whose[row]),
            values=np.ascontiguousarray(X[row].T, dtype=np.float32), times=np.arange(length) / sfreq, channels=names,
            sfreq=sfreq,
            events=() if labels[row] is None else (Event(0.0, length / sfreq, str(labels[row])),),
        )
        for row in range(n)
    ]  # fmt: skip
