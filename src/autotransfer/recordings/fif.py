"""MNE epochs files: one with a subject column in its metadata, or a folder with one file per subject."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..errors import UserError
from .blocks import Block, stacked
from .epochs import HINTS, block, import_mne, quiet
from .npy import readable
from .pattern import by_name
from .raw import Raw

ENDINGS = (".fif", ".fif.gz")


def read_fif(path: str | os.PathLike[str]) -> Raw:
    """Read an epochs file. The subject is the metadata column `subject` or `participant_id`; y holds event names."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"there is no file {str(path)!r}; give an existing epochs file")
    return stacked([_fif_block(path, labelled_by_name=False)], name=_plain(path), hints=HINTS)


def read_fif_folder(folder: str | os.PathLike[str]) -> Raw:
    """Read epochs files of several subjects, in this folder or, as in BIDS, in folders sub-... below it.

    The subject is the metadata column `subject` or `participant_id`. Without it, the file name is parsed:
    `sub-01_ses-2_epo.fif` is subject 01 (and session 2), any other name is the subject itself.
    """
    folder = Path(folder)
    blocks = (_fif_block(path, labelled_by_name=True) for path in fif_files(folder))
    return stacked(blocks, name=folder.resolve().name, hints=HINTS)


def fif_files(folder: Path) -> list[Path]:
    """Return the files that end in epo.fif or, without any, all .fif files, without later parts of split files."""
    entries = sorted(folder.iterdir()) if os.access(folder, os.R_OK | os.X_OK) else []
    files = [path for path in entries if _is_fif(path)]
    if not files:
        people = [path for path in entries if path.name.startswith("sub-") and path.is_dir()]
        files = [path for person in people for path in sorted(person.rglob("*")) if _is_fif(path)]
    stems = {path.parent / stem(path) for path in files}
    first_parts = [path for path in files if not _first_part(path) & stems]
    return [path for path in first_parts if stem(path).lower().endswith("epo")] or first_parts


def _first_part(path: Path) -> set[Path]:
    """Return the first part of a split file: a-epo for a-epo-1, a_split-01_epo for a_split-02_epo, as MNE names it."""
    name = stem(path)
    first = {re.sub(r"-\d+$", "", name), re.sub(r"_split-\d+_", "_split-01_", name)}
    return {path.parent / other for other in first - {name}}


def _is_fif(path: Path) -> bool:
    return path.name.lower().endswith(ENDINGS) and path.is_file()


def stem(path: Path) -> str:
    """Return the name without .fif or .fif.gz."""
    return re.sub(r"\.fif(\.gz)?$", "", path.name, flags=re.IGNORECASE)


def _plain(path: Path) -> str:
    """Return the name without MNE's endings."""
    return re.sub(r"(_split-\d+)?[-_]epo$", "", stem(path), flags=re.IGNORECASE)


def _fif_block(path: Path, *, labelled_by_name: bool) -> Block:
    """Return the windows of one file; its name may give the session and, without metadata, the subject."""
    mne = import_mne()
    with readable(path, "epochs"), quiet(mne):
        try:
            epochs = mne.read_epochs(path, preload=False)
        except ValueError as error:
            if "Could not find" not in str(error):
                raise
            raise UserError(
                f"{str(path)!r} holds no epochs; a continuous recording ends in _raw.fif, and epochs are made with "
                "mne.Epochs(raw, events, event_id, tmin, tmax).save('name-epo.fif')"
            ) from error
        part = block(epochs, repr(path.name))
    if labelled_by_name:
        labels = by_name(_plain(path))
        if part.subject is None:
            part.subject = [labels["subject"]] * len(part.X)
        if "session" in labels:
            part.session = [labels["session"]] * len(part.X)
    return part
