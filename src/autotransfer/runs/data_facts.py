"""Facts about the recordings of a run: numbers and names for reports, and digests that tell whether data changed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Self

import numpy as np

from ..recordings import Recordings
from ..recordings.units import Units


@dataclass(frozen=True, kw_only=True)
class Data:
    """The recordings in numbers and names."""

    name: str = "recordings"  # of the data set
    n_windows: int
    n_channels: int
    n_times: int
    sfreq: float | None
    channels: tuple[str, ...]
    classes: tuple[str, ...]
    subjects: tuple[str, ...]
    windows_by_unit: tuple[int, ...]  # of each subject
    units: Units | None = None  # whose the subjects are, where they are parts of people

    @classmethod
    def from_recordings(cls, rec: Recordings) -> Self:
        return cls(
            name=rec.name,
            n_windows=rec.n_windows,
            n_channels=rec.n_channels,
            n_times=rec.n_times,
            sfreq=rec.sfreq,
            channels=tuple(rec.channels),
            classes=tuple(str(label) for label in rec.classes),
            subjects=tuple(str(subject) for subject in rec.subjects),
            windows_by_unit=tuple(np.bincount(rec.subject.numpy(), minlength=rec.n_subjects).tolist()),
            units=rec.units,
        )

    @property
    def whole_subjects(self) -> tuple[str, ...]:
        """Return the names of the people."""
        return self.subjects if self.units is None else self.units.everybody

    @property
    def windows_by_subject(self) -> tuple[int, ...]:
        if self.units is None:
            return self.windows_by_unit
        trials = dict.fromkeys(self.units.everybody, 0)
        for person, n in zip(self.units.people, self.windows_by_unit, strict=True):
            trials[person] += n
        return tuple(trials.values())

    @property
    def chance(self) -> float:
        """Return the balanced accuracy of guessing."""
        return 1 / len(self.classes)


def fingerprint(recordings: Recordings) -> str:
    """Return a digest of windows, classes and subjects, which tells whether data have changed since a run began."""
    digest = hashlib.blake2b(digest_size=16)
    for tensor in (recordings.X, recordings.y, recordings.subject):
        digest.update(str(tuple(tensor.shape)).encode())
        for start in range(0, len(tensor), 1024):
            digest.update(tensor[start : start + 1024].contiguous().numpy().tobytes())
    if recordings.targets is not None:
        digest.update(recordings.targets.numpy().tobytes())
    return digest.hexdigest()


def column_digests(recordings: Recordings) -> dict[str, str]:
    """Return digests of the sessions, '' if there are none, and of every column, by name.

    `fingerprint` covers windows, classes and subjects; reports and groups depend on the columns.
    """
    digests = {"session": ""}
    if recordings.session is not None:
        order = np.unique(recordings.session.numpy(), return_inverse=True)[1].astype(np.int64)
        digests["session"] = hashlib.blake2b(order.tobytes(), digest_size=8).hexdigest()
    for name, column in recordings.columns.items():
        digest = hashlib.blake2b(column.values.tobytes(), digest_size=8)
        digest.update(repr([str(label) for label in column.labels or ()]).encode())
        digests[name] = digest.hexdigest()
    return digests


def changed_column(known: dict[str, str], recordings: Recordings) -> str | None:
    """Return the first column that is not as it was by its `column_digests`, None if all are. Further columns do not
    matter."""
    digests = column_digests(recordings)
    return next((name for name, digest in known.items() if digests.get(name) != digest), None)
