"""Data: the recordings of a run in numbers and names. The ledger keeps them, so that a report needs no recordings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from ..recordings import Recordings
from ..recordings.units import Units


@dataclass(frozen=True, kw_only=True)
class Data:
    """The recordings in numbers and names."""

    name: str = "recordings"  # of the data set
    n_trials: int
    n_channels: int
    n_times: int
    sfreq: float | None
    channels: tuple[str, ...]
    classes: tuple[str, ...]
    subjects: tuple[str, ...]
    trials: tuple[int, ...]  # of each subject
    units: Units | None = None  # whose the subjects are, where they are parts of people

    @classmethod
    def of(cls, rec: Recordings) -> Self:
        return cls(
            name=rec.name,
            n_trials=rec.n_trials,
            n_channels=rec.n_channels,
            n_times=rec.n_times,
            sfreq=rec.sfreq,
            channels=tuple(rec.channels),
            classes=tuple(str(label) for label in rec.classes),
            subjects=tuple(str(subject) for subject in rec.subjects),
            trials=tuple(np.bincount(rec.subject.numpy(), minlength=rec.n_subjects).tolist()),
            units=rec.units,
        )

    @property
    def people(self) -> tuple[str, ...]:
        """Names of the people."""
        return self.subjects if self.units is None else self.units.everybody

    @property
    def trials_by_person(self) -> tuple[int, ...]:
        if self.units is None:
            return self.trials
        trials = dict.fromkeys(self.units.everybody, 0)
        for person, n in zip(self.units.people, self.trials, strict=True):
            trials[person] += n
        return tuple(trials.values())

    @property
    def chance(self) -> float:
        """Balanced accuracy of guessing."""
        return 1 / len(self.classes)
