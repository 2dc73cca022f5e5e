"""Continuous recordings: a file, or a folder of files of one format, read by that format's own library and cut."""

from __future__ import annotations

import json
import os
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UserError, shown
from ..words import count
from .bids import open_bids
from .blocks import Block, Remedies, stacked
from .child import blocks_in_child
from .csv_files import OPTIONS as CSV_OPTIONS
from .csv_files import open_csv
from .cutting import HOW_TO_MAP, Continuous, Cutting, cut
from .edf import EARLY, open_with_mne
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
LONG = 3  # events that last so many windows are worth more than one
MOST_SHOWN = 8  # names of events that a message lists


@dataclass
class Events:
    """Which events files have, and whose."""

    counts: Counter[str] = field(default_factory=Counter)
    people: dict[str, set[str]] = field(default_factory=dict)
    lasting: list[float] = field(default_factory=list)  # s: the usual duration in each file where there is one
    mean_lasting: list[float] = field(default_factory=list)  # s: the mean

    def add(self, block: Block, person: str) -> None:
        self.counts.update(block.events)
        for name in block.events:
            self.people.setdefault(name, set()).add(person)
        self.lasting += [] if block.lasting is None else [block.lasting]
        self.mean_lasting += [] if block.mean_lasting is None else [block.mean_lasting]

    def _whose(self, name: str) -> str:
        return count(len(self.people[name]), "person", "people")

    def listed(self) -> str:
        """'T1' (90, 3 people), ..."""
        common = self.counts.most_common(MOST_SHOWN)
        shared = len({len(who) for who in self.people.values()}) == 1  # then one number says it
        parts = [
            f"{shown(name)} ({n})" if shared else f"{shown(name)} ({n}, {self._whose(name)})" for name, n in common
        ]
        more = f" and {len(self.counts) - MOST_SHOWN} more" if len(self.counts) > MOST_SHOWN else ""
        whose = f", each in {self._whose(common[0][0])}" if shared and common else ""
        return ", ".join(parts) + more + whose

    def options(self, cutting: Cutting) -> str:
        """Options of the command line that cut windows of the events that most people have: as long as the user said or
        as events usually last, with a hop where events last much longer."""
        names = sorted(self.counts, key=lambda name: (-len(self.people[name]), -self.counts[name], name))
        names = sorted(names[:MOST_SHOWN])
        plain = not any(set(name) & set(",={") for name in names)
        text = ",".join(names) if plain else json.dumps({name: name for name in names}, ensure_ascii=False)
        window = cutting.window or _middle(self.lasting) or 1.0
        hop = cutting.hop or (window if (_middle(self.mean_lasting) or 0.0) >= 2 * window else None)
        every = "" if hop is None else f"--hop {hop:.3g} "
        return f"--window {window:.3g} {every}--events {shlex.quote(text)}"

    def guessed(self, cutting: Cutting) -> str:
        """A note where nothing says how long windows should be."""
        return "" if cutting.window or _middle(self.lasting) else " (the length is a guess: events have no duration)"

    def unused(self, cutting: Cutting) -> str | None:
        """A warning where one window of each event leaves most of it unused."""
        mean = _middle(self.mean_lasting)
        if cutting.events is None or cutting.window is None or cutting.hop is not None or mean is None:
            return None
        if mean < LONG * (max(cutting.offset, 0.0) + cutting.window):
            return None
        return (
            f"one window of {cutting.window:g} s is cut of each event, and events last {mean:.3g} s: "
            f"--hop {cutting.window:g} cuts them all"
        )


class NoWholeWindow(UserError):
    """Recordings are shorter than a window. name: of the first of them."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} holds no whole window as asked for; give a shorter --window or another --offset")
        self.name = name


def _middle(seconds: list[float]) -> float | None:
    return sorted(seconds)[len(seconds) // 2] if seconds else None


def endings() -> list[str]:
    """Endings of all formats, as messages list them."""
    return [*(end for end in FORMATS if end.startswith(".")), "_raw.fif"]


def ending(path: Path) -> str | None:
    """The format of a file by its name: the longest ending that is known."""
    fitting = [end for end in FORMATS if path.name.lower().endswith(end)]
    return max(fitting, key=len, default=None)


def one_file(path: Path, options: Options, cutting: Cutting) -> Files:
    """One file, with the labels that its name gives."""
    if not os.path.isfile(path):
        raise UserError(f"there is no file {shown(str(path), 400)}; give an existing one")
    end = ending(path) or ""
    check_options([path], options)
    if FORMATS[end].several:
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
    explained = [path for path in paths if FORMATS[ending(path) or ""].by_pattern]
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
        events, notes = Events(), Counter[str]()
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


def _command(source: str, events: Events, cutting: Cutting) -> str:
    pattern = "" if cutting.pattern is None else f"--pattern {shlex.quote(cutting.pattern)} "
    rate = "" if cutting.sfreq is None else f"--sfreq {cutting.sfreq:g} "
    return f"autotransfer inspect {shlex.quote(source)} {pattern}{rate}{events.options(cutting)}"


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
    return open_bids(path) if bids else FORMATS[ending(path) or ""].open(path, cutting, options)


def with_labels(block: Block, labels: Labels) -> Block:
    """The block with what the name of its file says."""
    n = len(block.X)
    block.subject = [labels["subject"]] * n
    block.session = [labels["session"]] * n if "session" in labels else None
    block.columns = {name: [text] * n for name, text in labels.items() if name not in ("subject", "session", "class")}
    return block


def _with_windows(
    blocks: Iterable[Block], people: list[str], cutting: Cutting, events: Events, notes: Counter[str], source: str
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
    known = {name for path in paths for name in FORMATS[ending(path) or ""].options}
    for name in options:
        if name not in known:
            choices = f"choose from {', '.join(sorted(known))}" if known else "these files have none"
            raise UserError(f"unknown option {shown(name)} after the question mark; {choices}")
