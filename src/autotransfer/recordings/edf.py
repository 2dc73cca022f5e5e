"""EDF, EDF+, BDF, GDF and MNE's own raw files through MNE: annotations and trigger channels are events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .cutting import Continuous, Cutting, Event
from .epochs import data_channels, quiet
from .optional import need

EARLY = "annotations begin before the recording, and windows that would begin there are left out:"
NO_CLASS = ("bad", "edge")  # annotations that begin so mark what is not to be used, as in MNE


def open_with_mne(path: Path, cutting: Cutting, options: dict[str, str]) -> Continuous:
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    mne = need("mne", f"reading {ending} files", "mne")
    with quiet(mne):
        recording = continuous_of(mne.io.read_raw(path, preload=False))
        if ending in (".edf", ".bdf"):
            recording.events, n_early = _from_their_onset(recording.events, mne, path)
            if n_early:
                recording.notes[EARLY] = n_early
        return recording


def continuous_of(raw: Any) -> Continuous:
    """Return the recording of any mne.io.Raw. Values stay in MNE's units, such as volts."""
    mne = need("mne", "reading recordings", "mne")
    picks = data_channels(raw.info)

    def read(start: int, stop: int) -> Any:
        with quiet(mne):
            return raw.get_data(picks=picks, start=start, stop=stop)

    events = [*_annotations(raw), *_triggers(mne, raw)]
    return Continuous(
        read=read,
        n_times=int(raw.n_times),
        channels=tuple(raw.ch_names[index] for index in picks),
        sfreq=float(raw.info["sfreq"]),
        events=[event for event in events if not event.name.lower().startswith(NO_CLASS)],
        bad=[event for event in events if event.name.lower().startswith(NO_CLASS)],
    )


def _annotations(raw: Any) -> Iterator[Event]:
    notes = raw.annotations
    samples = raw.time_as_index(notes.onset, use_rounding=True, origin=notes.orig_time)  # of the stored samples
    for sample, duration, name in zip(samples, notes.duration, notes.description, strict=True):
        yield Event(float(sample) / float(raw.info["sfreq"]), float(duration), str(name).strip())


def _from_their_onset(events: list[Event], mne: Any, path: Path) -> tuple[list[Event], int]:
    """Return events with their own onset, and how many of them begin before the recording: MNE moves such an onset
    to the first sample, where a window would hold the middle of the event."""
    if not any(event.onset == 0 and event.duration > 0 for event in events):
        return events, 0
    stated = mne.read_annotations(path)
    early: dict[str, list[Event]] = {}
    for onset, duration, name in zip(stated.onset, stated.duration, stated.description, strict=True):
        if onset < 0 < onset + duration:
            early.setdefault(str(name).strip(), []).append(Event(float(onset), float(duration), str(name).strip()))
    moved = [
        early[event.name].pop() if event.onset == 0 and event.duration > 0 and early.get(event.name) else event
        for event in events
    ]
    return moved, sum(event.onset < 0 for event in moved)


def _triggers(mne: Any, raw: Any) -> Iterator[Event]:
    """Yield changes of trigger channels, named by their value."""
    if "stim" not in raw.get_channel_types():
        return
    for sample, _, code in mne.find_events(raw, shortest_event=1, initial_event=True):
        yield Event(float(sample - raw.first_samp) / float(raw.info["sfreq"]), 0.0, str(int(code)))
