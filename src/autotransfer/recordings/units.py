"""Held-out units: parts of subjects' recordings, such as sessions, that are held out instead of whole subjects."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UserError


@dataclass(frozen=True, kw_only=True)
class Units:
    """Held-out units, which `Recordings.subject` contains instead of subjects (see `folds.use_units`)."""

    hold_out: str  # session, or the name of a column
    names: tuple[str, ...]  # of each unit, as in `Recordings.subjects`
    people: tuple[str, ...]  # the subject of each unit
    parts: tuple[int, ...]  # 0, 1, ... of each unit: units of one part are held out together

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.people) == len(self.parts) or set(self.parts) != set(range(self.n_parts)):
            raise UserError("the held-out units have invalid names or parts; restore the folder of the run")

    @property
    def n_parts(self) -> int:
        return max(self.parts, default=-1) + 1

    @property
    def unique_subjects(self) -> tuple[str, ...]:
        """Return the name of each subject once."""
        return tuple(dict.fromkeys(self.people))

    def average_by_subject(self, scores: dict[str, float]) -> dict[str, float]:
        """Return the mean score of each subject over the units that have a score."""
        subject_of = dict(zip(self.names, self.people, strict=True))
        values: dict[str, list[float]] = {subject: [] for subject in self.unique_subjects}
        for unit, score in scores.items():
            values[subject_of[unit]].append(score)
        return {subject: sum(known) / len(known) for subject, known in values.items() if known}
