"""BIDS folders, read by mne-bids: `FOLDER`, or `bids:FOLDER?task=motor&ses=1,2` for a part of it.

Recordings are sub-01/[ses-1/]eeg/sub-01_..._eeg.edf and the like; events come from events.tsv.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..errors import UserError, shown
from .cutting import Continuous, Cutting
from .edf import NO_RECORDS, from_mne, read_annotations
from .epochs import quiet
from .optional import need
from .pattern import ENTITY, Files, Labels, files_below

KINDS = ("eeg", "ieeg", "meg", "emg", "nirs")
ENDINGS = (".edf", ".bdf", ".vhdr", ".set", ".fif", ".snirf")
LABELS = ENTITY | {"task": "task", "run": "run", "acquisition": "acq"}  # entities by the name of the label or column
ENTITIES = (*LABELS.values(), "kind")
ENTITY_IN_NAME = re.compile(r"(?:^|_)([a-z]+)-([0-9A-Za-z]+)")
NAME = re.compile(rf"sub-.*_({'|'.join(KINDS)})({'|'.join(map(re.escape, ENDINGS))})", re.IGNORECASE)


def is_bids(folder: Path) -> bool:
    return os.path.isfile(folder / "dataset_description.json")


def bids_files(folder: Path, options: dict[str, str], cutting: Cutting) -> Files:
    """Return the files of a folder, or a part of them by the values of entities."""
    if not os.path.isdir(folder):
        raise UserError(f"there is no folder {shown(str(folder), 400)}; give the folder of a BIDS data set")
    if cutting.pattern is not None:
        raise UserError("BIDS defines the names of files in its folders; leave --pattern out")
    need("mne_bids", "reading BIDS folders", "mne-bids")
    recordings = _select(folder, options)
    labels = [{name: found[short] for name, short in LABELS.items() if short in found} for _, found in recordings]
    paths = [path for path, _ in recordings]
    return Files(list(zip(paths, labels, strict=True)), folder.resolve().name, {}, is_bids=True)


def _select(folder: Path, options: dict[str, str]) -> list[tuple[Path, Labels]]:
    """Return recordings with their entities, in order, except later parts of split files."""
    recordings = []
    for path in files_below(folder):
        if path.relative_to(folder).parts[0].startswith("sub-") and (match := NAME.fullmatch(path.name)):
            found = dict(ENTITY_IN_NAME.findall(path.name)) | {"kind": match[1].lower()}
            if found.get("split", "1").lstrip("0") == "1":
                recordings.append((path, found))
    if not recordings:
        raise UserError(f"{str(folder)!r} has no recordings such as sub-01/eeg/sub-01_task-x_eeg.edf; is it BIDS?")
    for name, value in options.items():
        if name not in ENTITIES:
            raise UserError(f"unknown entity {shown(name)} after the question mark; choose from {', '.join(ENTITIES)}")
        wanted, available = set(value.split(",")), {found[name] for _, found in recordings if name in found}
        if missing := sorted(wanted - available):
            known = ", ".join(sorted(available)) or "none"
            raise UserError(f"no recording in {str(folder)!r} has {name}={missing[0]}; there are {known}")
        recordings = [(path, found) for path, found in recordings if found.get(name) in wanted]
    kinds = sorted({found["kind"] for _, found in recordings})
    if len(kinds) > 1:
        raise UserError(f"{str(folder)!r} holds {' and '.join(kinds)}; choose one, such as bids:FOLDER?kind={kinds[0]}")
    return recordings


def open_bids(path: Path) -> Continuous:
    """Open one recording with the events of its events.tsv."""
    mne, mne_bids = (need(name, "reading BIDS folders", "mne-bids") for name in ("mne", "mne_bids"))
    with quiet(mne):
        raw = mne_bids.read_raw_bids(mne_bids.get_bids_path_from_fname(path, verbose=False), verbose=False)
        is_edf = path.suffix.lower() in (".edf", ".bdf")
        _, onsets, notes = read_annotations(path) if is_edf else ((), NO_RECORDS, ())
        recording = from_mne(raw, record_onsets=onsets, notes=notes)
    if recording.breaks:
        raise UserError(f"{path.name!r} has gaps (EDF+D), in which events.tsv cannot be placed; store it as EDF+C")
    return recording
