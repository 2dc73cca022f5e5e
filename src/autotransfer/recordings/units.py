"""Units: parts of people's recordings, such as sessions, that are held out in turn instead of whole people."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UserError


@dataclass(frozen=True, kw_only=True)
class Units:
    """The people behind the subjects of recordings whose `subject` counts parts of people (see folds.in_units)."""

    hold_out: str  # session, or the name of a column
    names: tuple[str, ...]  # of each unit: those that `subjects` has
    people: tuple[str, ...]  # of each unit: whose it is
    parts: tuple[int, ...]  # of each unit: units of one part are held out in one turn, 0, 1, ...

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.people) == len(self.parts) or set(self.parts) != set(range(self.n_parts)):
            raise UserError("the units that are held out do not agree with each other")

    @property
    def n_parts(self) -> int:
        return max(self.parts, default=-1) + 1

    @property
    def everybody(self) -> tuple[str, ...]:
        """Return every person once, in their order."""
        return tuple(dict.fromkeys(self.people))

    def by_person(self, scores: dict[str, float]) -> dict[str, float]:
        """Return mean score of each person, by name, over those of their units that have one."""
        whose = dict(zip(self.names, self.people, strict=True))
        values: dict[str, list[float]] = {person: [] for person in self.everybody}
        for unit, score in scores.items():
            values[whose[unit]].append(score)
        return {person: sum(known) / len(known) for person, known in values.items() if known}
