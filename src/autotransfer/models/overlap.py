"""Overlap of new data with the windows that a model was trained or calibrated on, found by short digests of windows."""

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
from ..words import count, shorten

SIZE = 5  # bytes of a digest; 10⁴ windows match one of 10⁴ other windows falsely with a probability of 10⁻⁴
MOST = 4000  # training windows with a digest, evenly spaced
TRAINING, CALIBRATION = "windows", "calibration"


def training_digests(recordings: Recordings) -> dict[str, str]:
    """Return the digests of the training windows for the card."""
    n = len(recordings.y)
    rows = np.unique(np.linspace(0, n - 1, min(n, MOST)).round().astype(int))
    return {TRAINING: _pack(window_digests(recordings.X[rows]))}


def add_calibration_digests(seen: dict[str, str], X: Tensor) -> dict[str, str]:
    """Add the digests of calibration windows X (n, channels, times) to the digests of a card."""
    return seen | {CALIBRATION: _pack({*_unpack(seen, CALIBRATION), *window_digests(X)})}


def window_digests(X: Tensor) -> list[bytes]:
    """Return a digest of each window (n, channels, times) in single precision."""
    windows = (window.float().contiguous().numpy().tobytes() for window in X)
    return [hashlib.blake2b(window, digest_size=SIZE).digest() for window in windows]


def find_overlap(seen: dict[str, str], kind: str, digests: Sequence[bytes]) -> NDArray[np.bool_]:
    """Return a mask (n,) of the windows that are among the TRAINING or the CALIBRATION windows of a card."""
    known = _unpack(seen, kind)
    return np.array([digest in known for digest in digests], dtype=bool)


def describe_overlap(seen: dict[str, str], digests: Sequence[bytes], subject: Sequence[Any] | None) -> list[str]:
    """Return warnings if windows are training or calibration windows; subject: ids (n,) of the windows, or None."""
    lines, rows = list[str](), np.flatnonzero(find_overlap(seen, TRAINING, digests)).tolist()
    if rows:
        subjects = [] if subject is None else list(dict.fromkeys(str(subject[row]) for row in rows))
        listed = shorten(", ".join(map(repr, subjects)), 200)
        names = f" of {count(len(subjects), 'subject')} ({listed})" if subjects else ""
        lines = [f"the model was trained on windows{names} in these data; their scores are not scores on new subjects"]
    if n_calibrated := int(find_overlap(seen, CALIBRATION, digests).sum()):
        windows = count(len(digests), "window")
        lines.append(f"the model was calibrated with the labels of {n_calibrated} of these {windows}")
    return lines


def _pack(digests: Iterable[bytes]) -> str:
    return b64encode(b"".join(sorted(set(digests)))).decode()


def _unpack(seen: dict[str, str], kind: str) -> set[bytes]:
    try:
        body = b64decode(seen.get(kind, ""), validate=True)
    except ValueError:
        body = b"?"
    if len(body) % SIZE:
        raise UserError(f"the digests of {kind} in the model's card are damaged; save the model again")
    return {body[start : start + SIZE] for start in range(0, len(body), SIZE)}
