"""Draw the recordings of the demo from a public data set of forearm EMG.

The rule was fixed before any model was trained on the result: the seed 0 draws ten of the 38 subjects, and 15 windows
of each gesture from the first recording session of a subject.

    python -m benchmarks.demo_set emg_myo_readings.npz src/autotransfer/recordings/gestures.npz
"""

from __future__ import annotations

import sys

import numpy as np

SUBJECTS, WINDOWS, SEED = 10, 15, 0
ARRAYS = ("X", "y", "subject")


def draw_rows(y: np.ndarray, subject: np.ndarray, session: np.ndarray) -> np.ndarray:
    """Return the indices of the windows that are drawn, in the order of the file; all arguments are (N,)."""
    draw = np.random.default_rng(SEED)
    rows = []
    for person in np.sort(draw.choice(np.unique(subject), SUBJECTS, replace=False)):
        subject_rows = np.flatnonzero(subject == person)
        first = subject_rows[session[subject_rows] == session[subject_rows].min()]  # rows of the first session
        rows += [draw.choice(first[y[first] == label], WINDOWS, replace=False) for label in np.unique(y)]
    return np.sort(np.concatenate(rows))


def main(source: str, target: str) -> None:
    with np.load(source) as data:
        rows = draw_rows(data["y"], data["subject"], data["session"])
        np.savez_compressed(target, meta=data["meta"], **{name: data[name][rows] for name in ARRAYS})


if __name__ == "__main__":
    main(*sys.argv[1:])
