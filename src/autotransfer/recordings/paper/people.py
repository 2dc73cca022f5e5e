"""One MATLAB file per subject, with windows: RSVP EEG and sign-language EMG, whose published layout is unknown.

The paper cites both data sets without a link. Their files, terms and layout could not be confirmed.

RSVP speller: 10 subjects were given a letter and saw letters of a 28-symbol alphabet in rapid sequence, one of them
the target. 500 ms of 16 dry electrodes were kept after each letter. The files must state the sampling rate.

American Sign Language: 10 subjects made each of 33 gestures 3 times with the right hand after a visual prompt, while
16 muscles of hand and arm were recorded at 1 kHz.

SUBJECT.mat holds X (windows, channels, times) and y (windows,), and may hold session (windows,), sfreq and
channels, a cell array of names. Any other layout can be converted to this one with a few lines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ..blocks import Block, Remedies, stacked
from ..child import blocks_in_child
from ..matlab import numbers, read_mat, words
from ..pattern import existing_folder, matching_files
from ..raw import Raw

REMEDIES = Remedies(
    channels="give all files the same channels",
    sfreq="give all files the same sfreq",
    times="cut all windows to the same length",
)


def read_rsvp(text: str) -> Raw:
    """FOLDER/SUBJECT.mat; y: 0 non-target, 1 target."""
    return _read(text, "rsvp:", sfreq=None, classes=("non-target", "target"))


def read_asl_emg(text: str) -> Raw:
    """FOLDER/SUBJECT.mat; y: the gesture, a number or a name."""
    return _read(text, "asl-emg:", sfreq=1000.0)


def _read(text: str, prefix: str, *, sfreq: float | None, classes: tuple[str, ...] | None = None) -> Raw:
    """All files of a folder; `sfreq` where a file has none, `classes`: what 0, 1, ... in y stand for."""
    files = matching_files(existing_folder(text, prefix), "*.mat", prefix)
    hints = {"y": "every file needs a variable 'y' with one label per window"}
    with blocks_in_child(block, files, sfreq) as blocks:
        return stacked(blocks, REMEDIES, name=prefix.rstrip(":"), classes=classes, hints=hints)


def block(path: Path, usual_sfreq: float | None) -> Block:
    """The windows of one file."""
    variables = read_mat(path, ("X",), ("y", "session", "sfreq", "channels"))
    X = numbers(variables["X"], "X", path)
    if X.ndim != 3:
        raise UserError(f"X of {str(path)!r} has the shape {X.shape}; it must be (windows, channels, times)")
    names = words(variables["channels"]) if "channels" in variables else [f"ch{n}" for n in range(X.shape[1])]
    if len(names) != X.shape[1]:
        raise UserError(f"{str(path)!r} names {len(names)} channels, its X has {X.shape[1]}; name each of them once")
    rate = numbers(variables["sfreq"], "sfreq", path).ravel() if "sfreq" in variables else np.array([])
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is infinite, which Recordings reports
        X = X.astype(np.float32)
    return Block(
        X=X,
        y=_per_window(variables, "y", len(X), path),
        session=_per_window(variables, "session", len(X), path),
        subject=[path.stem] * len(X),
        channels=tuple(names),
        sfreq=float(rate[0]) if rate.size else usual_sfreq,
        name=repr(path.name),
    )


def _per_window(variables: dict[str, Any], name: str, n: int, path: Path) -> list[Any] | None:
    """A row or a column of numbers, or a cell array of texts."""
    if name not in variables:
        return None
    values = np.ravel(variables[name])
    if len(values) != n:
        raise UserError(f"{name} of {str(path)!r} has {len(values)} entries, its X {n} windows; give one per window")
    return words(values) if values.dtype.kind in "OUS" else list(numbers(values, name, path).tolist())
