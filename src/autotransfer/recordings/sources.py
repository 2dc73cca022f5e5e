"""What can be loaded, and which reader does it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..errors import UserError, shown
from .bids import bids_files, is_bids
from .cleaning import clean as cleaned
from .concerns import UNKNOWN_RATE
from .container import Recordings
from .continuous import (
    agreed_rate,
    check_uncut,
    ending,
    endings,
    files_in,
    holds_epochs,
    one_file,
    read_labeled,
    recordings_in,
)
from .cutting import Cutting
from .embedded import watch
from .moabb_sets import read_moabb
from .npz import read_folder, read_npz, save_npz
from .pattern import Files, split_options
from .raw import Raw
from .synthetic import synthetic
from .targets import recordings_with_targets

__all__ = [
    "READERS", "SETS", "Cutting", "EmbeddedSet", "Raw", "Recordings", "absolute", "is_continuous", "load",
    "load_with_targets", "read", "read_folder", "read_npz", "save_npz", "synthetic", "watch",
]  # fmt: skip


T = TypeVar("T")


class EmbeddedSet(NamedTuple):
    make: Callable[[], Recordings]
    description: str
    obtained: str


SETS = {
    "watch": EmbeddedSet(
        watch,
        "smartwatch motion: 10 people, 7 shoulder exercises, 6 axes at 50 Hz, windows of 4 s",
        "comes with seglearn",
    ),
    "synthetic": EmbeddedSet(
        synthetic,
        "oscillations under a known subject shift: 8 subjects, 2 classes, 8 channels at 128 Hz, 1 s windows",
        "generated",
    ),
}

# The reader by file extension, or by the prefix of any other source.
READERS: dict[str, Callable[[str], Raw]] = {
    ".npz": read_npz,
    "moabb:": read_moabb,
}

BIDS = "bids:"  # before a folder, to choose some of it
PATH = 400  # letters of a path that a message shows
COLUMN = 18  # letters of a name in `list_sets`


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
    """Load recordings from a file (.npz, or MNE epochs in .fif), a folder of .npy or of epochs files, a MOABB
    dataset (`moabb:NAME`), or an embedded set (SETS).

    Continuous recordings are cut into windows: a BIDS folder, or files or a folder of .edf, .bdf, .gdf, .xdf, .csv or
    WFDB's .hea. `window`, `hop` and `offset` are seconds; `events` maps names of events to classes, {'T1': 'left'};
    `pattern` is the pattern of file names, '{subject}/{session}_{class}_*.csv'; `sfreq` is the sampling rate in Hz of
    files without one. `sep` (',', ';' or 'tab'), `decimal` ('.' or ',') and `time_column` describe CSV files. `filter`
    is a causal filter that is applied before cutting: a band in Hz and the mains, '5-45,notch:50', or
    {'highpass': 5, 'lowpass': 45, 'notch': [50]}; models keep it for streams.
    `clean` leaves out clearly broken data, with a warning that lists them.
    """
    cutting = Cutting.from_options(
        window=window, hop=hop, offset=offset, events=events, pattern=pattern, sfreq=sfreq, sep=sep, decimal=decimal,
        time_column=time_column, filter=filter,
    )  # fmt: skip
    if isinstance(source, str) and source in SETS and not cutting.given and not clean:
        return SETS[source].make()
    return _for_training(source, cutting, Recordings.from_raw, clean=clean)


def load_with_targets(
    source: str | os.PathLike[str], column: str | None = None, *, clean: bool = False, **how: Any
) -> Recordings:
    """Load recordings with a number for each window in place of a class.

    column: as of `targets.split_target`; how: `window`, `hop` and the other keywords of `load`
    """
    return _for_training(
        source, Cutting.from_options(**how), lambda raw: recordings_with_targets(raw, column), clean=clean
    )


def _for_training(
    source: str | os.PathLike[str], cutting: Cutting, checked: Callable[[Raw], Recordings], *, clean: bool
) -> Recordings:
    """Return what `checked` makes of a source; warn of what its reader decided and of what is left out."""
    raw = read(source, cutting)
    notes = [*raw.notes, *[UNKNOWN_RATE] * (raw.sfreq is None)]
    if clean:
        raw, left_out = cleaned(raw)
        notes += left_out or ["nothing was left out: nothing is clearly broken"]
    data = checked(raw)  # first: where data are refused, that is the one line
    for note in notes:
        warnings.warn(note, stacklevel=3)
    return data


def read(source: str | os.PathLike[str], cutting: Cutting | None = None) -> Raw:
    """Read what `load` reads, not validated and perhaps without labels."""
    if not isinstance(source, (str, os.PathLike)):
        raise UserError(f"cannot load {shown(source)}; give a path or the name of an embedded set: {_listed(SETS)}")
    text, asked = os.fspath(source), cutting or Cutting()
    if is_read_by_format(text, asked):
        return read_labeled(find_files(text, asked), asked)
    check_uncut(text, replace(asked, sfreq=None))
    raw = _read_windows(text)
    return raw if asked.sfreq is None else replace(raw, sfreq=agreed_rate(raw.sfreq, asked.sfreq, text))


def _read_windows(text: str) -> Raw:
    """Read a source of windows by its name or ending."""
    if text in SETS:
        return SETS[text].make().raw()
    if os.path.isdir(text):
        return read_folder(text)
    for key, reader in READERS.items():
        if key.endswith(":") and text.startswith(key):
            return reader(text.removeprefix(key))
        if key.startswith(".") and text.lower().endswith(key):
            return reader(text)
    problem = "its kind of file is unknown" if os.path.exists(text) else "there is no such file, folder or set"
    raise UserError(
        f"cannot load {shown(text, PATH)}: {problem}; choose a file or a collection "
        f"({_listed([*READERS, *endings(), BIDS])}), a folder of such files, or an embedded set ({_listed(SETS)})"
    )


def is_read_by_format(text: str, cutting: Cutting) -> bool:
    """Return whether a source is a file or folder of FORMATS."""
    path = _parts(text)[1]
    if text in SETS or any(key.endswith(":") and text.startswith(key) for key in READERS):
        return False
    if not os.path.isdir(path):
        return text.startswith(BIDS) or ending(path) is not None
    if os.path.isfile(path / "X.npy"):
        return False
    return cutting.pattern is not None or is_bids(path) or bool(recordings_in(path))


def find_files(text: str, cutting: Cutting) -> Files:
    """Return the files of a source of FORMATS, with what is known of each."""
    path, options = (text, {}) if os.path.exists(text) else split_options(text)
    folder = Path(path)
    if text.startswith(BIDS) or (is_bids(folder) and not options and not holds_epochs(folder)):
        return bids_files(text.removeprefix(BIDS), cutting)
    return files_in(folder, options, cutting) if os.path.isdir(folder) else one_file(folder, options, cutting)


def is_continuous(source: str) -> bool:
    """Return whether a source holds recordings that are still to be cut."""
    return is_read_by_format(source, Cutting()) and not holds_epochs(_parts(source)[1])


def absolute(source: str) -> str:
    """Return a source with an absolute path, so that it works from any folder."""
    prefix, path, options = _parts(source)
    is_path = bool(prefix) or find_path(source) is not None
    return prefix + str(path.resolve()) + options if is_path else source


def find_path(source: str) -> Path | None:
    """Return the file or folder that a source is read from; None where there is none, as of an embedded set."""
    path = _parts(source)[1]
    return path if source not in SETS and os.path.exists(path) else None


def _parts(source: str) -> tuple[str, Path, str]:
    """Return the prefix of a source, its path, and what follows the path from the question mark on, which may also be
    part of a file's name."""
    prefix = BIDS if source.startswith(BIDS) else ""
    text = os.path.expanduser(source.removeprefix(BIDS)) if prefix else source
    path, mark, options = (text, "", "") if os.path.exists(text) else text.partition("?")
    return prefix, Path(path), mark + options


def list_sets() -> Iterator[str]:
    """Yield lines on what can be loaded by name: description and source of each set."""
    entries: dict[str, tuple[str, ...]] = {name: (known.description, known.obtained) for name, known in SETS.items()}
    entries["moabb:NAME"] = (
        "any MOABB dataset, with the default paradigm for its type; others: Recordings.from_moabb",
        "downloaded by MOABB when first used: pip install moabb; terms: see each dataset",
    )
    for name, lines in entries.items():
        for n, line in enumerate(lines):
            yield f"{'' if n else name:<{COLUMN}} {line}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
