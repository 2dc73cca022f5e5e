"""What a model has seen, so that nobody takes a score on it for one on new people.

A card holds short digests of windows, no signal and no name. Who has a window can find out whether the model was
trained on it; nobody can get a window from its digest.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError
from ..recordings import Recordings
from ..words import count

SIZE = 5  # bytes of a digest: of 10⁴ windows and 10⁴ known ones, two are confused in one comparison of 10⁴
MOST = 4000  # training windows that are remembered, spread over all people
TRAINING, CALIBRATION = "windows", "calibration"


def training_seen(recordings: Recordings) -> dict[str, str]:
    """Return the digests for the card of a model that these recordings trained."""
    n = len(recordings.y)
    rows = np.unique(np.linspace(0, n - 1, min(n, MOST)).round().astype(int))
    return {TRAINING: _packed(window_digests(recordings.X[rows]))}


def calibration_seen(seen: dict[str, Any], X: Tensor) -> dict[str, str]:
    """Return the digests of a model that was calibrated with windows X (n, channels, times) of one person."""
    return seen | {CALIBRATION: _packed({*_unpacked(seen, CALIBRATION), *window_digests(X)})}


def window_digests(X: Tensor) -> list[bytes]:
    """Return a digest of each window (n, channels, times), as 32-bit floats."""
    windows = (window.float().contiguous().numpy().tobytes() for window in X)
    return [hashlib.blake2b(window, digest_size=SIZE).digest() for window in windows]


def is_known(seen: dict[str, Any], kind: str, digests: Sequence[bytes]) -> NDArray[np.bool_]:
    """Tell whether each window (n,) was among those of a kind, TRAINING or CALIBRATION."""
    known = _unpacked(seen, kind)
    return np.array([digest in known for digest in digests], dtype=bool)


def trained_on_words(seen: dict[str, Any], digests: Sequence[bytes], subject: Sequence[Any] | None) -> list[str]:
    """Return a warning if the model was trained on some of these windows. subject (n,) or None: of each window."""
    rows = np.flatnonzero(is_known(seen, TRAINING, digests)).tolist()
    if not rows:
        return []
    people = "" if subject is None else f" of {_listed(subject[row] for row in rows)}"
    return [f"the model was trained on windows{people} in these data; their scores are not those of new people"]


def seen_words(seen: dict[str, Any], digests: Sequence[bytes], subject: Sequence[Any] | None) -> list[str]:
    """Return warnings about scores on these windows (n,), which trained or calibrated the model."""
    words, calibrated = trained_on_words(seen, digests, subject), int(is_known(seen, CALIBRATION, digests).sum())
    if calibrated:
        windows = count(len(digests), "window")
        words.append(f"the model was calibrated with {calibrated} of these {windows}; it has seen their labels")
    return words


def _listed(people: Iterable[Any]) -> str:
    names = list(dict.fromkeys(map(str, people)))
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    listed = ", ".join(repr(name[:40]) for name in names[:10])
    return f"{count(len(names), 'person', 'people')} ({listed}{more})"


def _packed(digests: Iterable[bytes]) -> str:
    return b64encode(b"".join(sorted(set(digests)))).decode()


def _unpacked(seen: dict[str, Any], kind: str) -> set[bytes]:
    text = seen.get(kind, "")
    try:
        body = b64decode(text, validate=True) if isinstance(text, str) else b"?"
    except ValueError:
        body = b"?"
    if len(body) % SIZE:
        raise UserError(f"what the model's card says of the {kind} it has seen is damaged; save the model again")
    return {body[start : start + SIZE] for start in range(0, len(body), SIZE)}
