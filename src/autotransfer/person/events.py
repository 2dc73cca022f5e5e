"""Events: activations of classes in the probabilities of successive windows, and their scores.

A window votes for its most probable class, unless that is the rest class or its probability is below the threshold. A
class becomes active when n of the last m windows vote for it, and stays active until fewer than n of them do, so that a
held gesture is one activation. During the refractory time after an activation no other class can become active, and the
same class continues without a new activation.
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

MAX_WINDOWS = 10_000  # maximum m of a debounce rule
DEBOUNCE = "give N/M with N more than half of M, such as 3/5, or the seconds that a class must last, such as 0.4s"
ROUNDING = 1e-9  # s


class Activation(NamedTuple):
    """Time at which a class becomes active."""

    time: float  # s, of the last sample of the window
    label: Any  # one of the classes
    confidence: float  # probability of the class in that window


class EventDetector:
    """Detector of activations in the probabilities of successive windows.

    Parameters
    ----------
    classes : sequence
        Classes in the order of the columns of the probabilities, such as `session.classes_`.
    rest : class, optional
        The class without action; by default every class is an action.
    threshold : float
        Minimum probability for a window to vote.
    debounce : (int, int)
        (n, m): n of the last m windows must vote for a class. n must be more than half of m, so that at most one class
        is active.
    refractory : float
        Seconds after the end of an activation in which no other class can become active.
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
            raise UserError(f"classes are {shown(classes)}; give a list of the model's classes, each once")
        self.classes = [plain_value(label) for label in labels]
        self.rest = None if rest is None else _find_class(rest, self.classes)
        if rest is not None and len(self.classes) < 2:
            raise UserError("the rest class is the only class, so nothing can become active; give more classes")
        self.threshold = _check_number("threshold", threshold, 0.0, 1.0)
        self.needed, self.windows = _check_debounce(debounce)
        self.refractory = _check_number("refractory", refractory, 0.0, 1e6)
        self.reset()

    def reset(self) -> None:
        """Start a new recording with the next window."""
        self._votes: deque[int] = deque(maxlen=self.windows)
        self._active: int | None = None
        self._last: int | None = None  # last active class
        self._ended = -math.inf  # end of the last activation
        self._time = -math.inf  # time of the last window

    def feed(self, probability: NDArray[np.float64], time: float, *, gap: bool = False) -> Activation | None:
        """Take the probabilities (n_classes,) of the next window; return an activation if a class becomes active.

        time: time of the last sample in seconds; if it does not increase, a new recording starts. gap: whether windows
        are missing before this one, so that earlier votes are dropped.
        """
        p = _convert_to_floats("probabilities of a window", probability)
        if p.shape != (len(self.classes),) or not np.isfinite(p).all() or p.min() < 0 or p.max() > 1 + 1e-6:
            raise UserError(f"probabilities of a window are {shown(p)}; give a number from 0 to 1 for each class")
        if _convert_to_floats("the time of a window", time).shape != () or not math.isfinite(time):
            raise UserError(f"the time of a window is {shown(time)}; give seconds")
        if time <= self._time:
            self.reset()
        self._time = time
        predicted = int(p.argmax())
        confidence = float(p[predicted])
        if gap:
            self._votes.clear()
        votes = predicted != self.rest and confidence >= self.threshold
        self._votes.append(predicted if votes else -1)
        if self._active is not None and self._votes.count(self._active) < self.needed:
            self._last, self._ended, self._active = self._active, time, None
        if not votes or self._active is not None or self._votes.count(predicted) < self.needed:
            return None
        if time - self._ended < self.refractory - ROUNDING:
            self._active = predicted if predicted == self._last else None
            return None
        self._active = predicted
        return Activation(time, self.classes[predicted], confidence)


def parse_debounce(text: str, hop: float) -> tuple[int, int]:
    """Parse "3/5", three of five windows, or "0.4s", all windows within 0.4 seconds. hop: seconds between windows."""
    if match := re.fullmatch(r"(\d{1,6})/(\d{1,6})", text):
        return _check_debounce((int(match[1]), int(match[2])))
    if match := re.fullmatch(r"(\d{1,6}(?:\.\d*)?|\.\d+)\s*s", text):
        windows = math.ceil(float(match[1]) / hop - ROUNDING) + 1
        return _check_debounce((windows, windows))
    raise UserError(f"debounce is {shown(text)}; {DEBOUNCE}")


