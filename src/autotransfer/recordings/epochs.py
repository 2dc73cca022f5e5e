"""MNE epochs: objects or files, one with a subject column in its metadata, or one per subject."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError, shown
from .blocks import Block, stacked
from .cutting import Cutting
from .labels import plain_values
from .optional import need
from .raw import Array, Label, Raw

SUBJECT_COLUMNS = ("subject", "participant_id")
HINTS = {"subject": "give the epochs a metadata column 'subject': epochs.metadata = DataFrame({'subject': [...]})"}


def import_mne() -> Any:
    return need("mne", "reading MNE epochs", "mne")


@contextmanager
def quiet(mne: Any) -> Iterator[None]:
    """Silence MNE's logs and warnings, such as those of names of files, or of filters that a header does not state."""
    with warnings.catch_warnings(), mne.utils.use_log_level("ERROR"):
        warnings.simplefilter("ignore")
        yield


def raw_from_epochs(
    epochs: Any, subject: str | None = None, session: str | None = None, label: str | None = None
) -> Raw:
    """Return the windows of epochs in one of the forms that Recordings.from_epochs documents."""
    if not isinstance(epochs, (Mapping, list, tuple)):
        blocks = [epochs_block(epochs, "the epochs", subject=subject, session=session, label=label)]
    else:
        people = epochs.items() if isinstance(epochs, Mapping) else enumerate(epochs)
        how = {"subject": subject, "session": session, "label": label}
        blocks = [epochs_block(part, f"subject {shown(who)}", who=who, **how) for who, part in people]
    return stacked(blocks, name="epochs", hints=HINTS)


def epochs_block(
    epochs: Any,
    name: str,
    *,
    who: Label = None,
    subject: str | None = None,
    session: str | None = None,
    label: str | None = None,
) -> Block:
    """Return the windows of one Epochs object. `subject`, `session` and `label` are metadata columns.

    Without `subject` everything is of `who`. Without both the subject is looked for in SUBJECT_COLUMNS, and may stay
    unknown.
    """
    if not isinstance(epochs, import_mne().BaseEpochs):
        raise UserError(f"{name}: {shown(epochs)} is no mne.Epochs; give mne.Epochs, or a list or dict of them")
    if not epochs.preload:
        epochs = epochs.copy().drop_bad(verbose="ERROR")  # apply the rejection criteria, which MNE has not done yet
    column = subject
    if subject is None and who is None and epochs.metadata is not None:
        column = next((name for name in SUBJECT_COLUMNS if name in epochs.metadata.columns), None)
    people = None if who is None else [who] * len(epochs)
    events, codes = {code: name for name, code in epochs.event_id.items()}, epochs.events[:, 2].tolist()
    picks = data_channels(epochs.info)
    others = _others(epochs, {column, session, label})
    sessions = plain_values(others.get("session", [])) if session is None else _column(epochs, session, "session", name)
    if session is None and sessions is not None and None in sessions:  # every trial has one, or none
        sessions = None
    return Block(
        X=_windows(epochs, picks, name),
        y=[events.get(code, str(code)) for code in codes] if label is None else _column(epochs, label, "label", name),
        subject=people if column is None else _column(epochs, column, "subject", name),
        session=sessions,
        columns=others,
        channels=tuple(epochs.ch_names[index] for index in picks),
        sfreq=float(epochs.info["sfreq"]),
        start=float(epochs.tmin),
        name=name,
    )


def data_channels(info: Any) -> list[int]:
    """Return MNE's data channels (EEG, MEG, ECoG, ...) or, without any, all but triggers, as for EMG.

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


def open_epochs(path: Path, cutting: Cutting, options: dict[str, str]) -> Block:
    """Read an epochs file. Subjects are in the metadata column `subject` or `participant_id`, or known otherwise."""
    mne = import_mne()
    with quiet(mne):
        try:
            return epochs_block(mne.read_epochs(path, preload=False), repr(path.name))
        except ValueError as error:
            if "Could not find" not in str(error):
                raise
            raise UserError(
                f"{str(path)!r} holds no epochs; a continuous recording ends in _raw.fif, and epochs are made with "
                "mne.Epochs(raw, events, event_id, tmin, tmax).save('name-epo.fif')"
            ) from error
