"""Real recordings that come with an installed package."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ..errors import UserError
from .container import Recordings

WATCH_SFREQ = 50.0
WATCH_SECONDS = 4.0


def watch() -> Recordings:
    """Load smartwatch motion: 10 subjects, 7 shoulder exercises, 6 axes at 50 Hz, windows of 4 s.

    The source is seglearn's `load_watch` (BSD; Burns et al., arXiv 1802.01489): 140 recordings of 20 repetitions.
    """
    # The file is read directly, because importing seglearn takes seconds. It is the only file that is unpickled: the
    # package's code is trusted, too.
    spec = find_spec("seglearn")
    folders = (spec and spec.submodule_search_locations) or []
    file = next((path for folder in folders if (path := Path(folder) / "data" / "watch_dataset.npy").is_file()), None)
    if file is None:
        raise UserError("the set 'watch' comes with seglearn, which is not installed; pip install 'seglearn>=1.2.5'")
    data = np.load(file, allow_pickle=True).item()
    length = round(WATCH_SECONDS * WATCH_SFREQ)
    windows, exercise, subjects = [], [], []
    for signal, y, subject in zip(data["X"], data["y"], data["subject"], strict=True):  # signal: (samples, 6)
        n = len(signal) // length
        windows.append(signal[: n * length].reshape(n, length, -1).transpose(0, 2, 1))
        exercise += [int(y)] * n
        subjects += [int(subject)] * n
    return Recordings(
        np.concatenate(windows),
        exercise,
        subjects,
        sfreq=WATCH_SFREQ,
        channels=[str(label) for label in data["X_labels"]],
        classes=[str(label) for label in data["y_labels"]],
        name="watch",
    )
