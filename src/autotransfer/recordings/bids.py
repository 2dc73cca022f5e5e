"""BIDS folders through mne-bids: `FOLDER`, or `bids:FOLDER?task=motor&ses=1,2` for some of it.

Recordings are sub-01/[ses-1/]eeg/sub-01_..._eeg.edf and the like; events come from events.tsv.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..errors import UserError, shown
from .cutting import Continuous, Cutting
from .edf import continuous_of
from .epochs import quiet
from .optional import need
from .pattern import ENTITY, Files, Labels, entity, files_below, split_options

KINDS = ("eeg", "ieeg", "meg", "emg", "nirs")
ENDINGS = (".edf", ".bdf", ".vhdr", ".set", ".fif", ".snirf")
LABELS = ENTITY | {"task": "task", "run": "run", "acquisition": "acq"}  # by the entity that says them
ENTITIES = (*LABELS.values(), "kind")
NAME = re.compile(rf"sub-.*_({'|'.join(KINDS)})({'|'.join(map(re.escape, ENDINGS))})", re.IGNORECASE)


def is_bids(folder: Path) -> bool:
    """Tell whether a folder says that it is one."""
    return os.path.isfile(folder / "dataset_description.json")


def bids_files(text: str, cutting: Cutting) -> Files:
    """Return the files of FOLDER, optionally with ?entity=value,value&..., entities as in ENTITIES."""
    path, options = split_options(text)
    folder = Path(os.path.expanduser(path))  # Path's own raises where nobody has that name
    if not os.path.isdir(folder):
        raise UserError(f"there is no folder {shown(path, 400)}; give the folder of a BIDS data set")
    if cutting.pattern is not None:
        raise UserError("names of files in a BIDS folder have their meaning; leave --pattern out")
    need("mne_bids", "reading BIDS folders", "mne-bids")
    files = _chosen(folder, options)
    labelled = [(path, _labels(path)) for path in files]
    return Files(labelled, folder.resolve().name, {}, is_bids=True)


def _chosen(folder: Path, options: dict[str, str]) -> list[Path]:
    """Return the recordings of raw data, in order: derivatives, and later parts of split files, are left out."""
    files = [path for path in files_below(folder) if path.relative_to(folder).parts[0].startswith("sub-")]
    recordings = [path for path in files if NAME.fullmatch(path.name) and not re.search(r"_split-0*[2-9]", path.name)]
    if not recordings:
        raise UserError(f"{str(folder)!r} has no recordings such as sub-01/eeg/sub-01_task-x_eeg.edf; is it BIDS?")
    for name, value in options.items():
        if name not in ENTITIES:
            raise UserError(f"unknown entity {shown(name)} after the question mark; choose from {', '.join(ENTITIES)}")
        values = {path: _value(path, name) for path in recordings}
        wanted = set(value.split(","))
        if missing := wanted - set(values.values()):
            known = ", ".join(sorted(text for text in set(values.values()) if text)) or "none"
            raise UserError(f"no recording in {str(folder)!r} has {name}={sorted(missing)[0]}; there are {known}")
        recordings = [path for path in recordings if values[path] in wanted]
    kinds = sorted({_value(path, "kind") or "" for path in recordings})
    if len(kinds) > 1:
        raise UserError(f"{str(folder)!r} holds {' and '.join(kinds)}; choose one, such as bids:FOLDER?kind={kinds[0]}")
    return recordings


def _value(path: Path, name: str) -> str | None:
    match = NAME.fullmatch(path.name) if name == "kind" else entity(path.name, name)
    return match[1].lower() if match and name == "kind" else match[1] if match else None


def _labels(path: Path) -> Labels:
    return {name: value for name, short in LABELS.items() if (value := _value(path, short)) is not None}


def open_bids(path: Path) -> Continuous:
    """Open one recording with the events of its events.tsv."""
    mne = need("mne", "reading BIDS folders", "mne-bids")
    mne_bids = need("mne_bids", "reading BIDS folders", "mne-bids")
    with quiet(mne):
        raw = mne_bids.read_raw_bids(mne_bids.get_bids_path_from_fname(path, verbose=False), verbose=False)
        return continuous_of(raw)
