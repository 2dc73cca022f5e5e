"""Continuous recordings: a file, or a folder of files of one format, read by that format's own library and cut."""

from __future__ import annotations

import os
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UserError, shown
from .bids import open_bids
from .blocks import Block, Remedies, stacked
from .child import blocks_in_child
from .csv_files import OPTIONS as CSV_OPTIONS
from .csv_files import open_csv
from .cutting import HOW_TO_MAP, Continuous, Cutting, cut
from .edf import EARLY, open_with_mne
from .event_counts import EventCounts
from .filters import filter_of
from .pattern import EXAMPLE, Files, Labels, by_name, check_inside, files_below, labelled_files, matcher, source_of
from .raw import Raw
from .wfdb_records import open_wfdb
from .xdf import open_xdf

Options = dict[str, str]


class Format(NamedTuple):
    open: Callable[[Path, Cutting, Options], Continuous]
    options: tuple[str, ...] = ()  # what may follow the path
    by_pattern: bool = False  # whether a folder's names must be explained, because they follow no convention
    several: bool = False  # whether a recording has further files beside it


# How MNE and BIDS call files of continuous recordings; any other .fif holds epochs.
RAW_FIF = tuple(
    f"{mark}{kind}.fif{packed}"
    for mark in "-_"
    for kind in ("raw", "raw_sss", "raw_tsss", "eeg", "meg", "ieeg", "emg")
    for packed in ("", ".gz")
)
# By the ending of a file's name.
FORMATS = {
    ".edf": Format(open_with_mne),
    ".bdf": Format(open_with_mne),
    ".gdf": Format(open_with_mne),
    ".xdf": Format(open_xdf, ("stream",)),
    ".xdfz": Format(open_xdf, ("stream",)),
    ".xdf.gz": Format(open_xdf, ("stream",)),
    ".hea": Format(open_wfdb, ("annotator",), several=True),
    ".csv": Format(open_csv, CSV_OPTIONS, by_pattern=True),
    ".tsv": Format(open_csv, CSV_OPTIONS, by_pattern=True),
    **dict.fromkeys(RAW_FIF, Format(open_with_mne)),
}
REMEDIES = Remedies(
    channels="keep the same channels in all files",
    sfreq="resample all files to the same rate, or give the one of a table's stamps, --sfreq HZ",
    times="cut windows of one length with --window SECONDS (window=...)",
)
COUNTED = ("gaps", EARLY)  # notes whose number says how often, and not in how many files


