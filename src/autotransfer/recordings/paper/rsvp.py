"""EEG of an RSVP speller.

10 people were told a letter and saw letters of a 28-symbol alphabet in rapid sequence, one of them the target;
500 ms of 16 dry electrodes were kept after each letter. That much the paper says. It names the recordings by
citation alone: where they can be had, under which terms, at what rate and in which files could not be
confirmed, so the layout is ours (people.py) and has to state the rate.
"""

from __future__ import annotations

from ..raw import Raw
from .people import read_people


def read_rsvp(text: str) -> Raw:
    """FOLDER/SUBJECT.mat, as in people.py; y: 0 non-target, 1 target."""
    return read_people(text, "rsvp:", sfreq=None, classes=("non-target", "target"))
