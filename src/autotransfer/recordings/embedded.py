"""Real recordings that are part of the package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from .container import Recordings
from .npz import read_npz


def gestures() -> Recordings:
    """Load forearm EMG: 10 subjects, 8 wrist gestures, 8 channels at 200 Hz, windows of 1 s.

    The windows are a random sample of a public data set (MIT license); gestures.txt has its citation and license.
    """
    raw = read_npz(Path(__file__).with_name("gestures.npz"))
    return Recordings.from_raw(replace(raw, name="gestures"))
