"""Whole recordings with their events, uncut and unfiltered, for replay as a stream."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .container import check_sfreq
from .continuous import opened, reading
from .cutting import Continuous, Cutting, Event, known_rate
from .labels import named
from .pattern import Files, Labels
from .raw import Array
from .sources import find_files, is_continuous, read
from .windows import channel_names, window_array


@dataclass(frozen=True, kw_only=True)
class WholeRecording:
    """One person's recording from its beginning to its end.

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
    """Return the recordings of a file or folder. Windows that are cut already are one recording each, with their class
    as an event that lasts as long as the window. `cutting` says how files are named and written."""
    cutting = cutting or Cutting()
    if not is_continuous(source):
        return _trials(source, cutting)
    labelled = find_files(source, cutting)
    return [_whole(path, labels, labelled, cutting) for path, labels in labelled.files]


def _whole(path: Path, labels: Labels, labelled: Files, cutting: Cutting) -> WholeRecording:
    with reading(path):
        recording = opened(path, labelled, cutting)
        assert isinstance(recording, Continuous), "epochs are no recordings to be cut"
        n, sfreq = recording.n_times, known_rate(recording.sfreq, path)
        with np.errstate(over="ignore"):  # overflow gives infinite values, which count as lost
            values = np.array(recording.read(0, n).T, dtype=np.float32, order="C")
    times = np.arange(n) / sfreq if recording.times is None else np.asarray(recording.times)
    for bad in recording.bad:
        values[(times >= bad.onset) & (times <= bad.onset + bad.duration)] = np.nan
    if "class" in labels:  # the file is one event
        recording.events = [Event(0.0, float(times[-1]) + 1 / sfreq, labels["class"])]
    return WholeRecording(
        name=path.name, study=labelled.name, subject=labels["subject"], values=values, times=times,
        channels=recording.channels, sfreq=sfreq, events=tuple(sorted(recording.events)),
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