class NoWholeWindow(UserError):
    """Recordings are shorter than a window. name: of the first of them."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} holds no whole window as asked for; give a shorter --window or another --offset")
        self.name = name


def endings() -> list[str]:
    """Endings of all formats, as messages list them."""
    return [*(end for end in FORMATS if end.startswith(".")), "_raw.fif"]


def ending(path: Path) -> str | None:
    """The format of a file by its name: the longest ending that is known."""
    fitting = [end for end in FORMATS if path.name.lower().endswith(end)]
    return max(fitting, key=len, default=None)


def format_of(path: Path) -> Format:
    """Of a file that has a known ending."""
    return FORMATS[ending(path) or ""]


def one_file(path: Path, options: Options, cutting: Cutting) -> Files:
    """One file, with the labels that its name gives."""
    if not os.path.isfile(path):
        raise UserError(f"there is no file {shown(str(path), 400)}; give an existing one")
    check_options([path], options)
    if format_of(path).several:
        for neighbour in path.parent.iterdir():
            check_inside(neighbour, path.parent.resolve())
    stem = _stem(path)
    labels = by_name(stem) if cutting.pattern is None else matcher(cutting.pattern)(path.name)
    if labels is None:
        raise UserError(f"the name {path.name!r} does not fit the pattern {shown(cutting.pattern, 200)}; {EXAMPLE}")
    return Files([(path, labels)], stem, options, source_of(path, options))


def files_in(folder: Path, options: Options, cutting: Cutting) -> Files:
    """A folder: the files that fit the pattern or, without one, all of a format that lie in it."""
    if cutting.pattern is not None:
        files = labelled_files(folder, cutting.pattern)
    else:
        files = [(path, by_name(_stem(path))) for path in recordings_in(folder)]
        _check_plain(folder, [path for path, _ in files], cutting)
    unknown = next((path for path, _ in files if ending(path) is None), None)
    if unknown is not None:
        raise UserError(f"{str(unknown)!r} fits the pattern, but its kind of file is none of {', '.join(endings())}")
    check_options([path for path, _ in files], options)
    return Files(files, folder.resolve().name, options, source_of(folder, options))


def _stem(path: Path) -> str:
    """The name of a file without the ending of its format."""
    return path.name[: len(path.name) - len(ending(path) or "")]


def recordings_in(folder: Path) -> list[Path]:
    """Files of a known format in and below a folder."""
    return [path for path in files_below(folder) if ending(path) is not None]


def _check_plain(folder: Path, paths: list[Path], cutting: Cutting) -> None:
    """Raise unless names are clear without a pattern: one format, files in one folder or named as in BIDS."""
    kinds = sorted({ending(path) or "" for path in paths})
    nested = [path for path in paths if path.parent != folder and not path.name.startswith("sub-")]
    explained = [path for path in paths if format_of(path).by_pattern]
    for path, why in [
        *((path, "lies in a folder of its own") for path in nested),
        *((path, "does not say whose it is") for path in explained),
    ]:
        name = path.relative_to(folder).as_posix()
        likely = "/".join(["{subject}", *["*"] * (name.count("/") - 1), f"*{path.suffix}"])
        likely = likely if "/" in name else f"{{subject}}{path.suffix}"
        # A model that is to predict knows the length of its windows, and asks for no classes.
        cut = "; long recordings also need --window SECONDS, and --events unless names of files have the class"
        raise UserError(
            f"{shown(name, 200)} in {str(folder)!r} {why}; say what names of files mean, --pattern '{likely}', or "
            f"{EXAMPLE}{cut if cutting.window is None else ''}"
        )
    if len(kinds) > 1:
        raise UserError(f"{str(folder)!r} holds {' and '.join(kinds)} files; choose some, {EXAMPLE}")


def read_labelled(labelled: Files, cutting: Cutting) -> Raw:
    """Windows of files whose labels are known."""
    files, source = labelled.files, labelled.source
    by_file = any("class" in labels for _, labels in files)
    if by_file and cutting.events is not None:
        raise UserError("both events and {class} in the pattern say what the class is; give one of them")
    with blocks_of(continuous_block, labelled, cutting) as blocks:
        events, notes = EventCounts(), Counter[str]()
        people = [labels["subject"] for _, labels in files]
        raw = stacked(_with_windows(blocks, people, cutting, events, notes, source), REMEDIES, name=labelled.name)
    hint = f"give {{class}} in a pattern, {EXAMPLE}, or {HOW_TO_MAP}"
    if events.counts:
        hint = (
            f"{HOW_TO_MAP}; there are {events.listed()}: {_command(source, events, cutting)}{events.guessed(cutting)}"
        )
    raw = replace(raw, hints={"y": hint}, notes=tuple(_noted(notes, len(files))))
    band = filter_of(cutting.filter)
    if band is None:
        return raw
    assert isinstance(raw.sfreq, float), "without a rate nothing is filtered"
    return replace(raw, filter=band.designed(raw.sfreq).as_dict())


def _command(source: str, events: EventCounts, cutting: Cutting) -> str:
    pattern = "" if cutting.pattern is None else f"--pattern {shlex.quote(cutting.pattern)} "
    rate = "" if cutting.sfreq is None else f"--sfreq {cutting.sfreq:g} "
    written = {"--sep": cutting.sep, "--decimal": cutting.decimal, "--time-column": cutting.time_column}
    csv = "".join(f"{option} {shlex.quote(value)} " for option, value in written.items() if value is not None)
    return f"autotransfer inspect {shlex.quote(source)} {pattern}{rate}{csv}{events.options(cutting)}"


def _noted(notes: Counter[str], n_files: int) -> Iterator[str]:
    """Notes of the readers, a line for each."""
    for note, n in notes.items():
        if note.startswith(COUNTED):
            yield f"{note}: {n}"
        else:
            yield note if n == n_files else f"{note} ({n} of {n_files} files)"


def blocks_of(
    reader: Callable[..., Block], labelled: Files, cutting: Cutting
) -> AbstractContextManager[Iterator[Block]]:
    """What `reader` makes of every file, in a child process: it gets what `continuous_block` gets."""
    known = {str(path): labels for path, labels in labelled.files}
    return blocks_in_child(reader, [*map(Path, known)], known, labelled.options, cutting.seconds, labelled.bids)


def continuous_block(
    path: Path, known: dict[str, Labels], options: Options, cutting: dict[str, Any], bids: bool
) -> Block:
    """The windows of one file with the labels that its name gives; runs in the child."""
    asked, labels = Cutting(**cutting), known[str(path)]
    return with_labels(cut(opened(path, asked, options, bids), asked, path, labels.get("class")), labels)


def opened(path: Path, cutting: Cutting, options: Options, bids: bool) -> Continuous:
    return open_bids(path) if bids else format_of(path).open(path, cutting, options)


def with_labels(block: Block, labels: Labels) -> Block:
    """The block with what the name of its file says."""
    n = len(block.X)
    block.subject = [labels["subject"]] * n
    block.session = [labels["session"]] * n if "session" in labels else None
    block.columns = {name: [text] * n for name, text in labels.items() if name not in ("subject", "session", "class")}
    return block


def _with_windows(
    blocks: Iterable[Block], people: list[str], cutting: Cutting, events: EventCounts, notes: Counter[str], source: str
) -> Iterator[Block]:
    """Blocks that hold windows; files without any are left out with a warning. Counts the events and notes of all.
    people: whose each block is."""
    empty, some = [], False
    for block, person in zip(blocks, people, strict=True):
        events.add(block, person)
        notes.update(block.notes)
        if len(block.X):
            some = True
            yield block
        else:
            empty.append(block.name)
    missing = [] if cutting.events is None else [name for name in cutting.events if name not in events.counts]
    if missing:
        raise UserError(f"no event is called {missing[0]!r}; there are {events.listed() or 'none'}")
    if cutting.window is None and events.counts and empty:
        raise UserError(
            f"{shown(source, 200)} is continuous: say how long windows are and which events are classes; there are "
            f"{events.listed()}: {_command(source, events, cutting)}"
        )
    if not some:
        raise NoWholeWindow(empty[0])
    if empty:
        names = shown(", ".join(empty), 200)
        warnings.warn(f"no whole window lies in {len(empty)} of the files, which are left out: {names}", stacklevel=2)
    if (unused := events.unused(cutting)) is not None:
        warnings.warn(unused, stacklevel=2)


def check_options(paths: list[Path], options: Options) -> None:
    """Raise where a format knows no option of that name."""
    known = {name for path in paths for name in format_of(path).options}
    for name in options:
        if name not in known:
            choices = f"choose from {', '.join(sorted(known))}" if known else "these files have none"
            raise UserError(f"unknown option {shown(name)} after the question mark; {choices}")
