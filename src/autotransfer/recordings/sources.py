"""Sources of recordings, and the choice of their readers."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError, shown
from .bids import bids_files, is_bids
from .cleaning import clean as drop_broken
from .concerns import UNKNOWN_RATE
from .container import Recordings
from .continuous import (
    apply_signal_options,
    find_recordings,
    get_ending,
    holds_epochs,
    list_endings,
    list_recordings,
    open_recording,
    read_files,
    refuse_cutting,
)
from .cutting import Continuous, Cutting, Event, require_rate
from .moabb_sets import read_moabb
from .npz import read_folder, read_npz
from .optional import reading
from .pattern import Files, Labels, parse_options
from .raw import Array, Raw
from .signal import Signal, list_names
from .synthetic import synthetic
from .targets import recordings_with_targets

# Recordings that can be loaded by name without a download; gestures.txt has the citation and the license.
SETS: dict[str, Callable[[], Raw]] = {
    "gestures": lambda: replace(read_npz(Path(__file__).with_name("gestures.npz")), name="gestures"),
    "synthetic": lambda: synthetic().raw(),
}
SET_LINES = (
    "gestures           forearm EMG: 10 subjects, 8 wrist gestures, 8 channels at 200 Hz, windows of 1 s",
    "                   a sample of github.com/aljazfrancic/myo-readings-dataset (MIT license)",
    "synthetic          oscillations under a known subject shift: 8 subjects, 2 classes, 8 channels at 128 Hz",
    "moabb:NAME         any MOABB dataset, with the default paradigm for its type",
    "                   downloaded by MOABB when first used: pip install moabb; terms: see each dataset",
)

# Readers of windows, by the ending of a file or by a prefix.
READERS: dict[str, Callable[[str], Raw]] = {
    ".npz": read_npz,
    "moabb:": read_moabb,
}

BIDS = "bids:"  # prefix of a BIDS folder, after which options can select a part of it


def load(
    source: str | os.PathLike[str],
    *,
    window: float | None = None,
    hop: float | None = None,
    offset: float | None = None,
    events: object = None,
    pattern: str | None = None,
    sfreq: float | None = None,
    sep: str | None = None,
    decimal: str | None = None,
    time_column: str | None = None,
    filter: object = None,
    clean: bool = False,
) -> Recordings:
    """Load recordings from a file (.npz, or MNE epochs), a folder, a MOABB dataset (`moabb:NAME`), or a set by name.

    Continuous recordings are cut into windows: a BIDS folder, or files or a folder of .edf, .bdf, .gdf, .xdf, .csv or
    WFDB's .hea.

    Parameters
    ----------
    source : str or Path
        File, folder or name.
    window, hop, offset : float, optional
        Length of windows, distance between windows, and delay after an event or the start, in seconds.
    events : dict or str, optional
        Names of events and their classes, {'T1': 'left'}.
    pattern : str, optional
        Pattern of file names, '{subject}/{session}_{class}_*.csv'.
    sfreq : float, optional
        Sampling rate in Hz of files that do not state it.
    sep, decimal, time_column : str, optional
        Format of CSV files: ',', ';' or 'tab'; '.' or ','; name of the column of times.
    filter : str or dict, optional
        Causal filter, applied before cutting: '5-45,notch:50', or {'highpass': 5, 'lowpass': 45, 'notch': [50]}. For
        windows, the filter that was applied to them.
    clean : bool
        Whether to leave out clearly broken data, with a warning that lists them.

    Returns
    -------
    Recordings
        Windows with classes and subjects.
    """
    cutting = Cutting(
        window=window, hop=hop, offset=offset, events=events, pattern=pattern, sfreq=sfreq, sep=sep, decimal=decimal,
        time_column=time_column, filter=filter,
    )  # fmt: skip
    return _load(source, cutting, Recordings.from_raw, clean=clean)


def load_with_targets(
    source: str | os.PathLike[str], column: str | None = None, *, clean: bool = False, **options: Any
) -> Recordings:
    """Load recordings with a number for each window, from y, a column or a channel; options: see `load`."""
    return _load(source, Cutting(**options), lambda raw: recordings_with_targets(raw, column), clean=clean)


def _load(
    source: str | os.PathLike[str], cutting: Cutting, validate: Callable[[Raw], Recordings], *, clean: bool
) -> Recordings:
    """Read and validate a source; warn of decisions of its reader and of omitted data."""
    raw = read(source, cutting)
    notes = [*raw.notes, *[UNKNOWN_RATE] * (raw.sfreq is None)]
    if clean:
        raw, left_out = drop_broken(raw)
        notes += left_out or ["nothing was left out: nothing is clearly broken"]
    recordings = validate(raw)  # before warnings, because an error must be the only line
    for note in notes:
        warnings.warn(note, stacklevel=3)
    return recordings


def read(source: str | os.PathLike[str], cutting: Cutting | None = None, expected_rate: float | None = None) -> Raw:
    """Read a source of `load` without validation; labels may be missing.

    expected_rate: rate of a model in Hz; continuous recordings of another rate are refused before they are cut.
    """
    text, cutting = os.fspath(source), cutting or Cutting()
    if _has_format(text, cutting):
        return read_files(find_files(text, cutting), cutting, expected_rate)
    refuse_cutting(text, cutting)
    raw = _read_windows(text)
    apply_signal_options(raw, cutting, text)
    return raw


def _read_windows(text: str) -> Raw:
    """Read a source of windows by its name, prefix or ending."""
    if text in SETS:
        return SETS[text]()
    if os.path.isdir(text):
        return read_folder(text)
    for key, reader in READERS.items():
        if key.endswith(":") and text.startswith(key):
            return reader(text.removeprefix(key))
        if key.startswith(".") and text.lower().endswith(key):
            return reader(text)
    problem = "its ending is unknown" if os.path.exists(text) else "there is no such file, folder or set"
    raise UserError(
        f"cannot load {shown(text, 400)}: {problem}; choose a file or a collection "
        f"({list_names(map(repr, [*READERS, *list_endings(), BIDS]))}), a folder of such files, or an embedded set "
        f"({list_names(map(repr, SETS))})"
    )


def _has_format(text: str, cutting: Cutting) -> bool:
    """Return whether a source is a file, or a folder of files, in one of FORMATS."""
    path = _split_source(text)[1]
    if text in SETS or any(key.endswith(":") and text.startswith(key) for key in READERS):
        return False
    if not os.path.isdir(path):
        return text.startswith(BIDS) or get_ending(path) is not None
    if os.path.isfile(path / "X.npy"):
        return False
    return cutting.pattern is not None or is_bids(path) or bool(list_recordings(path))


def find_files(text: str, cutting: Cutting) -> Files:
    """Return the files of a source in one of FORMATS, with their labels."""
    prefix, path, ending = _split_source(text)
    options = parse_options(ending)
    if prefix or (is_bids(path) and not options and not holds_epochs(path)):
        return bids_files(path, options, cutting)
    return find_recordings(path, options, cutting)


@dataclass(frozen=True, kw_only=True)
class WholeRecording:
    """One continuous recording of one subject."""

    name: str
    subject: str
    values: Array  # (n, channels) float32, NaN in bad stretches
    times: Array  # (n,) s, with gaps where samples are missing
    signal: Signal
    events: tuple[Event, ...]


def read_whole(source: str, cutting: Cutting | None = None) -> list[WholeRecording]:
    """Return the recordings of a file or folder; `cutting` describes the names and the format of files."""
    cutting = cutting or Cutting()
    if not is_continuous(source):
        raise UserError(
            f"{shown(source, 400)} holds no continuous recordings; give files of {', '.join(list_endings())}"
        )
    files = find_files(source, cutting)
    return [_read_whole(path, labels, files, cutting) for path, labels in files.files]


def _read_whole(path: Path, labels: Labels, files: Files, cutting: Cutting) -> WholeRecording:
    with reading(path):
        recording = open_recording(path, files, cutting)
        assert isinstance(recording, Continuous), "`is_continuous` excludes epochs"
        n, sfreq = recording.n_times, require_rate(recording.sfreq, path)
        with np.errstate(over="ignore"):  # overflow gives infinite values, which count as lost
            values = np.array(recording.read(0, n).T, dtype=np.float32, order="C")
    for note in recording.notes:
        warnings.warn(note, stacklevel=2)
    times = np.arange(n) / sfreq if recording.times is None else np.asarray(recording.times)
    for bad in recording.bad:
        values[(times >= bad.onset) & (times <= bad.onset + bad.duration)] = np.nan
    if "class" in labels:  # the file is one event
        recording.events = [Event(0.0, float(times[-1]) + 1 / sfreq, labels["class"])]
    return WholeRecording(
        name=path.name, subject=labels["subject"], values=values, times=times,
        signal=Signal(channels=recording.channels, sfreq=sfreq, filter=recording.filter, unit=recording.unit),
        events=tuple(sorted(recording.events)),
    )  # fmt: skip


def is_continuous(source: str) -> bool:
    """Return whether a source holds continuous recordings."""
    return _has_format(source, Cutting()) and not holds_epochs(_split_source(source)[1])


def make_absolute(source: str) -> str:
    """Return a source with an absolute path."""
    prefix, path, options = _split_source(source)
    is_path = prefix or (source not in SETS and os.path.exists(path))
    return prefix + str(path.resolve()) + options if is_path else source


def _split_source(source: str) -> tuple[str, Path, str]:
    """Return the prefix of a source, its path, and its options from the question mark on."""
    prefix = BIDS if source.startswith(BIDS) else ""
    text = os.path.expanduser(source.removeprefix(BIDS)) if prefix else source
    path, mark, options = (text, "", "") if os.path.exists(text) else text.partition("?")  # names may hold a ?
    return prefix, Path(path), mark + options
