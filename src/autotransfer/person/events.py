"""Events: when probabilities of successive windows become an action, and how well actions match what happened.

A window votes for its likeliest class, unless that is the rest class or its probability lies below the threshold. A
class becomes active when n of the last m windows vote for it, and stays active until fewer do: a gesture that is held
is one activation. After its end no other class becomes active for the refractory time, and the same class continues
without a new activation. Streams use `EventDetector` window after window, and everything else here calls it, too.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, plain_value, shown
from ..recordings.cutting import Event

# Of curves. Good models are sure of their decisions, so high thresholds lie close together.
THRESHOLDS = (
    0.0, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.9925,
    0.995, 0.9975, 0.999,
)  # fmt: skip
MOST_WINDOWS = 10_000  # that votes are kept of
DEBOUNCE = "give N/M windows such as 3/5, more than half of them, or the seconds that a class must last, such as 0.4s"
ROUNDING = 1e-9  # s


class Activation(NamedTuple):
    """A class has become active."""

    time: float  # s: of the last sample of the window that did it
    label: Any  # one of the classes
    confidence: float  # the probability of the class in that window


class EventDetector:
    """From probabilities of successive windows to activations.

    Parameters
    ----------
    classes : sequence of length n_classes
        What the columns of the probabilities stand for, such as `session.classes_`.
    rest : one of the classes, optional
        The class that is no action. Without it every class is one.
    threshold : float
        The least probability of a window's vote.
    debounce : (int, int)
        (n, m): so many of the last m windows must vote for a class. n must be more than half of m, so that one class
        at most is active.
    refractory : float
        Seconds after the end of an activation in which no other class becomes active; the same one goes on.
    """

    def __init__(
        self,
        classes: Sequence[Any] | NDArray[Any],
        *,
        rest: object = None,
        threshold: float = 0.5,
        debounce: tuple[int, int] = (1, 1),
        refractory: float = 0.0,
    ) -> None:
        labels = classes.tolist() if isinstance(classes, np.ndarray) else classes
        if not isinstance(labels, (list, tuple)) or not labels or len(set(map(repr, labels))) < len(labels):
            raise UserError(f"classes are {shown(classes)}; give those of the model, each once, as a list")
        self.classes = [plain_value(label) for label in labels]
        self.rest = None if rest is None else _place(rest, self.classes)
        if rest is not None and len(self.classes) < 2:
            raise UserError("the rest class is the only one, so nothing can become active")
        self.threshold = _number("threshold", threshold, 0.0, 1.0)
        self.needed, self.windows = _checked_debounce(debounce)
        self.refractory = _number("refractory", refractory, 0.0, 1e6)
        self.reset()

    def reset(self) -> None:
        """The next window begins a recording."""
        self._votes: deque[int] = deque(maxlen=self.windows)
        self._active: int | None = None
        self._last: int | None = None  # the class that was active last
        self._ended = -math.inf  # when
        self._time = -math.inf  # of the last window

    def feed(self, probability: NDArray[np.float64], time: float, *, gap: bool = False) -> Activation | None:
        """The probabilities (n_classes,) of the next window, whose last sample came at `time` (s). gap: whether windows
        are missing before it, so that votes are counted anew. Where the time does not rise, another recording begins,
        as after `reset`."""
        p = _floats("probabilities of a window", probability)
        if p.shape != (len(self.classes),) or not np.isfinite(p).all() or p.min() < 0 or p.max() > 1 + 1e-6:
            raise UserError(f"probabilities of a window are {shown(p)}; give one from 0 to 1 for each class")
        if _floats("the time of a window", time).shape != () or not math.isfinite(time):
            raise UserError(f"the time of a window is {shown(time)}; give seconds")
        if time <= self._time:  # another recording begins
            self.reset()
        self._time = time
        likeliest = int(p.argmax())
        return self._vote(likeliest, float(p[likeliest]), time, gap)

    def _vote(self, likeliest: int, confidence: float, time: float, gap: bool) -> Activation | None:
        if gap:
            self._votes.clear()
        votes = likeliest != self.rest and confidence >= self.threshold
        self._votes.append(likeliest if votes else -1)
        if self._active is not None and self._votes.count(self._active) < self.needed:
            self._last, self._ended, self._active = self._active, time, None
        if not votes or self._active is not None or self._votes.count(likeliest) < self.needed:
            return None
        if time - self._ended < self.refractory - ROUNDING:
            self._active = likeliest if likeliest == self._last else None
            return None
        self._active = likeliest
        return Activation(time, self.classes[likeliest], confidence)

    def feed_all(
        self, probability: NDArray[np.float64], times: NDArray[np.float64], gaps: NDArray[np.bool_]
    ) -> list[Activation]:
        """The activations of a recording's windows (n, n_classes), from its beginning; times and gaps: (n,)."""
        activations, before = [], math.inf
        likeliest, confidence = probability.argmax(1).tolist(), probability.max(1).tolist()
        for label, sure, time, gap in zip(likeliest, confidence, times.tolist(), gaps.tolist(), strict=True):
            if time <= before:  # time stamps go back where another recording begins
                self.reset()
            if (activation := self._vote(label, sure, time, gap)) is not None:
                activations.append(activation)
            before = time
        return activations

    def at(self, threshold: float) -> EventDetector:
        """A new one with another threshold."""
        return EventDetector(
            self.classes, rest=None if self.rest is None else self.classes[self.rest], threshold=threshold,
            debounce=(self.needed, self.windows), refractory=self.refractory,
        )  # fmt: skip


