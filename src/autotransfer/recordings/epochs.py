"""MNE epochs: objects or files, one with a subject column in its metadata, or one per subject."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from .blocks import Block, stacked
from .columns import plain_columns, plain_values
from .messages import show
from .npy import readable
from .optional import need
from .pattern import by_name
from .raw import Array, Label, Raw

SUBJECT_COLUMNS = ("subject", "participant_id")  # in any case of letters
FIF = (".fif", ".fif.gz")
HINTS = {"subject": "give the epochs a metadata column 'subject': epochs.metadata = DataFrame({'subject': [...]})"}


def import_mne() -> Any:
    return need("mne", "reading MNE epochs", "mne")


@contextmanager
def quiet(mne: Any) -> Iterator[None]:
    """Without MNE's logs and warnings, such as of names of files, or of filters that a header does not state."""
    with warnings.catch_warnings(), mne.utils.use_log_level("ERROR"):
        warnings.simplefilter("ignore")
        yield


def raw_from_epochs(
    epochs: object, subject: str | None = None, session: str | None = None, label: str | None = None
) -> Raw:
    """What Recordings.from_epochs documents, before it is checked."""
    return stacked(_blocks(epochs, subject, session, label), name="epochs", hints=HINTS)


def _blocks(epochs: Any, subject: str | None, session: str | None, label: str | None) -> Iterator[Block]:
    base = import_mne().BaseEpochs
    if isinstance(epochs, base):
        yield block(epochs, "the epochs", subject=subject, session=session, label=label)
        return
    if not isinstance(epochs, (Mapping, list, tuple)):
        raise UserError(f"epochs are {show(epochs)}; give mne.Epochs, or a list or dict of them")
    people = list(epochs.items()) if isinstance(epochs, Mapping) else _numbered(epochs)
    for who, part in people:
        if not isinstance(part, base):
            raise UserError(f"the epochs of {show(who)} are {show(part)}; give mne.Epochs")
        yield block(part, f"subject {show(who)}", who=who, subject=subject, session=session, label=label)


def _numbered(parts: Sequence[Any]) -> list[tuple[Label, Any]]:
    """Each with the his_id of its subject_info, if all have one, else with its position."""
    ids = [((getattr(part, "info", None) or {}).get("subject_info") or {}).get("his_id") for part in parts]
    return list(zip(ids if all(ids) else range(len(parts)), parts, strict=True))


def block(
    epochs: Any,
    name: str,
    *,
    who: Label = None,
    subject: str | None = None,
    session: str | None = None,
    label: str | None = None,
) -> Block:
    """One Epochs object. `subject`, `session` and `label` are metadata columns; `who`: the subject of all of it.

    Without `subject` and `who` the subject is looked for in SUBJECT_COLUMNS, and may stay unknown.
    """
    if not epochs.preload:
        epochs = epochs.copy().drop_bad(verbose="ERROR")  # apply the rejection criteria, which MNE has not done yet
    column = subject if subject is not None or who is not None else _subject_column(epochs)
    people = None if column is None else _column(epochs, column, "subject", name)
    if column is None and who is not None:
        people = [who] * len(epochs)
    events, codes = {code: name for name, code in epochs.event_id.items()}, epochs.events[:, 2].tolist()
    picks = data_channels(epochs.info)
    others = _others(epochs, {column, session, label})
    if session is not None:
        sessions: list[Label] | None = _column(epochs, session, "session", name)
    else:
        sessions = plain_values(others.get("session", []))
        sessions = None if sessions is None or None in sessions else sessions  # every trial has one, or none
    return Block(
        X=_windows(epochs, picks, name),
        y=[events.get(code, str(code)) for code in codes] if label is None else _column(epochs, label, "label", name),
        subject=people,
        session=sessions,
        columns=plain_columns(others),
        channels=tuple(epochs.ch_names[index] for index in picks),
        sfreq=float(epochs.info["sfreq"]),
        start=float(epochs.tmin),
        name=name,
    )


def data_channels(info: Any) -> list[int]:
    """MNE's data channels (EEG, MEG, ECoG, ...) or, without any, all but triggers, as for EMG.

    Bad channels are kept: they differ between subjects, but a model needs the same channels for all.
    """
    kinds = dict.fromkeys(("meg", "eeg", "csd", "seeg", "ecog", "dbs", "fnirs"), True)
    brain: list[int] = import_mne().pick_types(info, **kinds, exclude=[]).tolist()
    return brain or [index for index, kind in enumerate(info.get_channel_types()) if kind != "stim"]


def _windows(epochs: Any, picks: list[int], name: str) -> Array:
    """Return windows (n, channels, times) float32."""
    if not picks:
        raise UserError(f"{name} has only trigger channels ({', '.join(epochs.ch_names[:3])}); include data channels")
    if len(epochs) == 0:
        return np.empty((0, len(picks), len(epochs.times)), np.float32)
    sample = epochs.get_data(item=slice(0, 1), copy=False, verbose="ERROR")
    if np.iscomplexobj(sample):
        raise UserError(f"{name} holds complex values; give signals, such as epochs.apply_function(numpy.abs)")
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is infinite, which Recordings reports
        return np.asarray(epochs.get_data(picks=picks, copy=False, verbose="ERROR"), dtype=np.float32)


def _subject_column(epochs: Any) -> str | None:
    if epochs.metadata is None:
        return None
    by_lower = {str(column).lower(): column for column in reversed(list(epochs.metadata.columns))}
    return next((by_lower[name] for name in SUBJECT_COLUMNS if name in by_lower), None)


def _others(epochs: Any, used: set[str | None]) -> dict[Any, list[Label]]:
    """Return the columns of the metadata that are not used."""
    if epochs.metadata is None:
        return {}
    table = epochs.metadata.loc[:, ~epochs.metadata.columns.duplicated(keep=False)]
    return {name: list(values.tolist()) for name, values in table.items() if name not in used}


def _column(epochs: Any, column: str, what: str, name: str) -> list[Label]:
    columns = [] if epochs.metadata is None else list(epochs.metadata.columns)
    if column not in columns:
        there = ", ".join(repr(str(other)) for other in columns) or "none"
        raise UserError(f"the metadata of {name} has no column {column!r} for the {what}; there are {there}")
    return list(epochs.metadata[column].tolist())


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
    return path.name.lower().endswith(FIF) and path.is_file()


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
