"""Convert the data sets of the original paper to .npz files.

    python -m benchmarks.paper_sets errp FOLDER --out errp.npz              BCI Challenge at NER 2015
    python -m benchmarks.paper_sets ecog-faces FOLDER --out ecog-faces.npz  faces_basic of Miller's library
    python -m benchmarks.paper_sets rsvp FOLDER --out rsvp.npz              SUBJECT.mat of each subject
    python -m benchmarks.paper_sets asl-emg FOLDER --out asl-emg.npz        SUBJECT.mat of each subject

docs/paper_sets.md describes the sources of the files, their terms, and the content of a SUBJECT.mat.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.io import loadmat

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.recordings import save_npz
from autotransfer.recordings.blocks import concatenate
from autotransfer.recordings.optional import reading
from autotransfer.recordings.raw import Raw

Array = np.ndarray[Any, Any]
EVENT = "FeedBackEvent"  # column that marks a feedback in the challenge's files
NOT_EEG = ("Time", "EOG", EVENT)
RATE = 200.0  # sampling rate of the challenge's files in Hz
FEEDBACK = 1.3  # seconds of a window after a feedback, as in solutions of the challenge; the paper does not state it
PICTURE = 0.4  # seconds of a picture and of its window
SHORTEST = 0.1  # seconds; shorter codes in the stimulus channel of subject ha are artifacts
ELECTRODES = 31  # number of electrodes per subject in the paper; the first 31 of each file, because it names none
# Names of the labels 0 and 1
CLASSES = {"errp": ("error", "correct"), "ecog-faces": ("house", "face"), "rsvp": ("non-target", "target")}


def read_errp(folder: Path) -> Iterator[Raw]:
    """Yield EEG windows after each feedback of a speller."""
    folder = folder / "train" if (folder / "train").is_dir() else folder
    files, labels = _find_files(folder, "Data_S*_Sess*.csv"), _read_feedback_labels(folder)
    for path in files:
        match = re.fullmatch(r"Data_(S\d+)_Sess(\d+)\.csv", path.name)
        if match is None:
            raise UserError(f"{path.name!r} does not have a name like Data_S02_Sess01.csv; use the files as published")
        with reading(path, "samples"):
            table = pd.read_csv(path, dtype=np.float32)
        channels = [name for name in table.columns if name not in NOT_EEG]
        if EVENT not in table.columns or not channels:
            raise UserError(f"{str(path)!r} lacks a column {EVENT!r} or columns of EEG; use the files as published")
        event = table[EVENT].to_numpy() > 0
        onsets = np.flatnonzero(event & ~np.r_[False, event[:-1]])
        X = _cut_windows(table[channels].to_numpy(), onsets, round(FEEDBACK * RATE))
        names = [f"{match[1]}_Sess{match[2]}_FB{n:03d}" for n in range(1, len(X) + 1)]
        if unknown := [name for name in names if name not in labels]:
            raise UserError(f"TrainLabels.csv has no label for {unknown[0]}; use the files as published")
        yield Raw(
            X=X, y=[labels[name] for name in names], subject=[match[1]] * len(X), session=[int(match[2])] * len(X),
            channels=tuple(channels), sfreq=RATE, name=repr(path.name),
        )  # fmt: skip


def _read_feedback_labels(folder: Path) -> dict[Any, int]:
    """Return labels by name of the feedback, from TrainLabels.csv in the folder or its parent."""
    path = next(filter(Path.is_file, (parent / "TrainLabels.csv" for parent in (folder, folder.parent))), None)
    if path is None:
        raise UserError(f"there is no TrainLabels.csv in {str(folder)!r}; copy the file of the challenge there")
    with reading(path, "labels"):
        return pd.read_csv(path, index_col="IdFeedBack")["Prediction"].astype(int).to_dict()


def read_ecog_faces(folder: Path) -> list[Raw]:
    """Return ECoG windows during pictures. Positions of electrodes differ between subjects."""
    blocks = [_read_faces_and_houses(path) for path in _find_files(folder, "*_faceshouses.mat")]
    count = min(len(block.channels) for block in blocks)
    for block in blocks:
        block.X, block.channels = block.X[:, :count], block.channels[:count]
    return blocks


def _read_faces_and_houses(path: Path) -> Raw:
    """Read one subject. `stim` is 1 to 50 for a house, 51 to 100 for a face, 101 between pictures, 0 between runs."""
    found = _read_variables(path, "data", "stim", "srate")
    data, stim, rate = (
        _check_numbers(found, "data", path),
        _check_numbers(found, "stim", path).ravel(),
        _read_rate(found, "srate", path),
    )
    if data.ndim != 2 or len(stim) != len(data) or rate is None:
        raise UserError(f"data {data.shape} and stim {stim.shape} of {str(path)!r} do not match; use it as published")
    onsets, codes = find_pictures(stim, round(SHORTEST * rate))
    X = _cut_windows(data[:, :ELECTRODES], onsets, round(PICTURE * rate))
    return Raw(
        X=X, y=[int(code > 50) for code in codes[: len(X)]], subject=[path.name.split("_")[0]] * len(X),
        channels=tuple(f"electrode {n}" for n in range(1, X.shape[1] + 1)), sfreq=rate, name=repr(path.name),
    )  # fmt: skip


def find_pictures(stim: Array, shortest: int) -> tuple[Array, Array]:
    """Return first samples and codes of the pictures: runs of one code from 1 to 100 of at least `shortest` samples."""
    starts = np.flatnonzero(np.diff(stim.astype(np.float64), prepend=np.nan))
    codes, lengths = stim[starts], np.diff(starts, append=len(stim))
    shown = (codes >= 1) & (codes <= 100) & (lengths >= shortest)
    return starts[shown], codes[shown]


def read_subject_files(folder: Path, sfreq: float | None) -> Iterator[Raw]:
    """Yield the windows of each SUBJECT.mat. sfreq: Hz, for files without a rate."""
    for path in _find_files(folder, "*.mat"):
        found = _read_variables(path, "X", "y")
        X = _check_numbers(found, "X", path)
        if X.ndim != 3:
            raise UserError(f"X of {str(path)!r} has the shape {X.shape}; it must be (windows, channels, times)")
        for name, n in (("y", len(X)), ("session", len(X)), ("channels", X.shape[1])):
            if name in found and found[name].size != n:
                raise UserError(f"{name} of {str(path)!r} has {found[name].size} entries, its X {X.shape} needs {n}")
        with np.errstate(over="ignore", invalid="ignore"):  # Recordings report infinite values
            X = X.astype(np.float32)
        names = map(str, _to_list(found["channels"])) if "channels" in found else (f"ch{n}" for n in range(X.shape[1]))
        session = _to_list(found["session"]) if "session" in found else None
        yield Raw(
            X=X, y=_to_list(found["y"]), subject=[path.stem] * len(X), session=session,
            channels=tuple(names), sfreq=_read_rate(found, "sfreq", path) or sfreq, name=repr(path.name),
        )  # fmt: skip


def _cut_windows(signal: Array, onsets: Array, length: int) -> Array:
    """Return whole windows (n, channels, length) of a signal (samples, channels) from each onset."""
    whole = [signal[onset : onset + length].T for onset in onsets if onset + length <= len(signal)]
    return np.array(whole, np.float32).reshape(-1, signal.shape[1], length)


def _find_files(folder: Path, pattern: str) -> list[Path]:
    """Return the files with a name of this pattern in and below the folder."""
    files = sorted(path for path in folder.rglob(pattern) if path.is_file())
    if not files:
        raise UserError(f"there is no file {pattern} in {str(folder)!r}; docs/paper_sets.md names their source")
    name, n = Counter(path.name for path in files).most_common(1)[0]
    if n > 1:
        raise UserError(f"there are {n} files {name!r} in {str(folder)!r}; give the folder of one data set")
    return files


def _read_variables(path: Path, *needed: str) -> dict[str, Array]:
    """Return arrays and cell arrays of a MATLAB file by name."""
    with reading(path, "variables"):
        try:
            stored = loadmat(path)
        except NotImplementedError:
            raise UserError(f"{str(path)!r} is a MATLAB file of version 7.3; store it with save(..., '-v7')") from None
    found = {
        name: value for name, value in stored.items() if isinstance(value, np.ndarray) and value.dtype.names is None
    }
    for name in needed:
        if name not in found:
            raise UserError(f"{str(path)!r} has no array {name!r}; it has {', '.join(map(repr, found)) or 'none'}")
    return found


def _check_numbers(found: dict[str, Array], name: str, path: Path) -> Array:
    if found[name].dtype.kind not in "biuf":
        raise UserError(f"{name!r} of {str(path)!r} has the type {found[name].dtype}; store real numbers")
    return found[name]


def _read_rate(found: dict[str, Array], name: str, path: Path) -> float | None:
    """Return the rate in Hz, or None if the file has none."""
    if name not in found:
        return None
    rate = _check_numbers(found, name, path).ravel()
    if len(rate) != 1 or not 0 < rate[0] < np.inf:
        raise UserError(f"{name} of {str(path)!r} is {rate[:3]}; store one number, in Hz")
    return float(rate[0])


def _to_list(values: Array) -> list[Any]:
    """Return numbers, or the texts of a cell array or character array."""
    if values.dtype.kind in "biuf":
        return list(values.ravel().tolist())
    return ["".join(map(str, np.ravel(entry))).strip() for entry in np.ravel(values)]


SETS: dict[str, Callable[[Path], Iterable[Raw]]] = {
    "errp": read_errp,
    "ecog-faces": read_ecog_faces,
    "rsvp": lambda folder: read_subject_files(folder, None),
    "asl-emg": lambda folder: read_subject_files(folder, 1000.0),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=SETS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="the .npz to write")
    options = parser.parse_args(arguments)
    try:
        raw = concatenate(SETS[options.set](options.folder), name=options.set)
        save_npz(options.out, at.Recordings.from_raw(replace(raw, classes=CLASSES.get(options.set))))
    except UserError as error:
        print(f"paper_sets: {error}", file=sys.stderr)
        return 2
    print(f"{options.out} is written. Check it: autotransfer inspect {options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
