"""Whole recordings with their events, uncut and unfiltered, for replay as a stream."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import UserError, shown
from .continuous import list_endings, open_recording
from .cutting import Continuous, Cutting, Event, require_rate
from .filters import Filter
from .optional import reading
from .pattern import Files, Labels
from .raw import Array
from .signal import Signal
from .sources import find_files, is_continuous


@dataclass(frozen=True, kw_only=True)
class WholeRecording:
    """One continuous recording of one subject."""

    name: str
    study: str  # the file or folder that holds the recording
    subject: str
    values: Array  # (n, channels) float32, NaN in bad stretches
    times: Array  # (n,) s, with gaps where samples are missing
    signal: Signal
    events: tuple[Event, ...]


def read_whole(source: str, cutting: Cutting | None = None) -> list[WholeRecording]:
    """Return the recordings of a file or folder; `cutting` says how files are named and written."""
    cutting = cutting or Cutting()
    if not is_continuous(source):
        raise UserError(
            f"{shown(source, 400)} holds no continuous recordings; give files of {', '.join(list_endings())}"
        )
    files = find_files(source, cutting)
    return [_read(path, labels, files, cutting) for path, labels in files.files]


def _read(path: Path, labels: Labels, files: Files, cutting: Cutting) -> WholeRecording:
    with reading(path):
        recording = open_recording(path, files, cutting)
        assert isinstance(recording, Continuous), "`is_continuous` excludes epochs"
        n, sfreq = recording.n_times, require_rate(recording.sfreq, path)
        with np.errstate(over="ignore"):  # overflow gives infinite values, which count as lost
            values = np.array(recording.read(0, n).T, dtype=np.float32, order="C")
    times = np.arange(n) / sfreq if recording.times is None else np.asarray(recording.times)
    for bad in recording.bad:
        values[(times >= bad.onset) & (times <= bad.onset + bad.duration)] = np.nan
    if "class" in labels:  # the file is one event
        recording.events = [Event(0.0, float(times[-1]) + 1 / sfreq, labels["class"])]
    return WholeRecording(
        name=path.name, study=files.name, subject=labels["subject"], values=values, times=times,
        signal=Signal(channels=recording.channels, sfreq=sfreq, filter=Filter(), unit=recording.unit),
        events=tuple(sorted(recording.events)),
    )  # fmt: skip
