"""Replay of recordings with events as streams, faster than in real time, and scores of the detected events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import UserError
from ...models.overlap import describe_overlap, window_digests
from ...recordings.sources import WholeRecording
from ...words import count, printable
from ..events import Activation, EventDetector, EventScores, map_events, parse_debounce, score_events
from ..session import Session
from .run import Stream
from .source import StoredSource


class RecordingSource(StoredSource):
    """Source of the samples of a whole recording."""

    def __init__(self, recording: WholeRecording) -> None:
        self.name, self.times, self.values = recording.name, recording.times, recording.values
        self.signal = recording.signal


class _DecisionRecorder:
    """Sink that stores activations and the end times of windows."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.activations: list[Activation] = []

    def send(
        self, time: float, window: int, probability: NDArray[np.float64], activation: Activation | None = None
    ) -> None:
        self.times.append(time)
        if activation is not None:
            self.activations.append(activation)

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class ReplayReport:
    """Scores of detected events in replayed recordings, as text and as JSON."""

    detector: EventDetector
    scores: dict[str, EventScores]  # by subject
    activations: dict[str, list[list[Activation]]]  # by subject and recording
    hop: float  # s
    seen: list[str]  # warnings if the model was trained on decoded windows

    @property
    def all(self) -> EventScores:
        return sum(self.scores.values(), EventScores())

    def lines(self) -> Iterator[str]:
        detector = self.detector
        rest = "no rest class" if detector.rest is None else f"rest class {detector.classes[detector.rest]}"
        yield (
            f"replayed {count(len(self.scores), 'subject')}; {rest}, threshold {detector.threshold:g}, "
            f"{detector.needed} of {detector.windows} windows (every {self.hop:g} s), "
            f"refractory time {detector.refractory:g} s"
        )
        rows = [["subject", "hours", "events", "detected", "false", "false/h", "s to detection"]]
        rows += [[printable(name), *_list_cells(scores)] for name, scores in self.scores.items()]
        rows += [[f"all {len(self.scores)} subjects", *_list_cells(self.all)]]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for first, *others in rows:
            cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
            yield "  ".join([first.ljust(widths[0]), *cells])

    def json(self) -> str:
        detector = self.detector
        rest = None if detector.rest is None else str(detector.classes[detector.rest])
        subjects = {}
        for name, scores in self.scores.items():
            activations = [
                [[time, str(label), confidence] for time, label, confidence in recording]
                for recording in self.activations[name]
            ]
            subjects[name] = scores.as_dict() | {"activations": activations}
        values = {
            "rest": rest,
            "threshold": detector.threshold,
            "debounce": [detector.needed, detector.windows],
            "refractory": detector.refractory,
            "hop": self.hop,
            "seen": self.seen,
            "all": self.all.as_dict(),
            "subjects": subjects,
        }
        return json.dumps(values, indent=1)


def _list_cells(scores: EventScores) -> list[str]:
    """Return hours, events, share detected, false activations, false activations per hour and seconds to detection."""
    detected, rate, delay = (
        "–" if value is None else f"{value:.2f}"
        for value in (scores.share_detected, scores.false_per_hour, scores.delay())
    )
    return [f"{scores.seconds / 3600:.3g}", str(scores.events), detected, str(scores.false), rate, delay]


def count_decoded_seconds(times: Sequence[float], window: float) -> float:
    """Return the duration covered by windows of `window` seconds with these end times; windows may overlap."""
    steps = np.diff(times, prepend=-np.inf)
    return float(np.where(steps > 0, np.minimum(steps, window), window).sum())


def replay(
    recordings: Sequence[WholeRecording],
    begin: Callable[[], Session],
    *,
    events: dict[str, str] | None = None,  # class by event name; None: event names are classes
    rest: str | None = None,  # this and the next three: options of EventDetector
    threshold: float = 0.5,
    debounce: str = "1/1",
    refractory: float = 0.0,
    **options: Any,  # options of Stream
) -> ReplayReport:
    """Decode recordings as streams. All recordings of a subject share one session, which `begin` opens."""
    scores: dict[str, EventScores] = {}
    activations: dict[str, list[list[Activation]]] = {}
    sessions: dict[str, Session] = {}
    digests: list[bytes] = []  # digests of decoded windows
    window_subjects: list[str] = []  # subjects of decoded windows
    for recording in recordings:
        subject = recording.subject
        if subject not in sessions:
            sessions[subject], scores[subject], activations[subject] = begin(), EventScores(), []
        windows: list[NDArray[np.float32]] = []
        stream = Stream(sessions[subject], RecordingSource(recording), on_window=windows.append, **options)
        classes = stream.session.classes_.tolist()
        stream.detector = detector = EventDetector(
            classes,
            rest=rest,
            threshold=threshold,
            debounce=parse_debounce(debounce, stream.hop),
            refractory=refractory,
        )
        decisions = _DecisionRecorder()
        stream.run(decisions)
        end = float(recording.times[-1]) + 1 / stream.sfreq
        mapped = map_events(recording.events, events, classes, rest, end)
        seconds = count_decoded_seconds(decisions.times, stream.window)
        activations[subject].append(decisions.activations)
        scores[subject] += score_events(decisions.activations, mapped, seconds=seconds, tolerance=stream.window)
        digests += [digest for window in windows for digest in window_digests(torch.from_numpy(window)[None])]
        window_subjects += [subject] * len(windows)
    if not digests:
        raise UserError("no recording contains a whole window of the model; replay longer recordings")
    if not any(subject_scores.events for subject_scores in scores.values()):
        names = sorted({event.name for recording in recordings for event in recording.events})
        raise UserError(
            f"no event is of a class of the model ({', '.join(map(str, classes))}); the recordings have "
            f"{', '.join(names[:8]) or 'none'}. Map them with --events NAME=CLASS,..."
        )
    seen = describe_overlap(stream.session.model.card.seen, digests, window_subjects)
    return ReplayReport(detector, scores, activations, stream.hop, seen)
