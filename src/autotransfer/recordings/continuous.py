"""Recordings in common file formats: a file, or a folder of files of one format.

Continuous recordings are cut into windows; epochs are windows already.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..errors import UserError, shown
from ..words import count, shorten
from .bids import open_bids
from .blocks import concatenate
from .csv_files import OPTIONS as CSV_OPTIONS
from .csv_files import open_csv
from .cutting import HOW_TO_MAP, Continuous, Cutting, cut
from .edf import open_with_mne
from .epochs import open_epochs
from .filters import parse_filter
from .optional import reading
from .pattern import EXAMPLE, LABEL_NAMES, Files, compile_pattern, files_below, match_files, parse_name
from .raw import Raw
from .signal import agree_on_rate, check_rate
from .wfdb_records import open_wfdb
from .xdf import open_xdf

Options = dict[str, str]


class Format(NamedTuple):
    """Reader of a file format; an exception of `open` becomes an error of one line."""

    open: Callable[[Path, Cutting, Options], Continuous | Raw]
    options: tuple[str, ...] = ()  # options that may follow the path
    needs_pattern: bool = False  # whether folders need a pattern, because names follow no convention


def _fif_endings(*kinds: str) -> list[str]:
    """Return the endings of FIF files of these kinds, according to MNE's and BIDS's conventions."""
    return [f"{mark}{kind}.fif{compressed}" for mark in "-_" for kind in kinds for compressed in ("", ".gz")]


ANY_FIF = (".fif", ".fif.gz")
EPOCHS = (*_fif_endings("epo"), *ANY_FIF)
FORMATS = {
    **dict.fromkeys((".edf", ".bdf", ".gdf"), Format(open_with_mne)),
    **dict.fromkeys((".xdf", ".xdfz", ".xdf.gz"), Format(open_xdf, ("stream",))),
    ".hea": Format(open_wfdb),
    **dict.fromkeys((".csv", ".tsv"), Format(open_csv, CSV_OPTIONS, needs_pattern=True)),
    **dict.fromkeys(_fif_endings("raw", "raw_sss", "raw_tsss", "eeg", "meg", "ieeg", "emg"), Format(open_with_mne)),
    **dict.fromkeys(EPOCHS, Format(open_epochs)),
}
HOW_TO_CUT = "each file is one window; to cut files into windows, give --window SECONDS"
MOST_EVENTS = 8  # names of events in a message


def list_endings() -> list[str]:
    """Return the endings of all formats for messages."""
    return [*(end for end in FORMATS if end.startswith(".")), "_raw.fif"]


def get_ending(path: Path) -> str | None:
    """Return the longest known ending of a file's name; None if it has none."""
    return max((end for end in FORMATS if path.name.lower().endswith(end)), key=len, default=None)


def get_format(path: Path) -> Format:
    """Return the format of a file with a known ending."""
    return FORMATS[get_ending(path) or ""]


def holds_epochs(path: Path) -> bool:
    """Return whether a file, or a file in a folder, holds epochs."""
    return any(get_ending(file) in EPOCHS for file in (list_recordings(path) if os.path.isdir(path) else [path]))


def find_recordings(path: Path, options: Options, cutting: Cutting) -> Files:
    """Return a file, or the files of a folder, with the labels that their names give."""
    is_folder = os.path.isdir(path)
    if not is_folder and not os.path.isfile(path):
        raise UserError(f"there is no file {shown(str(path), 400)}; give an existing one")
    if cutting.pattern is None:
        paths = list_recordings(path) if is_folder else [path]
        files = [(file, parse_name(_stem(file))) for file in paths]
        if is_folder:
            _check_names(path, paths)
    elif is_folder:
        files = match_files(path, cutting.pattern)
    elif (found := compile_pattern(cutting.pattern).fullmatch(path.name)) is not None:
        files = [(path, found.groupdict())]
    else:
        raise UserError(f"the name {path.name!r} does not match the pattern {shown(cutting.pattern, 200)}; {EXAMPLE}")
    unknown = next((file for file, _ in files if get_ending(file) is None), None)
    if unknown is not None:
        raise UserError(f"{str(unknown)!r} matches the pattern, but its ending is none of {', '.join(list_endings())}")
    known = {name for file, _ in files for name in get_format(file).options}
    if wrong := [name for name in options if name not in known]:
        choices = f"choose from {', '.join(sorted(known))}" if known else "these files have none"
        raise UserError(f"unknown option {shown(wrong[0])} after the question mark; {choices}")
    return Files(files, path.resolve().name if is_folder else _stem(path), options)


def _stem(path: Path) -> str:
    """Return the name of a file without the ending of its format."""
    return re.sub(r"_split-\d+$", "", path.name[: len(path.name) - len(get_ending(path) or "")])


def list_recordings(folder: Path) -> list[Path]:
    """Return files of known formats below a folder. Without such files, .fif files with other names are returned."""
    files = [path for path in files_below(folder) if get_ending(path) is not None and not _is_later_part(path)]
    return [path for path in files if get_ending(path) not in ANY_FIF] or files


def _is_later_part(path: Path) -> bool:
    """Return whether a file is a later part of a split recording, according to MNE's names of split files."""
    first = {re.sub(r"-\d+(\.fif(\.gz)?)$", r"\1", path.name), re.sub(r"_split-\d+_", "_split-01_", path.name)}
    return any((path.parent / name).is_file() for name in first - {path.name})


