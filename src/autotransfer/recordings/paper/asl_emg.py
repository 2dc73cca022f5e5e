"""EMG of American Sign Language.

10 people made each of 33 gestures 3 times with the right hand, after a visual prompt, while 16 muscles of hand and
arm were recorded at 1 kHz. That much the paper says. It names the recordings by citation alone: where they can be
had, under which terms, in which files and how they were cut could not be confirmed, so the layout is ours
(people.py).
"""

from __future__ import annotations

from ..raw import Raw
from .people import read_people


def read_asl_emg(text: str) -> Raw:
    """FOLDER/SUBJECT.mat, as in people.py; y: the gesture, a number or a name."""
    return read_people(text, "asl-emg:", sfreq=1000.0)
