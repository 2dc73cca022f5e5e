"""Raw: what a reader found, before anything was checked."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UserError
from .container import Recordings


@dataclass(frozen=True, eq=False, kw_only=True)
class Raw:
    """Arrays and names as a file holds them. Training needs y and subject, predicting does not."""

    X: object  # (N, channels, times)
    y: object = None  # (N,)
    subject: object = None  # (N,)
    session: object = None  # (N,)
    sfreq: object = None
    channels: object = None
    classes: object = None  # names that y counts into
    subjects: object = None  # names that subject counts into
    name: str = "recordings"

    @classmethod
    def of(cls, recordings: Recordings) -> Raw:
        return cls(**{field: getattr(recordings, field) for field in cls.__dataclass_fields__})

    def recordings(self) -> Recordings:
        """Checked, for training."""
        for field in ("y", "subject"):
            if getattr(self, field) is None:
                raise UserError(f"{self.name!r} holds no {field}; to train, {field} must give one label per trial")
        return Recordings(**{field: getattr(self, field) for field in self.__dataclass_fields__})