def debounce_of(text: str, hop: float) -> tuple[int, int]:
    """From the command line: N/M windows, or SECONDSs, all windows for so long; hop: seconds between windows."""
    if match := re.fullmatch(r"(\d{1,6})/(\d{1,6})", text):
        return _checked_debounce((int(match[1]), int(match[2])))
    if match := re.fullmatch(r"(\d{1,6}(?:\.\d*)?|\.\d+)\s*s", text):
        windows = math.ceil(float(match[1]) / hop - ROUNDING) + 1
        return _checked_debounce((windows, windows))
    raise UserError(f"debounce is {shown(text)}; {DEBOUNCE}")


def _checked_debounce(debounce: object) -> tuple[int, int]:
    numbers = [plain_value(number) for number in debounce] if isinstance(debounce, (tuple, list)) else []
    if [type(number) for number in numbers] != [int, int]:
        raise UserError(f"debounce is {shown(debounce)}; give (n, m), such as (3, 5): three of the last five windows")
    needed, windows = numbers
    if not 1 <= needed <= windows <= MOST_WINDOWS or 2 * needed <= windows:
        raise UserError(f"debounce is {needed}/{windows}; {DEBOUNCE}")
    return needed, windows


def _number(name: str, value: object, least: float, most: float) -> float:
    number = plain_value(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not least <= number <= most:
        raise UserError(f"{name} is {shown(value)}; it must be a number from {least:g} to {most:g}")
    return float(number)


def _floats(name: str, values: object) -> NDArray[np.float64]:
    try:
        array = np.asarray(values)
        if array.dtype.kind in "biuf":
            return array.astype(np.float64)
    except (ValueError, TypeError, RuntimeError):  # such as lists of several lengths
        pass
    raise UserError(f"{name}: {shown(values)} are no numbers; give an array of numbers")


def check_false_per_hour(value: object) -> float:
    """False activations an hour, as a threshold can be chosen for them; UserError for what is no such number."""
    return _number("false_per_hour", value, 1e-6, 1e6)


def _place(rest: object, classes: Sequence[Any]) -> int:
    """Of the class itself, or of one that is written alike: a command line has only texts."""
    label = plain_value(rest)
    itself = [place for place, known in enumerate(classes) if type(known) is type(label) and known == label]
    written = [place for place, known in enumerate(classes) if str(known) == str(label)]
    if places := itself + written:
        return places[0]
    raise UserError(f"the rest class is {shown(label)}; choose from {', '.join(map(str, classes))}")


def detect_events(
    probability: object,
    times: object,
    classes: Sequence[Any] | NDArray[Any],
    *,
    rest: object = None,
    threshold: float = 0.5,
    debounce: tuple[int, int] = (1, 1),
    refractory: float = 0.0,
) -> list[Activation]:
    """Activations in the windows of one recording, as in a stream.

    Parameters
    ----------
    probability : array of shape (n_windows, n_classes)
        Of the windows in order, by a model or session.
    times : array of shape (n_windows,)
        Seconds at which each window ends, rising.
    classes, rest, threshold, debounce, refractory
        As in `EventDetector`.
    """
    detector = EventDetector(classes, rest=rest, threshold=threshold, debounce=debounce, refractory=refractory)
    p, t = _floats("probabilities", probability), _floats("times", times)
    if p.ndim != 2 or p.shape[1] != len(detector.classes) or t.shape != p.shape[:1]:
        raise UserError(
            f"probabilities have the shape {p.shape} and times {t.shape}; they must be (windows, "
            f"{len(detector.classes)} classes) and (windows,)"
        )
    if not (np.isfinite(p).all() and np.isfinite(t).all() and (np.diff(t) > 0).all()):
        raise UserError("probabilities or times are not finite, or times do not rise; give windows in order")
    return detector.feed_all(p, t, np.zeros(len(t), dtype=bool))


@dataclass(frozen=True)
class EventScores:
    """How activations match events. Scores of several recordings can be added."""

    events: int = 0
    detected: int = 0
    false: int = 0  # activations that are not the first of an event's class in it
    seconds: float = 0.0  # that were decoded
    delays: tuple[float, ...] = ()  # s from the onset of each detected event to its activation

    def __add__(self, other: Self) -> EventScores:
        return EventScores(*(getattr(self, of.name) + getattr(other, of.name) for of in fields(self)))

    @property
    def share_detected(self) -> float | None:
        """None where there were no events."""
        return self.detected / self.events if self.events else None

    @property
    def false_per_hour(self) -> float | None:
        """False activations in an hour of signal, with events or without; None where nothing was decoded."""
        return 3600 * self.false / self.seconds if self.seconds > 0 else None

    def delay(self, share: float = 0.5) -> float | None:
        """The quantile of the times to detection (s); the median by default."""
        return float(np.quantile(self.delays, share)) if self.delays else None

    def as_dict(self) -> dict[str, float | int | None]:
        """For JSON."""
        return {
            "events": self.events, "detected": self.detected, "share_detected": self.share_detected,
            "false_activations": self.false, "hours": self.seconds / 3600, "false_per_hour": self.false_per_hour,
            "seconds_to_detection": self.delay(), "seconds_to_detection_90": self.delay(0.9),
        }  # fmt: skip


def score_events(
    activations: Sequence[Activation],
    events: Sequence[tuple[float, float, Any]],
    *,
    seconds: float,
    tolerance: float = 0.0,
) -> EventScores:
    """How activations match the events of one recording.

    An event is detected by the first activation of its class from its onset to its end, or `tolerance` later. Every
    other activation is false: of another class, outside all events, or a second one in an event.

    Parameters
    ----------
    activations : list of Activation
        In the order of their times.
    events : list of (onset, duration, label)
        In seconds on the same clock.
    seconds : float
        How much signal was decoded, for the rate of false activations.
    tolerance : float
        Seconds; a window that ends a little after an event still holds its end.
    """
    _number("seconds", seconds, 0.0, math.inf)
    _number("tolerance", tolerance, 0.0, math.inf)
    for onset, duration, label in events:
        if not (math.isfinite(onset) and math.isfinite(duration) and duration >= 0):
            raise UserError(
                f"an event {shown(label)} begins at {shown(onset)} s and lasts {shown(duration)} s; give numbers, "
                "and a duration of at least 0"
            )
    left, delays = list(activations), []
    for onset, duration, label in sorted(events, key=lambda event: event[0]):
        until = onset + duration + tolerance + ROUNDING
        for place, activation in enumerate(left):
            if onset <= activation.time <= until and str(activation.label) == str(label):
                delays.append(activation.time - onset)
                del left[place]
                break
    return EventScores(len(events), len(delays), len(left), float(seconds), tuple(delays))


# ---- decoded recordings, with any threshold --------------------------------------------------------------------------


@dataclass(frozen=True)
class DecodedRecording:
    """Probabilities of one recording's windows, and its events.

    probability: (n, classes); times: (n,) s at which windows end; gaps: (n,) whether windows are missing before each
    events: without those of the rest class
    """

    probability: NDArray[np.float64]
    times: NDArray[np.float64]
    gaps: NDArray[np.bool_]
    events: tuple[Event, ...]
    hop: float  # s from one window to the next
    window: float  # s

    def activations(self, detector: EventDetector) -> list[Activation]:
        return detector.feed_all(self.probability, self.times, self.gaps)

    @property
    def seconds(self) -> float:
        """How much of the recording lies in its windows, which may overlap, or be apart."""
        steps = np.diff(self.times, prepend=-np.inf)
        return float(np.where(steps > 0, np.minimum(steps, self.window), self.window).sum())

    def scores(self, detector: EventDetector) -> EventScores:
        return score_events(self.activations(detector), self.events, seconds=self.seconds, tolerance=self.window)


def total_scores(recordings: Sequence[DecodedRecording], detector: EventDetector) -> EventScores:
    """Scores of all recordings together."""
    return sum((recording.scores(detector) for recording in recordings), EventScores())


def scores_by_threshold(
    recordings: Sequence[DecodedRecording], detector: EventDetector, thresholds: Sequence[float] = THRESHOLDS
) -> dict[float, EventScores]:
    """Scores of all recordings together, by threshold."""
    return {threshold: total_scores(recordings, detector.at(threshold)) for threshold in thresholds}


def threshold_for(false_per_hour: float, curves: Sequence[dict[float, EventScores]]) -> float:
    """The lowest threshold from which on the people of these curves had at most so many false activations an hour.

    One more false activation than was seen is counted: an hour without any does not show that the rate is below one an
    hour.
    """
    accepted = check_false_per_hour(false_per_hour)
    pooled = {threshold: sum((person[threshold] for person in curves), EventScores()) for threshold in curves[0]}
    lowest: float | None = None
    for threshold in sorted(pooled, reverse=True):
        scores = pooled[threshold]
        if (scores.false_per_hour or 0.0) * scores.seconds + 3600 > accepted * scores.seconds:
            break
        lowest = threshold
    if lowest is not None:
        return lowest
    best = pooled[max(pooled)]
    hours = best.seconds / 3600
    if hours * accepted < 1:
        raise UserError(
            f"{hours:.2g} h of other people cannot tell {accepted:g} false activations an hour from more; it takes "
            f"{1 / accepted:.2g} h at least: replay more recordings, or give a larger --false-per-hour"
        )
    raise UserError(
        f"no threshold leads to {accepted:g} false activations an hour: at {max(pooled):g} other people have "
        f"{best.false_per_hour:.2g}; debounce more, give a --rest class or a larger --false-per-hour"
    )


def events_between(
    events: Sequence[Event], mapping: dict[str, str] | None, classes: Sequence[Any], rest: object, end: float
) -> tuple[Event, ...]:
    """Events as classes of the model, each with a duration: without one it lasts until the next, or to the end.

    mapping: classes by names of events, where an empty class only ends the event before; None: events have the names of
    classes.
    """
    names = {str(label) for label in classes}
    known = {name: name for name in names} if mapping is None else mapping
    if wrong := sorted({label for label in known.values() if label} - names):
        raise UserError(f"events are of the class {wrong[0]!r}; the model has {', '.join(sorted(names))}")
    mapped = [event for event in sorted(events) if event.name in known]
    ends = [*(event.onset for event in mapped[1:]), end]
    lasting = []
    for event, after in zip(mapped, ends, strict=False):
        duration = event.duration if event.duration > 0 else max(0.0, after - event.onset)
        lasting.append(event._replace(name=known[event.name], duration=duration))
    return tuple(event for event in lasting if event.name and event.name != (None if rest is None else str(rest)))