def _check_debounce(debounce: object) -> tuple[int, int]:
    numbers = [plain_value(number) for number in debounce] if isinstance(debounce, (tuple, list)) else []
    if [type(number) for number in numbers] != [int, int]:
        raise UserError(f"debounce is {shown(debounce)}; give (n, m), such as (3, 5): three of the last five windows")
    needed, windows = numbers
    if not 1 <= needed <= windows <= MAX_WINDOWS or 2 * needed <= windows:
        raise UserError(f"debounce is {needed}/{windows}; {DEBOUNCE}")
    return needed, windows


def _check_number(name: str, value: object, least: float, most: float) -> float:
    number = plain_value(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not least <= number <= most:
        raise UserError(f"{name} is {shown(value)}; give a number from {least:g} to {most:g}")
    return float(number)


def _convert_to_floats(name: str, values: object) -> NDArray[np.float64]:
    try:
        array = np.asarray(values)
        if array.dtype.kind in "biuf":
            return array.astype(np.float64)
    except (ValueError, TypeError, RuntimeError):  # such as lists of different lengths
        pass
    raise UserError(f"{name} is {shown(values)}; give an array of numbers")


def _find_class(rest: object, classes: Sequence[Any]) -> int:
    """Return the index of the rest class, or of a class with the same text, because command lines contain only text."""
    label = plain_value(rest)
    equal = [index for index, known in enumerate(classes) if type(known) is type(label) and known == label]
    same_text = [index for index, known in enumerate(classes) if str(known) == str(label)]
    if indices := equal + same_text:
        return indices[0]
    raise UserError(f"the rest class is {shown(label)}; choose from {', '.join(map(str, classes))}")


@dataclass(frozen=True)
class EventScores:
    """Scores of activations against events. Scores of several recordings can be added."""

    events: int = 0
    detected: int = 0
    false: int = 0  # activations that detect no event
    seconds: float = 0.0  # duration of decoded signal
    delays: tuple[float, ...] = ()  # s from onset to activation, of each detected event

    def __add__(self, other: Self) -> EventScores:
        return EventScores(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    @property
    def share_detected(self) -> float | None:
        """Return the share of events that were detected; None if there were no events."""
        return self.detected / self.events if self.events else None

    @property
    def false_per_hour(self) -> float | None:
        """Return the false activations per hour of signal; None if no signal was decoded."""
        return 3600 * self.false / self.seconds if self.seconds > 0 else None

    def delay(self, share: float = 0.5) -> float | None:
        """Return a quantile of the seconds to detection, by default the median; None if no event was detected."""
        return float(np.quantile(self.delays, share)) if self.delays else None

    def as_dict(self) -> dict[str, float | int | None]:
        """Return the scores for a JSON file."""
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
    """Score the activations of one recording against its events (onset, duration, label), in seconds on the same clock.

    An event is detected by the first activation of its class from its onset to `tolerance` seconds after its end. Every
    other activation is false: of another class, outside all events, or a second one in an event. `seconds`: duration of
    the decoded signal, for the rate of false activations.
    """
    unmatched, delays = list(activations), []
    for onset, duration, label in sorted(events, key=lambda event: event[0]):
        until = onset + duration + tolerance + ROUNDING
        for index, activation in enumerate(unmatched):
            if onset <= activation.time <= until and str(activation.label) == str(label):
                delays.append(activation.time - onset)
                del unmatched[index]
                break
    return EventScores(len(events), len(delays), len(unmatched), float(seconds), tuple(delays))


def map_events(
    events: Sequence[Event], mapping: dict[str, str] | None, classes: Sequence[Any], rest: object, end: float
) -> tuple[Event, ...]:
    """Return events named by classes of the model, with durations, by default up to the next event or the end.

    mapping: class by event name, where an empty class only ends the event before it; None: event names are classes
    """
    names = {str(label) for label in classes}
    known = {name: name for name in names} if mapping is None else mapping
    if wrong := sorted({label for label in known.values() if label} - names):
        raise UserError(f"events are mapped to the class {wrong[0]!r}; choose from {', '.join(sorted(names))}")
    mapped = [event for event in sorted(events) if event.name in known]
    ends = [*(event.onset for event in mapped[1:]), end]
    renamed = []
    for event, after in zip(mapped, ends, strict=False):
        duration = event.duration if event.duration > 0 else max(0.0, after - event.onset)
        renamed.append(event._replace(name=known[event.name], duration=duration))
    return tuple(event for event in renamed if event.name and event.name != (None if rest is None else str(rest)))
