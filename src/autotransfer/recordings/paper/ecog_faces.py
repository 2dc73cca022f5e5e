"""Faces and houses under ECoG: `faces_basic` of Miller's library of human electrocorticographic data.

14 people (aa ap ca de fp ha ja jm jt mv rn rr wc zt) saw pictures for 400 ms with 400 ms between them, about 150
faces and 150 houses each. A file holds `data` (samples, electrodes), `stim` (samples, 1), 1 to 50 while a house
is shown, 51 to 100 a face, 101 between pictures and 0 between runs, and `srate`, 1000 Hz.

Electrodes lie where each patient needed them, and their number differs (102 for jt). The paper uses
31 per subject without saying which; here they are the first 31 of each file, or fewer if a subject has fewer.
Electrode 1 is therefore at a different place in each subject. Values are amplifier units, with
a larger gain for aa, ha and jt: standardise by trial or by subject.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...errors import UserError
from ..blocks import Block, Remedies, stacked
from ..child import blocks_in_child
from ..matlab import numbers, read_mat
from ..pattern import existing_folder, matching_files
from ..raw import Array, Raw

ELECTRODES = 31
SECONDS = 0.4  # of a picture, and of a window
SHORTEST = 0.1  # s; shorter codes in the stimulus channel of ha are artefacts
CLASSES = ("house", "face")
REMEDIES = Remedies(*["use the files as published"] * 3)


def read_ecog_faces(text: str) -> Raw:
    """FOLDER is faces_basic, with data/aa/aa_faceshouses.mat and so on; y: 0 house, 1 face."""
    files = matching_files(existing_folder(text, "ecog-faces:"), "*_faceshouses.mat", "ecog-faces:")
    names = [_subject(path) for path in files]
    for n, name in enumerate(names):
        if name in names[:n]:
            raise UserError(
                f"there are two files {files[n].name!r} in {text!r}; name the folder faces_basic, not the whole library"
            )
    with blocks_in_child(block, files) as arriving:
        blocks = list(arriving)
    count = min(len(part.channels) for part in blocks)
    for part in blocks:
        part.X, part.channels = part.X[:, :count], part.channels[:count]
    return stacked(blocks, REMEDIES, name="ecog-faces", classes=CLASSES)


def block(path: Path) -> Block:
    """The windows of one file, of at most ELECTRODES electrodes."""
    variables = read_mat(path, ("data", "stim", "srate"))
    data, stim, srate = (numbers(variables[key], key, path) for key in ("data", "stim", "srate"))
    stim = stim.ravel()
    if data.ndim != 2 or len(stim) != len(data) or srate.size != 1 or not 0 < float(srate.ravel()[0]) < np.inf:
        raise UserError(
            f"{str(path)!r} has data {data.shape}, stim {stim.shape} and srate {srate.ravel()[:1]}, which do not match"
        )
    sfreq = float(srate.ravel()[0])
    length = round(SECONDS * sfreq)
    onsets, codes = pictures(stim, round(SHORTEST * sfreq))
    inside = onsets + length <= len(data)
    count = min(ELECTRODES, data.shape[1])
    windows = [data[start : start + length, :count].T for start in onsets[inside]]
    return Block(
        X=np.array(windows, np.float32).reshape(-1, count, length),
        y=[int(code > 50) for code in codes[inside]],
        subject=[_subject(path)] * int(inside.sum()),
        channels=tuple(f"electrode {n}" for n in range(1, count + 1)),
        sfreq=sfreq,
        name=repr(path.name),
    )


def _subject(path: Path) -> str:
    return path.name.split("_")[0]


def pictures(stim: Array, shortest: int) -> tuple[Array, Array]:
    """First samples and codes of the pictures: runs of one code from 1 to 100 of at least `shortest` samples."""
    changes = np.flatnonzero(np.diff(stim.astype(np.float64))) + 1
    starts = np.r_[0, changes]
    lengths = np.diff(np.r_[starts, len(stim)])
    codes = stim[starts] if len(stim) else stim
    shown = (codes >= 1) & (codes <= 100) & (lengths >= shortest)
    return starts[shown], codes[shown]
