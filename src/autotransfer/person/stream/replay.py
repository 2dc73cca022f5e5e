"""Recordings with events, replayed as streams: which activations there would have been, and how they match events.

Samples go through the same filter, cutter, session, smoothing and detector as those of a live stream, faster than they
were recorded. Everybody has a session of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import UserError
from ...models.seen import Recognised, window_digests
from ...recordings.cutting import Event
from ...recordings.filters import Filter
from ...recordings.whole import WholeRecording
from ...words import count, printable
from ..events import (
    THRESHOLDS,
    Activation,
    DecodedRecording,
    EventDetector,
    EventScores,
    debounce_of,
    events_between,
    scores_by_threshold,
    threshold_for,
    total_scores,
)  # fmt: skip
from ..session import Session
from .run import Stream
from .source import StoredSource

SHORT = 600.0  # s of signal: below it false activations are counted, and no rate by the hour is printed


class RecordingSource(StoredSource):
    """A whole recording in the place of a stream."""

    def __init__(self, recording: WholeRecording) -> None:
        self.name, self.times, self.values = recording.name, recording.times, recording.values
        self.channels, self.n_channels = recording.channels, recording.values.shape[1]
        self.sfreq = recording.sfreq


class _Decisions:
    """A sink that keeps them."""

    def __init__(self) -> None:
        self.kept: list[tuple[float, int, NDArray[np.float64]]] = []

    def send(
        self, time: float, window: int, probability: NDArray[np.float64], activation: Activation | None = None
    ) -> None:
        self.kept.append((time, window, probability))

    def close(self) -> None:
        pass


def check_several(people: Collection[str]) -> None:
    """Raise where thresholds cannot be chosen on others."""
    if len(people) < 2:
        raise UserError(
            "a threshold is chosen on other people than the one who is replayed, and there is nobody else; "
            "replay recordings of several people, or give --threshold"
        )


@dataclass(frozen=True)
class ReplayReport:
    """How well the events of replayed recordings were detected, as text and as JSON."""

    detector: EventDetector
    false_per_hour: float | None  # that were asked for
    threshold: float  # for a new person
    thresholds: dict[str, float]  # of each person, chosen without them where it was chosen
    scores: dict[str, EventScores]
    curve: dict[float, EventScores]  # of all people together
    activations: dict[str, list[list[Activation]]]  # of each person and recording
    hop: float  # s
    recognised: Recognised  # decoded windows that the model has seen
    smoothed: bool
    alone: bool  # whether every recording is a single window

    @classmethod
    def of(
        cls,
        people: dict[str, list[DecodedRecording]],
        detector: EventDetector,
        recognised: Recognised,
        false_per_hour: float | None,
        *,
        smoothed: bool,
    ) -> Self:
        """Score people by the detector's threshold, or by thresholds for so many false activations an hour, each
        person's chosen on the others."""
        curves = {name: scores_by_threshold(recordings, detector) for name, recordings in people.items()}
        chosen, everybody = dict.fromkeys(people, detector.threshold), detector.threshold
        if false_per_hour is not None:
            check_several(people)
            for name in people:
                others = [points for other, points in curves.items() if other != name]
                chosen[name] = threshold_for(false_per_hour, others)
            everybody = threshold_for(false_per_hour, list(curves.values()))
        detectors = {name: detector.at(threshold) for name, threshold in chosen.items()}
        every = [recording for recordings in people.values() for recording in recordings]
        return cls(
            detector=detector, false_per_hour=false_per_hour, threshold=everybody, thresholds=chosen,
            scores={name: total_scores(recordings, detectors[name]) for name, recordings in people.items()},
            curve={t: sum((points[t] for points in curves.values()), EventScores()) for t in THRESHOLDS},
            activations={
                name: [recording.activations(detectors[name]) for recording in recordings]
                for name, recordings in people.items()
            },
            hop=every[0].hop, recognised=recognised, smoothed=smoothed,
            alone=all(len(recording.times) < 2 for recording in every),
        )  # fmt: skip

    @property
    def all(self) -> EventScores:
        return sum(self.scores.values(), EventScores())

    @property
    def _long(self) -> bool:
        """Whether a rate by the hour says something: of some seconds, the number of false activations says more."""
        return self.all.seconds >= SHORT

    def lines(self) -> Iterator[str]:
        everybody, detector = self.all, self.detector
        rest = "no rest class" if detector.rest is None else f"rest class {detector.classes[detector.rest]}"
        lasted = f"{everybody.seconds / 3600:.3g} h" if self._long else f"{everybody.seconds:.0f} s"
        every = "one of each recording" if self.alone else f"every {self.hop:g} s"
        yield (
            f"replayed {count(len(self.scores), 'person', 'people')}, {lasted}, "
            f"{count(everybody.events, 'event')}; {rest}, {detector.needed} of {detector.windows} windows ({every}), "
            f"refractory time {detector.refractory:g} s"
        )
        if self.alone and (self.smoothed or detector.needed > 1):
            yield (
                "every recording is a single window, and a replay begins anew with each: nothing is smoothed, and no "
                "class gets two votes; replay recordings that are not cut"
            )
        false = "false/h" if self._long else "false"
        head = ["person", "threshold", "events", "detected", false, "s to detection", "90 % within (s)"]
        cells = partial(_cells, by_hour=self._long)
        rows = [[printable(name), f"{self.thresholds[name]:g}", *cells(scores)] for name, scores in self.scores.items()]
        yield from _table([head, *rows, [f"all {len(rows)} together", "", *cells(everybody)]])
        yield ""
        points = [[f"{threshold:g}", *cells(scores)[1:]] for threshold, scores in self.curve.items()]
        yield from _table([["threshold", *head[3:]], *points])
        if self.false_per_hour is not None:
            yield ""
            yield (
                f"everybody's threshold was chosen on the others, for at most {self.false_per_hour:g} false "
                f"activations an hour; for a new person: --threshold {self.threshold:g}"
            )

    def warnings(self) -> list[str]:
        """What the model has seen of these people, and what that means for a threshold that is chosen on them."""
        warnings = self.recognised.words()
        if warnings and self.false_per_hour is not None:
            warnings.append(
                f"the threshold {self.threshold:g} was chosen on them too, and new people may have more false "
                "activations with it; choose it on people whom the model has not seen"
            )
        return warnings

    def json(self) -> str:
        detector = self.detector
        rest = None if detector.rest is None else str(detector.classes[detector.rest])
        return json.dumps(
            {
                "rest": rest, "debounce": [detector.needed, detector.windows], "refractory": detector.refractory,
                "hop": self.hop, "false_per_hour_asked": self.false_per_hour, "threshold": self.threshold,
                "seen": self.recognised.as_dict(), "all": self.all.as_dict(),
                "people": {
                    name: scores.as_dict() | {
                        "threshold": self.thresholds[name],
                        "activations": [
                            [[time, str(label), confidence] for time, label, confidence in recording]
                            for recording in self.activations[name]
                        ],
                    }
                    for name, scores in self.scores.items()
                },
                "curve": [{"threshold": t} | scores.as_dict() for t, scores in self.curve.items()],
            },
            indent=1,
        )  # fmt: skip


