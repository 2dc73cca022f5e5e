"""Facts about the recordings of a run: sizes and names for reports, and digests that detect changed data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Self

import numpy as np

from ..recordings import Recordings
from ..recordings.units import Units


@dataclass(frozen=True, kw_only=True)
class Data:
    """Sizes and names of recordings."""

    name: str = "recordings"  # name of the data set
    n_windows: int
    n_channels: int
    n_times: int
    sfreq: float | None
    channels: tuple[str, ...]
    classes: tuple[str, ...]
    subjects: tuple[str, ...]
    windows_by_unit: tuple[int, ...]  # number of windows of each of `subjects`
    units: Units | None = None  # held-out units (sessions or values of a column), if `subjects` names units

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
        """Return the names of subjects, even if `subjects` names held-out units."""
        return self.subjects if self.units is None else self.units.unique_subjects

    @property
    def windows_by_subject(self) -> tuple[int, ...]:
        if self.units is None:
            return self.windows_by_unit
        windows = dict.fromkeys(self.units.unique_subjects, 0)
        for subject, n in zip(self.units.people, self.windows_by_unit, strict=True):
            windows[subject] += n
        return tuple(windows.values())

    @property
    def chance(self) -> float:
        """Return the balanced accuracy of guessing."""
        return 1 / len(self.classes)


def fingerprint(recordings: Recordings) -> str:
    """Return a digest of windows, classes, subjects, targets, and how the signals were recorded."""
    digest, signal = hashlib.blake2b(digest_size=16), recordings.signal
    digest.update(repr((signal.filter, signal.unit, signal.reference)).encode())
    for tensor in (recordings.X, recordings.y, recordings.subject):
        digest.update(str(tuple(tensor.shape)).encode())
        for start in range(0, len(tensor), 1024):
            digest.update(tensor[start : start + 1024].contiguous().numpy().tobytes())
    if recordings.targets is not None:
        digest.update(recordings.targets.numpy().tobytes())
    return digest.hexdigest()


def column_digests(recordings: Recordings) -> dict[str, str]:
    """Return digests of sessions ('' if there are none) and columns by name, which `fingerprint` does not cover."""
    digests = {"session": ""}
    if recordings.session is not None:
        index = np.unique(recordings.session.numpy(), return_inverse=True)[1].astype(np.int64)
        digests["session"] = hashlib.blake2b(index.tobytes(), digest_size=8).hexdigest()
    for name, column in recordings.columns.items():
        digest = hashlib.blake2b(column.values.tobytes(), digest_size=8)
        digest.update(repr([str(label) for label in column.labels or ()]).encode())
        digests[name] = digest.hexdigest()
    return digests


def find_changed_column(expected: dict[str, str], recordings: Recordings) -> str | None:
    """Return the first column whose digest is not as expected, or None. New columns are ignored."""
    digests = column_digests(recordings)
    return next((name for name, digest in expected.items() if digests.get(name) != digest), None)
