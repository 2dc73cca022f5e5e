"""EDF, EDF+, BDF, GDF and MNE's raw files, read by MNE: annotations and trigger channels are events."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .cutting import Continuous, Cutting, Event
from .epochs import data_channels, find_filter, find_unit, quiet
from .optional import need

Onsets = NDArray[np.float64]
NO_RECORDS: Onsets = np.empty(0)
BAD = ("bad", "edge")  # annotations whose names begin with these words mark unusable stretches, as in MNE


def open_with_mne(path: Path, cutting: Cutting, options: dict[str, str]) -> Continuous:
    """Open a recording that MNE reads."""
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    mne = need("mne", f"reading {ending} files", "mne")
    with quiet(mne):
        raw = mne.io.read_raw(path, preload=False)
        # MNE ignores gaps of these files, and annotations before the first sample.
        return from_mne(raw, *(read_annotations(path) if ending in (".edf", ".bdf") else ()))


def from_mne(
    raw: Any, events: list[Event] | None = None, record_onsets: Onsets = NO_RECORDS, notes: tuple[str, ...] = ()
) -> Continuous:
    """Return the recording of an mne.io.Raw in MNE's units.

    `events` replace its annotations. `record_onsets` (records,) are the seconds at which data records begin.
    """
    mne = need("mne", "reading recordings", "mne")
    picks = data_channels(raw.info)
    sfreq, n_times = float(raw.info["sfreq"]), int(raw.n_times)

    def read(start: int, stop: int) -> Any:
        with quiet(mne):
            return raw.get_data(picks=picks, start=start, stop=stop)

    times, breaks = _sample_times(record_onsets, n_times, sfreq) if len(record_onsets) else (None, ())
    events = [*(_annotations(raw) if events is None else events), *_triggers(mne, raw, times)]
    return Continuous(
        read=read,
        n_times=n_times,
        channels=tuple(raw.ch_names[index] for index in picks),
        sfreq=sfreq,
        unit=find_unit(raw.info, picks),
        filter=find_filter(raw.info),
        events=[event for event in events if not event.name.lower().startswith(BAD)],
        bad=[event for event in events if event.name.lower().startswith(BAD)],
        times=times,
        breaks=breaks,
        notes=notes,
    )


def read_annotations(path: Path) -> tuple[list[Event], Onsets, tuple[str, ...]]:
    """Return the annotations of an EDF or BDF file, and notes about records that are missing at the end.

    If the file may have gaps (EDF+D, BDF+D), also return the onsets of its records.
    """
    with open(path, "rb") as file:
        header = file.read(256)
        n_signals = int(header[252:256])
        fields = file.read(256 * n_signals)
    labels = [fields[16 * k : 16 * (k + 1)].strip().lower() for k in range(n_signals)]
    notes = [k for k, label in enumerate(labels) if label in (b"edf annotations", b"bdf annotations")]
    samples = [int(fields[216 * n_signals + 8 * k :][:8]) for k in range(n_signals)]
    starts = [0, *accumulate((2 if header[0:1] == b"0" else 3) * n for n in samples)]  # bytes in a record
    content = np.memmap(path, np.uint8, mode="r", offset=256 * (n_signals + 1))
    records = content[: len(content) // starts[-1] * starts[-1]].reshape(-1, starts[-1])
    stated = int(header[236:244])  # -1 during recording
    cut_short = (f"{path.name!r} is cut short: it has {len(records)} of {stated} data records",) * (
        len(records) < stated
    )
    if not notes:
        return [], NO_RECORDS, cut_short
    events, onsets = list[Event](), list[float]()
    for record in records:
        lists = b"".join(record[starts[k] : starts[k + 1]].tobytes() for k in notes).split(b"\0")
        onsets.append(float(lists[0].partition(b"\x14")[0] or 0))  # the first time stamp belongs to the record
        for time, *names in (part.split(b"\x14") for part in lists if part):
            onset, _, duration = time.partition(b"\x15")
            texts = [name.decode("utf-8", "replace").strip() for name in names if name]
            events += [Event(float(onset) - onsets[0], float(duration or 0), text) for text in texts]
    has_gaps = header[192:197] in (b"EDF+D", b"BDF+D")
    return events, np.array(onsets) - onsets[0] if has_gaps else NO_RECORDS, cut_short


def _sample_times(onsets: Onsets, n_times: int, sfreq: float) -> tuple[Onsets, tuple[int, ...]]:
    """Return the seconds of all samples (n_times,) and the samples that follow a gap."""
    n = n_times // len(onsets)  # samples per record
    late = np.diff(onsets) - n / sfreq
    if n_times % len(onsets) or late.min(initial=0) < -0.5 / sfreq:
        raise UserError("data records (EDF+D) are cut short or overlap in time; store the recording as EDF+C")
    breaks = (np.flatnonzero(late > 0.5 / sfreq) + 1) * n
    return (onsets[:, None] + np.arange(n) / sfreq).ravel(), tuple(breaks.tolist())


def _annotations(raw: Any) -> Iterator[Event]:
    """Yield MNE's annotations as events."""
    notes = raw.annotations
    samples = raw.time_as_index(notes.onset, use_rounding=True, origin=notes.orig_time)
    for sample, duration, name in zip(samples, notes.duration, notes.description, strict=True):
        yield Event(float(sample) / float(raw.info["sfreq"]), float(duration), str(name).strip())


def _triggers(mne: Any, raw: Any, times: Onsets | None) -> Iterator[Event]:
    """Yield changes of trigger channels, named by their value; times (n_times,) of samples in seconds, if known."""
    if "stim" not in raw.get_channel_types():
        return
    for sample, _, code in mne.find_events(raw, shortest_event=1, initial_event=True):
        index = int(sample - raw.first_samp)
        yield Event(index / float(raw.info["sfreq"]) if times is None else float(times[index]), 0.0, str(int(code)))
