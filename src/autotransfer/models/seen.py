"""What a model has seen, so that nobody takes a score on it for one on new people.

A card holds short digests of windows and of the names of training people, no signal and no name. Who has a window can
find out whether the model was trained on it; nobody can get a window from its digest.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError
from ..recordings import Recordings
from ..recordings.labels import as_list
from ..words import count

SIZE = 5  # bytes of a digest: of 10⁴ windows and 10⁴ known ones, two are confused in one comparison of 10⁴
MOST = 4000  # training windows that are remembered, spread over all people
TRAINING, PEOPLE, CALIBRATION = "windows", "people", "calibration"


def training_seen(recordings: Recordings) -> dict[str, str]:
    """Return the digests for the card of a model that these recordings trained."""
    n = len(recordings.y)
    rows = np.unique(np.linspace(0, n - 1, min(n, MOST)).round().astype(int))
    units = recordings.units
    known = () if units is not None and units.hold_out == "session" else recordings.people  # it is made for these
    names = [_name_digest(recordings.name, person) for person in known]
    return {TRAINING: _packed(window_digests(recordings.X, rows)), PEOPLE: _packed(names)}


def calibration_seen(seen: dict[str, Any], X: Tensor) -> dict[str, str]:
    """Return the digests of a model that was calibrated with windows X (n, channels, times) of one person."""
    return seen | {CALIBRATION: _packed({*_unpacked(seen, CALIBRATION), *window_digests(X)})}


def window_digests(X: Tensor, rows: NDArray[np.int64] | None = None) -> list[bytes]:
    """Return a digest of each window (n, channels, times), as 32-bit floats."""
    places = np.arange(len(X)) if rows is None else rows
    windows = (X[int(row)].to(torch.float32).contiguous().numpy() for row in places)
    return [hashlib.blake2b(window.tobytes(), digest_size=SIZE).digest() for window in windows]


@dataclass(frozen=True)
class Recognised:
    """Which of some windows a model has seen.

    trained, calibrated: (n,) whether it was trained, or calibrated, with each window
    people: whose windows trained it, None: nobody says whose windows are whose; named_alike: people of these data who
    have the names of training people
    """

    name: str  # of the data set
    trained: NDArray[np.bool_]
    calibrated: NDArray[np.bool_]
    people: list[Any] | None
    named_alike: list[Any]

    @classmethod
    def of(cls, seen: dict[str, Any], name: str, digests: Sequence[bytes], subject: Sequence[Any] | None) -> Recognised:
        """digests (n,): of the windows; subject (n,) or None: whose each window is."""
        trained, calibrated = (
            np.array([digest in known for digest in digests], dtype=bool)
            for known in (_unpacked(seen, TRAINING), _unpacked(seen, CALIBRATION))
        )
        people = (
            None if subject is None else list(dict.fromkeys(subject[row] for row in np.flatnonzero(trained).tolist()))
        )
        return cls(name, trained, calibrated, people, _named_alike(seen, name, subject or ()))

    def words(self) -> list[str]:
        """Warnings about scores on these windows."""
        warnings = []
        if self.trained.any():
            of = "" if self.people is None else f" of {_listed(self.people)}"
            warnings.append(
                f"the model was trained on windows{of} in these data; their scores are not those of new people"
            )
        elif self.named_alike:
            warnings.append(
                f"the model was trained on people of {self.name!r} with the same names: {_listed(self.named_alike)}; "
                "if these are they, their scores are not those of new people"
            )
        if self.calibrated.any():
            warnings.append(
                f"the model was calibrated with {int(self.calibrated.sum())} of these "
                f"{count(len(self.calibrated), 'window')}; it has seen their labels"
            )
        return warnings

    def as_dict(self) -> dict[str, Any]:
        return {
            "windows": len(self.trained), "trained_on": int(self.trained.sum()), "people": self.people,
            "people_named_alike": self.named_alike, "calibrated_with": int(self.calibrated.sum()),
        }  # fmt: skip


def seen_words(seen: dict[str, Any], name: str, X: Tensor, subject: object) -> tuple[list[str], NDArray[np.bool_]]:
    """Warnings about scores on these windows, and which of them (n,) calibrated the model.

    name: of the data set; subject (n,) or None: whose each window is.
    """
    people = None if subject is None else as_list(subject, "subject")
    recognised = Recognised.of(seen, name, window_digests(X), people)
    return recognised.words(), recognised.calibrated


def known_person_words(seen: dict[str, Any], name: str, X: Tensor, subject: object) -> str | None:
    """Return the warning if windows (n, channels, times) that calibrate a model are of somebody it was trained on, else
    None; name and subject as of `seen_words`."""
    lines, _ = seen_words(seen | {CALIBRATION: ""}, name, X, subject)
    return lines[0] if lines else None


def _named_alike(seen: dict[str, Any], name: str, people: Sequence[Any]) -> list[Any]:
    known = _unpacked(seen, PEOPLE)
    return [person for person in dict.fromkeys(people) if _name_digest(name, person) in known]


def _listed(people: Iterable[Any]) -> str:
    names = list(dict.fromkeys(map(str, people)))
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    listed = ", ".join(repr(name[:40]) for name in names[:10])
    return f"{count(len(names), 'person', 'people')} ({listed}{more})"


def _name_digest(name: str, person: object) -> bytes:
    text = f"{name}\0{person}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=SIZE, person=b"subject").digest()


def _packed(digests: Iterable[bytes]) -> str:
    return b64encode(b"".join(sorted(set(digests)))).decode()


def _unpacked(seen: dict[str, Any], key: str) -> set[bytes]:
    text = seen.get(key, "")
    try:
        body = b64decode(text, validate=True) if isinstance(text, str) else b"?"
    except ValueError:
        body = b"?"
    if len(body) % SIZE:
        raise UserError(f"what the model's card says of the {key} it has seen is damaged; save the model again")
    return {body[start : start + SIZE] for start in range(0, len(body), SIZE)}
