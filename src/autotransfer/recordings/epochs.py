"""MNE epochs: an object or files, with subjects in a column of the metadata, or one file per subject."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError, shown
from .blocks import concatenate
from .cutting import Cutting
from .filters import Filter
from .labels import plain_values
from .optional import need
from .raw import Array, Label, Raw

PURPOSE = "reading MNE epochs"
SUBJECT_COLUMNS = ("subject", "participant_id")
HINTS = {"subject": "give the epochs a metadata column 'subject': epochs.metadata = DataFrame({'subject': [...]})"}


@contextmanager
def quiet(mne: Any) -> Iterator[None]:
    """Silence MNE's logs and warnings."""
    with warnings.catch_warnings(), mne.utils.use_log_level("ERROR"):
        warnings.simplefilter("ignore")
        yield


def raw_from_epochs(
    epochs: Any, subject: str | None = None, session: str | None = None, label: str | None = None
) -> Raw:
    """Return the windows of epochs, as `Recordings.from_epochs` documents."""
    return concatenate([read_epochs(epochs, "the epochs", subject, session, label)], name="epochs", hints=HINTS)


def read_epochs(
    epochs: Any, name: str, subject: str | None = None, session: str | None = None, label: str | None = None
) -> Raw:
    """Return the windows of one Epochs object; `subject`, `session` and `label` are columns of its metadata.

    Without `subject`, the subject is in one of SUBJECT_COLUMNS, or unknown.
    """
    if not isinstance(epochs, need("mne", PURPOSE, "mne").BaseEpochs):
        raise UserError(f"{name}: {shown(epochs)} is no mne.Epochs; give mne.Epochs")
    if not epochs.preload:
        epochs = epochs.copy().drop_bad(verbose="ERROR")  # apply the rejection criteria, which MNE has not done yet
    table = epochs.metadata
    columns = [] if table is None else list(table.columns)
    if subject is None:
        subject = next((column for column in SUBJECT_COLUMNS if column in columns), None)

    def read_column(column: str, what: str) -> list[Label]:
        if column not in columns:
            available = ", ".join(repr(str(other)) for other in columns) or "none"
            raise UserError(f"the metadata of {name} has no column {column!r} for the {what}; there are {available}")
        return list(table[column].tolist())

    unique = [column for column in columns if columns.count(column) == 1]
    others = {column: read_column(column, "") for column in unique if column not in (subject, session, label)}
    sessions = plain_values(others.get("session", [])) if session is None else read_column(session, "session")
    if session is None and sessions is not None and None in sessions:
        sessions = None
    events, codes = {code: name for name, code in epochs.event_id.items()}, epochs.events[:, 2].tolist()
    picks = data_channels(epochs.info)
    return Raw(
        X=_windows(epochs, picks, name),
        y=[events.get(code, str(code)) for code in codes] if label is None else read_column(label, "label"),
        subject=None if subject is None else read_column(subject, "subject"),
        session=sessions,
        columns=others,
        channels=tuple(epochs.ch_names[index] for index in picks),
        sfreq=float(epochs.info["sfreq"]),
        unit=find_unit(epochs.info, picks),
        filter=find_filter(epochs.info) or None,
        name=name,
    )


def data_channels(info: Any) -> list[int]:
    """Return the indices of MNE's data channels, also bad channels, or without them (EMG) of all but triggers."""
    kinds = dict.fromkeys(("meg", "eeg", "csd", "seeg", "ecog", "dbs", "fnirs"), True)
    brain: list[int] = need("mne", PURPOSE, "mne").pick_types(info, **kinds, exclude=[]).tolist()
    return brain or [index for index, kind in enumerate(info.get_channel_types()) if kind != "stim"]


def find_unit(info: Any, picks: list[int]) -> str | None:
    """Return V if MNE states volts for all of these channels, else None."""
    volts = need("mne", PURPOSE, "mne").io.constants.FIFF.FIFF_UNIT_V
    return "V" if picks and all(info["chs"][index]["unit"] == volts for index in picks) else None


def find_filter(info: Any) -> Filter:
    """Return the filter that MNE states; a lowpass at half of the sampling rate is left out."""
    low, high = float(info["highpass"] or 0), float(info["lowpass"] or 0)
    return Filter(low if low > 0 else None, high if 0 < high < 0.499 * float(info["sfreq"]) else None)


def _windows(epochs: Any, picks: list[int], name: str) -> Array:
    """Return windows (n, channels, times) float32."""
    if not picks:
        raise UserError(f"{name} has only trigger channels ({', '.join(epochs.ch_names[:3])}); include data channels")
    if len(epochs) == 0:
        return np.empty((0, len(picks), len(epochs.times)), np.float32)
    sample = epochs.get_data(item=slice(0, 1), copy=False, verbose="ERROR")
    if np.iscomplexobj(sample):
        raise UserError(f"{name} holds complex values; give signals, such as epochs.apply_function(numpy.abs)")
    with np.errstate(over="ignore", invalid="ignore"):  # overflow gives infinite values, which are reported
        return np.asarray(epochs.get_data(picks=picks, copy=False, verbose="ERROR"), dtype=np.float32)


def open_epochs(path: Path, cutting: Cutting, options: dict[str, str]) -> Raw:
    """Read an epochs file."""
    mne = need("mne", PURPOSE, "mne")
    with quiet(mne):
        return read_epochs(mne.read_epochs(path, preload=False), repr(path.name))