def _check_names(folder: Path, paths: list[Path]) -> None:
    """Raise if names of files do not state the subject, or if files have several formats."""
    for path in paths:
        if (path.parent != folder and not path.name.startswith("sub-")) or get_format(path).needs_pattern:
            name = path.relative_to(folder).as_posix()
            raise UserError(
                f"the name {shown(name, 200)} in {str(folder)!r} does not state the subject; describe the names with "
                f"--pattern '{{subject}}{'/*' * name.count('/')}{path.suffix}', or {EXAMPLE}"
            )
    kinds = sorted({(get_ending(path) or "").lstrip("-_").removesuffix(".gz") for path in paths})
    if len(kinds) > 1:
        raise UserError(f"{str(folder)!r} holds {' and '.join(kinds)} files; select files of one format, {EXAMPLE}")


def open_recording(path: Path, files: Files, cutting: Cutting) -> Continuous | Raw:
    """Open a file; raise if the user gives another rate than the file, or options of cutting for epochs."""
    found = open_bids(path) if files.is_bids else get_format(path).open(path, cutting, files.options)
    if isinstance(found, Raw):
        refuse_cutting(str(path), replace(cutting, pattern=None))
    apply_signal_options(found, cutting, str(path))
    return found


def apply_signal_options(found: Continuous | Raw, cutting: Cutting, name: str) -> None:
    """Store the rate and the filter of windows that the user gives; raise if the file states others."""
    given: dict[str, object] = {"sfreq": cutting.sfreq}
    found.sfreq = agree_on_rate(found.sfreq, cutting.sfreq, name)
    if isinstance(found, Raw):
        stated, band = parse_filter(found.filter), cutting.filter
        if stated is None:
            found.filter = given["filter"] = band
        elif band is not None and stated.band != band.band:
            found_words, given_words = stated.describe(), band.describe()
            raise UserError(f"{found.name} is {found_words}, and {given_words} according to --filter; omit --filter")
    found.sources = found.sources | {name: "user" for name, value in given.items() if value is not None}


def refuse_cutting(name: str, cutting: Cutting) -> None:
    """Raise if options of continuous recordings are given for windows."""
    if given := [
        name for name, value in vars(cutting).items() if value is not None and name not in ("sfreq", "filter")
    ]:
        raise UserError(
            f"{shown(name, 400)} holds windows that are cut already; leave out {', '.join(given)}, for continuous "
            f"recordings only (BIDS folders, {', '.join(list_endings())})"
        )


def read_files(files: Files, cutting: Cutting, expected_rate: float | None = None) -> Raw:
    """Return the windows of all files; refuse files of another rate than a model expects in Hz."""
    if cutting.events is not None and any("class" in labels for _, labels in files.files):
        raise UserError("both events and {class} in the pattern give the class; give one of them")
    events, notes = Counter[str](), Counter[str]()
    raw = concatenate(_read_each(files, cutting, expected_rate, events, notes), name=files.name)
    hint = f"{HOW_TO_MAP}; {_list_events(events)}" if events else f"give {{class}} in a pattern, or {HOW_TO_MAP}"
    n_files = len(files.files)
    is_cut = cutting.window is not None or holds_epochs(files.files[0][0])
    raw.hints = {"y": hint} | ({} if is_cut else {"window": HOW_TO_CUT})
    raw.notes += tuple(note if n == n_files else f"{note} ({n} of {n_files} files)" for note, n in notes.items())
    return raw


def _read_each(
    files: Files, cutting: Cutting, expected_rate: float | None, events: Counter[str], notes: Counter[str]
) -> Iterator[Raw]:
    """Yield the windows of each file, and count events and notes; files without windows are left out."""
    empty: list[str] = []
    for path, labels in files.files:
        with reading(path):
            found = open_recording(path, files, cutting)
            check_rate(found.sfreq, expected_rate)
            block = found if isinstance(found, Raw) else cut(found, cutting, path, labels.get("class"))
        events.update(block.events)
        notes.update(block.notes)
        if not (n := len(block.X)):
            empty.append(block.name)
            continue
        block.columns = (block.columns or {}) | {name: [labels[name]] * n for name in labels if name not in LABEL_NAMES}
        if block.subject is None or cutting.pattern is not None:
            block.subject = [labels["subject"]] * n
        if "session" in labels:
            block.session = [labels["session"]] * n
        if isinstance(found, Raw) and "class" in labels:
            block.y = [labels["class"]] * n
        yield block
    if missing := [name for name in cutting.events or () if name not in events]:
        raise UserError(f"no event is called {missing[0]!r}; {_list_events(events)}")
    if cutting.window is None and events and empty:
        raise UserError(
            f"{shown(files.name, 200)} is continuous; give the length of windows and the events that are classes; "
            f"{_list_events(events)}"
        )
    if len(empty) == len(files.files):
        raise UserError(f"{empty[0]} holds no complete window; give a shorter --window or another --offset")
    if empty:
        names = shorten(", ".join(empty), 200)
        warnings.warn(f"{count(len(empty), 'file')} without a complete window will be ignored: {names}", stacklevel=2)


def _list_events(events: Counter[str]) -> str:
    """List events with their counts, and options that cut windows at them."""
    if not events:
        return "there are no events"
    names = [name for name, _ in events.most_common(MOST_EVENTS)]
    listed = ", ".join(f"{shown(name)} ({events[name]})" for name in names)
    more = f" and {len(events) - MOST_EVENTS} more" if len(events) > MOST_EVENTS else ""
    is_plain = not any(set(name) & set(",={") for name in names)
    text = ",".join(sorted(names)) if is_plain else json.dumps({name: name for name in sorted(names)})
    return f"there are {listed}{more}; for example --window 1 --events {shlex.quote(text)}"
