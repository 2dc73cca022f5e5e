"""What a base was made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..errors import UserError, check_positive, check_types, shown
from ..model.stack import Size


@dataclass(frozen=True)
class BaseCard:
    """What a base was made of."""

    name: str
    studies: list[dict[str, Any]]  # name, people, windows, classes; score and chance on people left out, if measured
    members: int
    setting: dict[str, Any]
    n_times: int
    channels: list[str]
    ring: list[int] | None
    sfreq: float | None
    people: int
    training: dict[str, Any] = field(default_factory=dict)  # folds, identity of data and settings, versions

    def __post_init__(self) -> None:
        check_types(self)
        check_positive(self, "sfreq", "n_times", "members", "people")
        if not self.channels or not all(isinstance(name, str) for name in self.channels):
            raise UserError("the channels of a base are not all names")
        if self.ring is not None and not all(isinstance(at, int) and 0 <= at < len(self.channels) for at in self.ring):
            raise UserError(f"the ring of a base is {shown(self.ring)}")
        for study in self.studies:
            if not (isinstance(study.get("name"), str) and isinstance(study.get("classes"), list) and study["classes"]):
                raise UserError("a study of a base has no name or no classes")

    @property
    def n_classes(self) -> int:
        """Of all studies."""
        return sum(len(study["classes"]) for study in self.studies)

    @property
    def size(self) -> Size:
        return Size(len(self.channels), self.n_times, self.n_classes, self.sfreq)
