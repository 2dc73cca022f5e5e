"""Numbers that others report, for whoever has the original recordings:

    python -m benchmarks.published mit-bih FOLDER            PhysioNet's mitdb: 100.hea, 100.dat, 100.atr, …
    python -m benchmarks.published mental-arithmetic FOLDER  PhysioNet's eegmat: Subject00_1.edf, Subject00_2.edf, …

Protocols, fixed before anybody has run them:

mit-bih. The records of de Chazal et al. (2004): DS1 trains, DS2 tests, records of paced beats are left out. Every beat
counts, in the classes of the AAMI (N, S, V, F, Q), as a window of 0.8 s of lead MLII that begins 0.3 s before its peak.
Sensitivity and positive predictive value of S and of V, over all beats of DS2 together. Records 201 (DS1) and 202 (DS2)
are of one person, so one of 22 tested records is of somebody known; `--apart` leaves 202 out: another protocol.

mental-arithmetic. Windows of 5 s, one after the other, 20 channels at 200 Hz; people 0 to 27 train, 28 to 31 validate,
32 to 35 test, as papers on pretrained networks have it. Nothing here needs people to validate on, so these four are
left out altogether. Balanced accuracy over all windows of the four together.

The model is `AutoTransferClassifier` with every option at its default but those given here. Test people are read after
it is fitted. What others report stands in docs/recipes/published.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.signal import resample_poly

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.recordings import read
from autotransfer.recordings.cutting import Cutting
from autotransfer.recordings.optional import need

from .markdown import markdown

DS1 = (101, 106, 108, 109, 112, 114, 115, 116, 118, 119, 122, 124, 201, 203, 205, 207, 208, 209, 215, 220, 223, 230)
DS2 = (100, 103, 105, 111, 113, 117, 121, 123, 200, 202, 210, 212, 213, 214, 219, 221, 222, 228, 231, 232, 233, 234)
TWICE = 202  # of the person of 201
LEAD, BEFORE, SECONDS = "MLII", 0.3, 0.8
AAMI = {
    symbol: label
    for label, symbols in {"N": "NLRej", "S": "AaJS", "V": "VE", "F": "F", "Q": "/fQ"}.items()
    for symbol in symbols
}
ARITHMETIC = {"train": range(28), "test": range(32, 36)}
RATE, WINDOW = 200, 5  # Hz and seconds
NOT_EEG = "ECG"  # in the name of a channel
STATES = {"1": "rest", "2": "arithmetic"}  # by what files are called


class Part(NamedTuple):
    """Windows of the people who train, or who test."""

    X: NDArray[np.float32]  # (N, channels, times)
    y: NDArray[np.str_]  # (N,)
    subject: NDArray[np.str_]  # (N,)
    sfreq: float


# ---- reading ---------------------------------------------------------------------------------------------------------


def beats(folder: Path, records: Sequence[int]) -> Part:
    """Read every beat of these records."""
    missing = [name for name in records if not (folder / f"{name}.hea").is_file()]
    if missing:
        raise UserError(f"there is no record {missing[0]} in {str(folder)!r}; give the folder of PhysioNet's mitdb")
    parts = [_beats_of(folder, name) for name in records]
    people = np.repeat([str(name) for name in records], [len(y) for _, y, _ in parts])
    return Part(np.concatenate([X for X, _, _ in parts]), np.concatenate([y for _, y, _ in parts]), people, parts[0][2])


def _beats_of(folder: Path, name: int) -> tuple[NDArray[np.float32], NDArray[np.str_], float]:
    wfdb = need("wfdb", "reading WFDB records", "wfdb")
    record = wfdb.rdrecord(str(folder / str(name)), channel_names=[LEAD])
    if not record.n_sig:
        raise UserError(f"record {name} has no lead {LEAD}; every record of DS1 and DS2 has one as it is published")
    notes, rate = wfdb.rdann(str(folder / str(name)), "atr"), float(record.fs)
    before, length = round(BEFORE * rate), round(SECONDS * rate)
    # The first and the last beat may be cut off; they count as well.
    signal = np.pad(record.p_signal[:, 0].astype(np.float32), length, mode="edge")
    known = [
        (sample, AAMI[symbol]) for sample, symbol in zip(notes.sample, notes.symbol, strict=True) if symbol in AAMI
    ]
    starts = np.array([sample for sample, _ in known]) - before + length
    windows = signal[starts[:, None] + np.arange(length)]
    return windows[:, None], np.array([label for _, label in known]), rate


def arithmetic(folder: Path, people: Sequence[int]) -> Part:
    """Read all windows of these people."""
    files = [folder / f"Subject{person:02d}_{state}.edf" for person in people for state in STATES]
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        raise UserError(f"there is no file {missing[0]} in {str(folder)!r}; give the folder of PhysioNet's eegmat")
    X, y, subject = [], [], []
    for path in files:
        person, state = path.stem.removeprefix("Subject").split("_")
        raw = read(path, Cutting(window=float(WINDOW), hop=float(WINDOW)))
        names, rate = np.asarray(raw.channels, dtype=str).tolist(), round(float(np.asarray(raw.sfreq)))
        channels = [place for place, name in enumerate(names) if NOT_EEG not in name]
        windows = resample_poly(np.asarray(raw.X)[:, channels], RATE, rate, axis=2)
        X.append(windows[..., : RATE * WINDOW].astype(np.float32))
        y += [STATES[state]] * len(windows)
        subject += [person] * len(windows)
    return Part(np.concatenate(X), np.array(y), np.array(subject), float(RATE))


# ---- protocols -------------------------------------------------------------------------------------------------------


class Protocol(NamedTuple):
    read: Callable[[Path, Sequence[int]], Part]
    train: Sequence[int]
    test: Sequence[int]
    kinds: str  # what is measured: arrays do not say it
    measures: Callable[[NDArray[np.str_], NDArray[np.str_]], dict[str, float]]


def of_beats(y: NDArray[np.str_], predicted: NDArray[np.str_]) -> dict[str, float]:
    """Return sensitivity and positive predictive value of S and V; the latter is NaN if nothing is predicted so."""
    measures = {}
    for label in "SV":
        right = float(((y == label) & (predicted == label)).sum())
        for name, total in (
            ("sensitivity", (y == label).sum()),
            ("positive predictive value", (predicted == label).sum()),
        ):
            measures[f"{label}, {name}"] = right / float(total) if total else float("nan")
    return measures


def of_states(y: NDArray[np.str_], predicted: NDArray[np.str_]) -> dict[str, float]:
    return {"balanced accuracy": float(np.mean([(predicted[y == label] == label).mean() for label in np.unique(y)]))}


PROTOCOLS = {
    "mit-bih": Protocol(beats, DS1, DS2, "ecg", of_beats),
    "mental-arithmetic": Protocol(arithmetic, ARITHMETIC["train"], ARITHMETIC["test"], "eeg", of_states),
}


def measured(name: str, folder: Path, *, apart: bool = False, **options: Any) -> Iterator[tuple[str, float]]:
    """Yield the measures of a model that is fitted to the people who train. options: of `AutoTransferClassifier`."""
    protocol = PROTOCOLS[name]
    train = protocol.read(folder, protocol.train)
    model = at.AutoTransferClassifier(sfreq=train.sfreq, options={"kinds": protocol.kinds}, **options)
    model.fit(train.X, train.y, subjects=train.subject)
    test = protocol.read(folder, [person for person in protocol.test if not apart or person != TWICE])
    predicted = np.asarray(model.predict(test.X))
    yield "people who train", len(np.unique(train.subject))
    yield "people who test", len(np.unique(test.subject))
    yield "windows that are scored", len(test.y)
    yield from protocol.measures(test.y, predicted).items()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protocol", choices=PROTOCOLS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--apart", action="store_true", help="without record 202")
    parser.add_argument("--time", default="2h", help="as of `autotransfer run`")
    parser.add_argument("--run", type=Path, help="folder of the run, to take it up again where it was stopped")
    asked = parser.parse_args(arguments)
    try:
        values = list(measured(asked.protocol, asked.folder, apart=asked.apart, time=asked.time, run_folder=asked.run))
    except UserError as error:
        print(f"published: {error}", file=sys.stderr)
        return 2
    rows = [[name, f"{value:.3f}" if value % 1 else f"{value:.0f}"] for name, value in values]
    print(markdown(["", asked.protocol], rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
