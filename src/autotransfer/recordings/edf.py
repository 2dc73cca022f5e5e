"""EDF, EDF+, BDF, GDF and MNE's own raw files through MNE: annotations and trigger channels are events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .cutting import Continuous, Cutting, Event
from .epochs import data_channels, quiet
from .optional import need

EARLY = "annotations begin before the recording, and windows that would begin there are left out"
NO_CLASS = ("bad", "edge")  # annotations that begin so mark what is not to be used, as in MNE


def open_with_mne(path: Path, cutting: Cutting, options: dict[str, str]) -> Continuous:
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    mne = need("mne", f"reading {ending} files", "mne")
    with quiet(mne):
        raw = mne.io.read_raw(path, preload=False)
        # Annotations of the file keep an onset before the recording. Those of `raw` begin at the first sample, where a
        # window would hold the middle of the event.
        return continuous_of(raw, mne.read_annotations(path) if ending in (".edf", ".bdf") else None)


def continuous_of(raw: Any, notes: Any = None) -> Continuous:
    """Return the recording of any mne.io.Raw in MNE's units. notes: in place of its own annotations."""
    mne = need("mne", "reading recordings", "mne")
    picks = data_channels(raw.info)

    def read(start: int, stop: int) -> Any:
        with quiet(mne):
            return raw.get_data(picks=picks, start=start, stop=stop)

    events = [*_annotations(raw, raw.annotations if notes is None else notes), *_triggers(mne, raw)]
    is_early = any(event.onset < 0 < event.onset + event.duration for event in events)
    return Continuous(
        read=read,
        n_times=int(raw.n_times),
        channels=tuple(raw.ch_names[index] for index in picks),
        sfreq=float(raw.info["sfreq"]),
        events=[event for event in events if not event.name.lower().startswith(NO_CLASS)],
        bad=[event for event in events if event.name.lower().startswith(NO_CLASS)],
        notes=(EARLY,) * is_early,
    )


def _annotations(raw: Any, notes: Any) -> Iterator[Event]:
    samples = raw.time_as_index(notes.onset, use_rounding=True, origin=notes.orig_time)  # of the stored samples
    for sample, duration, name in zip(samples, notes.duration, notes.description, strict=True):
        yield Event(float(sample) / float(raw.info["sfreq"]), float(duration), str(name).strip())


def _triggers(mne: Any, raw: Any) -> Iterator[Event]:
    """Yield changes of trigger channels, named by their value."""
    if "stim" not in raw.get_channel_types():
        return
    for sample, _, code in mne.find_events(raw, shortest_event=1, initial_event=True):
        yield Event(float(sample - raw.first_samp) / float(raw.info["sfreq"]), 0.0, str(int(code)))
