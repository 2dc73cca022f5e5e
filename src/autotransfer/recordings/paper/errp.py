"""Error potentials of a P300 speller: the files of the BCI Challenge at NER 2015.

26 people spelled words; after each letter the speller showed which one it had understood, and the question is
whether it was the wrong one. Published are 56 EEG channels at 200 Hz, recorded at 600 Hz (Margaux et al. 2012,
"Objective and subjective evaluation of online error correction during P300-based spelling"). The paper uses the
16 people whose labels are in TrainLabels.csv. It does not say how long its windows are; 1.3 s is what
solutions of the challenge used.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ..blocks import Block, Remedies, stacked
from ..npy import readable
from ..pattern import existing_folder, matching_files
from ..raw import Raw

SFREQ = 200.0
SECONDS = 1.3
EVENT = "FeedBackEvent"
NOT_EEG = ("Time", "EOG", EVENT)
REMEDIES = Remedies(*["use the files as published"] * 3)


def read_errp(text: str) -> Raw:
    """FOLDER holds Data_S02_Sess01.csv ... and TrainLabels.csv, or train/ with these; y: 0 error, 1 correct.

    Without TrainLabels.csv, as in the challenge's test/, the windows can be predicted.
    """
    folder = existing_folder(text, "errp:")
    if (folder / "train").is_dir():
        folder = folder / "train"
    files = {path: _whose(path) for path in matching_files(folder, "Data_S*_Sess*.csv", "errp:")}
    labels = _labels(folder)
    if labels is not None and not {person for person, _ in files.values()} & {name.split("_")[0] for name in labels}:
        labels = None  # of other subjects
    return stacked(
        (_block(path, *whose, labels) for path, whose in files.items()),
        REMEDIES,
        name="errp",
        classes=("error", "correct"),
        hints={"y": f"put TrainLabels.csv of the challenge into {str(folder)!r}"},
    )


def _whose(path: Path) -> tuple[str, int]:
    """The person, such as S02, and the session."""
    match = re.fullmatch(r"Data_(S\d+)_Sess(\d+)\.csv", path.name)
    if match is None:
        raise UserError(f"{path.name!r} is not named like Data_S02_Sess01.csv; use the files as published")
    return match[1], int(match[2])


def _block(path: Path, person: str, session: int, labels: dict[str, int] | None) -> Block:
    X, channels = _windows(path)
    names = [f"{person}_Sess{session:02d}_FB{n:03d}" for n in range(1, len(X) + 1)]
    if labels is not None and (unknown := [name for name in names if name not in labels]):
        raise UserError(f"TrainLabels.csv has no label for {unknown[0]}, which {path.name!r} holds")
    y = None if labels is None else [labels[name] for name in names]
    subjects, sessions = [person] * len(X), [session] * len(X)
    named = repr(path.name)
    return Block(X=X, y=y, subject=subjects, session=sessions, channels=channels, sfreq=SFREQ, name=named)


def _windows(path: Path) -> tuple[np.ndarray[Any, Any], tuple[str, ...]]:
    """(n, channels, times) from each feedback on, and the channels. A window cut off by the end is left out."""
    import pandas as pd

    with readable(path, "columns"):
        columns = [str(name) for name in pd.read_csv(path, nrows=0).columns]
    if EVENT not in columns:
        raise UserError(f"{str(path)!r} has no column {EVENT!r}; use the files as published")
    channels = [name for name in columns if name not in NOT_EEG]
    if not channels:
        raise UserError(f"{str(path)!r} has no EEG columns besides {', '.join(columns)}")
    with readable(path, "samples"):
        table = pd.read_csv(path, usecols=[*channels, EVENT], dtype=np.float32)
    event = table[EVENT].to_numpy() > 0
    onsets = np.flatnonzero(event & ~np.r_[False, event[:-1]])
    signal = table[channels].to_numpy()  # (samples, channels)
    length = round(SECONDS * SFREQ)
    whole = [signal[start : start + length].T for start in onsets if start + length <= len(signal)]
    X = np.stack(whole) if whole else np.empty((0, len(channels), length), np.float32)
    return X, tuple(channels)


def _labels(folder: Path) -> dict[str, int] | None:
    """By name of the feedback; from TrainLabels.csv in the folder or beside it."""
    import pandas as pd

    path = next(filter(Path.is_file, (place / "TrainLabels.csv" for place in (folder, folder.parent))), None)
    if path is None:
        return None
    with readable(path, "labels"):
        table = pd.read_csv(path)
        for column in ("IdFeedBack", "Prediction"):
            if column not in table.columns:
                raise UserError(f"{str(path)!r} has no column {column!r}; use the file as published")
        return {str(name): int(value) for name, value in zip(table["IdFeedBack"], table["Prediction"], strict=True)}