def _cells(scores: EventScores, *, by_hour: bool) -> list[str]:
    """events, detected, false activations, by the hour or as many as there were, seconds to detection."""
    rate = scores.false_per_hour
    false = str(scores.false) if not by_hour else "–" if rate is None else f"{rate:.2f}"
    detected, *delays = (
        "–" if value is None else f"{value:.2f}" for value in (scores.share_detected, scores.delay(), scores.delay(0.9))
    )
    return [str(scores.events), detected, false, *delays]


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join([first.strip().ljust(widths[0]), *others])


def replay(
    recordings: Sequence[WholeRecording],
    begin: Callable[[], Session],
    *,
    events: dict[str, str] | None = None,
    rest: str | None = None,
    threshold: float = 0.5,
    debounce: str = "1/1",
    refractory: float = 0.0,
    false_per_hour: float | None = None,
    tell: Callable[[str], None] = lambda line: None,
    hop: float | None = None,
    smooth: str | None = None,
    filtered: Filter | None = None,
    by_position: bool = False,
) -> ReplayReport:
    """Decode recordings as streams, each person's in order with a session that `begin` opens.

    events: classes by names of events, None where events have the names of classes; rest, threshold, debounce,
    refractory: see `EventDetector` and `debounce_of`; false_per_hour: see `ReplayReport.of`; all others as in `Stream`.
    """
    people: dict[str, list[DecodedRecording]] = {}
    sessions: dict[str, Session] = {}
    digests: list[bytes] = []  # of decoded windows
    whose: list[str] = []
    detector: EventDetector | None = None
    for recording in recordings:
        if recording.subject not in sessions:
            sessions[recording.subject] = begin()
        session = sessions[recording.subject]
        windows: list[NDArray[np.float32]] = []
        stream = Stream(
            session, RecordingSource(recording), hop=hop, smooth=smooth, filtered=filtered, by_position=by_position,
            tell=tell, watch=windows.append,
        )  # fmt: skip
        classes = session.classes_.tolist()
        if detector is None:
            detector = EventDetector(
                classes,
                rest=rest,
                threshold=threshold,
                debounce=debounce_of(debounce, stream.hop),
                refractory=refractory,
            )
        end = float(recording.times[-1]) + 1 / stream.sfreq
        happened = events_between(recording.events, events, classes, rest, end)
        people.setdefault(recording.subject, []).append(_decoded(stream, happened))
        if windows and len(recording.times) == windows[0].shape[1]:  # cut already: known as it is in the file
            windows = [stream.columns.of(recording.values).T]
        digests += [digest for window in windows for digest in window_digests(torch.from_numpy(window)[None])]
        whose += [recording.subject] * len(windows)
    decoded = [recording for of_person in people.values() for recording in of_person]
    if detector is None or not any(len(recording.times) for recording in decoded):
        raise UserError("no recording holds a whole window of the model; replay longer ones")
    if not any(recording.events for recording in decoded):
        names = sorted({event.name for recording in recordings for event in recording.events})
        raise UserError(
            f"the recordings have no events of the model's classes {', '.join(map(str, detector.classes))}; they have "
            f"{', '.join(names[:8]) or 'none'}: say which is which, --events NAME=CLASS,..."
        )
    recognised = Recognised.of(session.model.card.seen, recordings[0].study, digests, whose if any(whose) else None)
    return ReplayReport.of(people, detector, recognised, false_per_hour, smoothed=smooth not in (None, "none"))


def _decoded(stream: Stream, events: tuple[Event, ...]) -> DecodedRecording:
    sink = _Decisions()
    stream.run(sink)
    times, numbers, probabilities = zip(*sink.kept, strict=True) if sink.kept else ((), (), ())
    return DecodedRecording(
        probability=np.array(probabilities, dtype=np.float64).reshape(-1, len(stream.session.classes_)),
        times=np.array(times, dtype=np.float64),
        gaps=np.diff(np.array(numbers, dtype=np.int64), prepend=-1) != 1,
        events=events, hop=stream.hop, window=stream.window,
    )  # fmt: skip
