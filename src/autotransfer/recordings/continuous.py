"""Recordings in files of the field's formats: a file, or a folder of files of one format, each read by its own library.

Continuous recordings are cut into windows, epochs are windows already.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..errors import UserError, shown
from .bids import open_bids
from .blocks import Block, stacked
from .container import check_sfreq
from .csv_files import OPTIONS as CSV_OPTIONS
from .csv_files import open_csv
from .cutting import HOW_TO_MAP, Continuous, Cutting, cut
from .edf import open_with_mne
from .epochs import open_epochs
from .filters import parse_filter
from .npy import readable
from .pattern import EXAMPLE, KNOWN, Files, by_name, files_below, labeled_files, matcher
from .raw import Raw
from .wfdb_records import open_wfdb
from .xdf import open_xdf

Options = dict[str, str]


class Format(NamedTuple):
    """Reader of files with one ending. An exception from `open` becomes one line."""

    open: Callable[[Path, Cutting, Options], Continuous | Block]
    options: tuple[str, ...] = ()  # what may follow the path
    by_pattern: bool = False  # whether a folder's names must be explained, because they follow no convention


def _fif(*kinds: str) -> list[str]:
    """Return the endings of FIF files as MNE and BIDS name them."""
    return [f"{mark}{kind}.fif{packed}" for mark in "-_" for kind in kinds for packed in ("", ".gz")]


ANY_FIF = (".fif", ".fif.gz")
EPOCHS = (*_fif("epo"), *ANY_FIF)
# By the ending of a file's name.
FORMATS = {
    ".edf": Format(open_with_mne),
    ".bdf": Format(open_with_mne),
    ".gdf": Format(open_with_mne),
    ".xdf": Format(open_xdf, ("stream",)),
    ".xdfz": Format(open_xdf, ("stream",)),
    ".xdf.gz": Format(open_xdf, ("stream",)),
    ".hea": Format(open_wfdb, ("annotator",)),
    ".csv": Format(open_csv, CSV_OPTIONS, by_pattern=True),
    ".tsv": Format(open_csv, CSV_OPTIONS, by_pattern=True),
    **dict.fromkeys(_fif("raw", "raw_sss", "raw_tsss", "eeg", "meg", "ieeg", "emg"), Format(open_with_mne)),
    **dict.fromkeys(EPOCHS, Format(open_epochs)),
}
MOST_SHOWN = 8  # names of events that a message lists


def endings() -> list[str]:
    """Return the endings of all formats, as messages list them."""
    return [*(end for end in FORMATS if end.startswith(".")), "_raw.fif"]


def ending(path: Path) -> str | None:
    """Return the format of a file by its name: the longest ending that is known."""
    fitting = [end for end in FORMATS if path.name.lower().endswith(end)]
    return max(fitting, key=len, default=None)


def format_of(path: Path) -> Format:
    """Return the format of a file that has a known ending."""
    return FORMATS[ending(path) or ""]


def holds_epochs(path: Path) -> bool:
    """Return whether a file, or one in a folder, holds epochs."""
    return any(ending(file) in EPOCHS for file in (recordings_in(path) if os.path.isdir(path) else [path]))


def one_file(path: Path, options: Options, cutting: Cutting) -> Files:
    """Return one file with the labels that its name gives."""
    if not os.path.isfile(path):
        raise UserError(f"there is no file {shown(str(path), 400)}; give an existing one")
    _check_options([path], options)
    labels = by_name(_stem(path)) if cutting.pattern is None else matcher(cutting.pattern)(path.name)
    if labels is None:
        raise UserError(f"the name {path.name!r} does not fit the pattern {shown(cutting.pattern, 200)}; {EXAMPLE}")
    return Files([(path, labels)], _stem(path), options)


def files_in(folder: Path, options: Options, cutting: Cutting) -> Files:
    """Return the files of a folder that fit the pattern or, without one, all files of one format."""
    if cutting.pattern is not None:
        files = labeled_files(folder, cutting.pattern)
    else:
        files = [(path, by_name(_stem(path))) for path in recordings_in(folder)]
        _check_plain(folder, [path for path, _ in files], cutting)
    unknown = next((path for path, _ in files if ending(path) is None), None)
    if unknown is not None:
        raise UserError(f"{str(unknown)!r} fits the pattern, but its kind of file is none of {', '.join(endings())}")
    _check_options([path for path, _ in files], options)
    return Files(files, folder.resolve().name, options)


def _stem(path: Path) -> str:
    """Return the name of a file without the ending of its format."""
    return re.sub(r"_split-\d+$", "", path.name[: len(path.name) - len(ending(path) or "")])


def recordings_in(folder: Path) -> list[Path]:
    """Return the files of a known format in and below a folder. Other .fif files than those that are named as MNE names
    them are taken only where there is nothing else."""
    files = [path for path in files_below(folder) if ending(path) is not None and not _is_later_part(path)]
    return [path for path in files if ending(path) not in ANY_FIF] or files


def _is_later_part(path: Path) -> bool:
    """Return whether a file continues another one, as MNE names the parts of large files."""
    first = {re.sub(r"-\d+(\.fif(\.gz)?)$", r"\1", path.name), re.sub(r"_split-\d+_", "_split-01_", path.name)}
    return any((path.parent / name).is_file() for name in first - {path.name})


def _check_plain(folder: Path, paths: list[Path], cutting: Cutting) -> None:
    """Refuse names that are not clear without a pattern: several formats or folders, and CSV files."""
    for path in paths:
        if (path.parent != folder and not path.name.startswith("sub-")) or format_of(path).by_pattern:
            name = path.relative_to(folder).as_posix()
            # A model that is to predict knows the length of its windows, and asks for no classes.
            cut = "; long recordings also need --window SECONDS, and --events unless names of files have the class"
            raise UserError(
                f"{shown(name, 200)} in {str(folder)!r} does not say whose it is; say what names of files mean, "
                f"--pattern '{{subject}}{'/*' * name.count('/')}{path.suffix}', or {EXAMPLE}"
                f"{cut if cutting.window is None else ''}"
            )
    kinds = sorted({(ending(path) or "").lstrip("-_").removesuffix(".gz") for path in paths})
    if len(kinds) > 1:
        raise UserError(f"{str(folder)!r} holds {' and '.join(kinds)} files; choose some, {EXAMPLE}")


def _check_options(paths: list[Path], options: Options) -> None:
    known = {name for path in paths for name in format_of(path).options}
    for name in options:
        if name not in known:
            choices = f"choose from {', '.join(sorted(known))}" if known else "these files have none"
            raise UserError(f"unknown option {shown(name)} after the question mark; {choices}")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any failure of a library into one line, and silence its warnings."""
    with readable(path, "contents"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def opened(path: Path, labeled: Files, cutting: Cutting) -> Continuous | Block:
    """Open one of the files; refuse a rate that contradicts the file's, and options for windows that are cut."""
    found = open_bids(path) if labeled.is_bids else format_of(path).open(path, cutting, labeled.options)
    found.sfreq = agreed_rate(found.sfreq, cutting.sfreq, str(path))
    if isinstance(found, Block):
        check_uncut(str(path), replace(cutting, pattern=None, sfreq=None))
    return found


def agreed_rate(stored: object, given: float | None, what: str) -> float | None:
    """Return the rate in Hz that recordings state, or else the one that the user gives."""
    rate = check_sfreq(stored)
    if rate is None or given is None:
        return given if rate is None else rate
    if abs(rate - given) > 1e-6 * rate:
        raise UserError(f"{shown(what, 400)} is sampled at {rate:g} Hz, not at {given:g}; leave --sfreq out")
    return rate


def check_uncut(what: str, cutting: Cutting) -> None:
    """Refuse options for continuous recordings."""
    if cutting.given:
        raise UserError(
            f"{shown(what, 400)} holds windows that are cut already; leave out {', '.join(cutting.given)}, for "
            f"continuous recordings only (BIDS folders, {', '.join(endings())})"
        )


def read_labeled(labeled: Files, cutting: Cutting) -> Raw:
    """Return the windows of files whose labels are known."""
    by_file = any("class" in labels for _, labels in labeled.files)
    if by_file and cutting.events is not None:
        raise UserError("both events and {class} in the pattern say what the class is; give one of them")
    events, notes = Counter[str](), Counter[str]()
    raw = stacked(_blocks(labeled, cutting, events, notes), name=labeled.name)
    hint = f"{HOW_TO_MAP}; {_listed(events)}" if events else f"give {{class}} in a pattern, {EXAMPLE}, or {HOW_TO_MAP}"
    n_files = len(labeled.files)
    told = tuple(note if n == n_files else f"{note} ({n} of {n_files} files)" for note, n in notes.items())
    raw = replace(raw, hints={"y": hint}, notes=told)
    band = parse_filter(cutting.filter)
    return raw if band is None else replace(raw, filter=replace(band, is_causal=True).as_dict())


def _blocks(labeled: Files, cutting: Cutting, events: Counter[str], notes: Counter[str]) -> Iterator[Block]:
    """Yield the windows of each file, and count events and notes. Files without a whole window are left out."""
    empty: list[str] = []
    for path, labels in labeled.files:
        with reading(path):
            found = opened(path, labeled, cutting)
            block = found if isinstance(found, Block) else cut(found, cutting, path, labels.get("class"))
        events.update(block.events)
        notes.update(block.notes)
        n = len(block.X)
        if n:
            block.columns |= {name: [text] * n for name, text in labels.items() if name not in KNOWN}
            if block.subject is None or cutting.pattern is not None:
                block.subject = [labels["subject"]] * n
            if "session" in labels:
                block.session = [labels["session"]] * n
            if isinstance(found, Block) and "class" in labels:
                block.y = [labels["class"]] * n
            yield block
        else:
            empty.append(block.name)
    missing = [] if cutting.events is None else [name for name in cutting.events if name not in events]
    if missing:
        raise UserError(f"no event is called {missing[0]!r}; {_listed(events)}")
    if cutting.window is None and events and empty:
        raise UserError(
            f"{shown(labeled.name, 200)} is continuous: say how long windows are and which events are classes; "
            f"{_listed(events)}"
        )
    if len(empty) == len(labeled.files):
        raise UserError(f"{empty[0]} holds no whole window as asked for; give a shorter --window or another --offset")
    if empty:
        names = shown(", ".join(empty), 200)
        warnings.warn(f"no whole window lies in {len(empty)} of the files, which are left out: {names}", stacklevel=2)


def _listed(events: Counter[str]) -> str:
    """List events with their counts, and options that cut windows at them."""
    if not events:
        return "there are none"
    names = [name for name, _ in events.most_common(MOST_SHOWN)]
    listed = ", ".join(f"{shown(name)} ({events[name]})" for name in names)
    more = f" and {len(events) - MOST_SHOWN} more" if len(events) > MOST_SHOWN else ""
    plain = not any(set(name) & set(",={") for name in names)
    text = ",".join(sorted(names)) if plain else json.dumps({name: name for name in sorted(names)})
    return f"there are {listed}{more}; for example --window 1 --events {shlex.quote(text)}"
