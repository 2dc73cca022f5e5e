"""Held-out units: parts of subjects' recordings, such as sessions, that are held out instead of whole subjects."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UserError


@dataclass(frozen=True, kw_only=True)
class Units:
    """Units that `Recordings.subject` counts instead of people (see `folds.use_units`)."""

    hold_out: str  # session, or the name of a column
    names: tuple[str, ...]  # of each unit, as in `Recordings.subjects`
    people: tuple[str, ...]  # the person of each unit
    parts: tuple[int, ...]  # 0, 1, ... of each unit: units of one part are held out together

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.people) == len(self.parts) or set(self.parts) != set(range(self.n_parts)):
            raise UserError("the units that are held out do not agree with each other")

    @property
    def n_parts(self) -> int:
        return max(self.parts, default=-1) + 1

    @property
    def unique_people(self) -> tuple[str, ...]:
        """Return the names of all people, each once."""
        return tuple(dict.fromkeys(self.people))

    def average_by_person(self, scores: dict[str, float]) -> dict[str, float]:
        """Return the mean score of each person over the units that have a score."""
        person_of = dict(zip(self.names, self.people, strict=True))
        values: dict[str, list[float]] = {person: [] for person in self.unique_people}
        for unit, score in scores.items():
            values[person_of[unit]].append(score)
        return {person: sum(known) / len(known) for person, known in values.items() if known}
