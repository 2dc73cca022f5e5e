"""Overview: what recordings hold, before anything is trained: counts, concerns, and a window of each class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..words import count, printable
from .concerns import concerns
from .container import check_sfreq, measurement_in
from .labels import as_list, encode
from .raw import Array, Label, Raw
from .unlabelled import without_unlabelled
from .windows import names_or_numbers, window_array

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 60  # characters of a picture
MOST_PEOPLE = 40  # rows that the terminal shows
MOST_LETTERS = 80  # of a list of names
UNKNOWN = "unknown"
FEWEST_PEOPLE = 6  # whose scores can tell a gain from chance


@dataclass(frozen=True, eq=False)
class Picture:
    """One window of a class."""

    label: str
    person: str
    window: NDArray[np.float64]  # (C, T)


@dataclass(frozen=True, eq=False)
class Overview:
    name: str
    n_trials: int
    n_times: int
    sfreq: float | None  # Hz
    channels: tuple[str, ...]
    classes: tuple[str, ...]
    people: tuple[str, ...]
    counts: NDArray[np.int64]  # (S, K) trials
    sessions: tuple[int, ...] | None  # (S,) how many each person has
    columns: tuple[str, ...]
    notes: tuple[str, ...]  # what a reader decided
    concerns: tuple[str, ...]
    missing: tuple[str, ...]  # what to do about labels that there are not
    pictures: tuple[Picture, ...]

    @property
    def window(self) -> str:
        seconds = "" if self.sfreq is None else f" ({self.n_times / self.sfreq:.3g} s at {self.sfreq:g} Hz)"
        return f"{self.n_times} samples{seconds}"

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield what there is and how much, as rows of two columns."""
        yield "windows", f"{self.n_trials} of {self.window}"
        yield "sampling rate", UNKNOWN if self.sfreq is None else f"{self.sfreq:g} Hz"
        yield "channels", f"{len(self.channels)}: {_some(self.channels)}"
        counts = [f"{name} {n}" for name, n in zip(self.classes, self.counts.sum(0).tolist(), strict=False)]
        yield "classes", ", ".join(counts) or UNKNOWN
        few = " (too few to tell a gain from chance)" if len(self.people) < FEWEST_PEOPLE else ""
        yield "people", UNKNOWN if not self.people else f"{len(self.people)}{few}"
        if self.sessions is not None:
            low, high = min(self.sessions), max(self.sessions)
            yield "sessions", f"{low if low == high else f'{low} to {high}'} per person"
        if self.columns:
            yield "columns", _some(self.columns)

    def lines(self) -> Iterator[str]:
        """Yield lines for a terminal."""
        yield self.name
        for what, value in self.facts():
            yield f"  {what:<14} {value}"
        yield from self._table()
        yield from self._pictures()
        yield ""
        yield from self.notes
        for line in (*self.missing, *self.concerns):
            yield f"! {line}"
        if not self.missing and not self.concerns:
            yield "nothing looks wrong"

    def _table(self) -> Iterator[str]:
        """Yield the trials of each person and class."""
        if not self.people or not self.classes:
            return
        heads = [_short(name, 12) for name in self.classes]
        rows = [["person", *heads]]
        rows += [[_short(who, 20), *map(str, row)] for who, row in zip(self.people, self.counts.tolist(), strict=True)]
        wide = max(len(row[0]) for row in rows)
        widths = [max(len(head), 5) for head in heads]
        yield ""
        for name, *cells in rows[: MOST_PEOPLE + 1]:
            counts = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
            yield f"  {name:<{wide}}  " + "  ".join(counts)
        if len(self.people) > MOST_PEOPLE:
            yield f"  … and {len(self.people) - MOST_PEOPLE} more"

    def _pictures(self) -> Iterator[str]:
        channel = self.loudest
        wide = max(len(_short(picture.label, 20)) for picture in self.pictures)
        yield ""
        yield f"  one window of each class, channel {printable(self.channels[channel])}"
        bars = sparklines([picture.window[channel] for picture in self.pictures])
        for picture, line in zip(self.pictures, bars, strict=True):
            yield f"  {_short(picture.label, 20):<{wide}}  {line}  person {picture.person}"

    @property
    def loudest(self) -> int:
        """The channel that varies most in the pictures."""
        spread = [np.nan_to_num(picture.window).std(1) for picture in self.pictures]
        return int(np.argmax(np.max(spread, axis=0)))


def overview(raw: Raw) -> Overview:
    """The overview of what a reader returned, with or without labels. A y of measurements counts as no classes."""
    raw = replace(raw, X=window_array(raw.X))
    if numbers := _measurements(raw):
        raw = replace(raw, y=None)
    lines = concerns(raw)
    raw, _ = without_unlabelled(raw)
    X = raw.X
    n, n_channels, n_times = (int(size) for size in X.shape)
    label, classes = (None, ()) if raw.y is None else encode(raw.y, n, "y", raw.classes)
    person, people = (None, ()) if raw.subject is None else encode(raw.subject, n, "subject", raw.subjects)
    y = np.zeros(n, np.int64) if label is None else label.numpy()
    who = np.zeros(n, np.int64) if person is None else person.numpy()
    counts = np.zeros((max(1, len(people)), max(1, len(classes))), np.int64)
    np.add.at(counts, (who, y), 1)
    sessions = None
    if raw.session is not None:
        owners = Counter(s for s, _ in set(zip(who.tolist(), as_list(raw.session, "session"), strict=True)))
        sessions = tuple(owners[s] for s in range(len(counts)))
    missing = [numbers] if numbers else []
    for what, known in (("y", raw.y if numbers is None else numbers), ("subject", raw.subject)):
        if known is None:
            called = "classes" if what == "y" else "people"
            missing.append(f"no {called} are known; to train, {raw.hints.get(what, f'{what} must give one per trial')}")
    return Overview(
        name=raw.name,
        n_trials=n,
        n_times=n_times,
        sfreq=check_sfreq(raw.sfreq),
        channels=tuple(names_or_numbers(raw.channels, n_channels)),
        classes=tuple(map(str, classes)),
        people=tuple(map(str, people)),
        counts=counts,
        sessions=sessions,
        columns=tuple(map(str, getattr(raw.columns, "keys", tuple)())),
        notes=raw.notes,
        concerns=(*_too_few(raw, len(people), len(classes)), *lines),
        missing=tuple(missing),
        pictures=tuple(_pictures(X, y, who, counts, classes or (UNKNOWN,), people or (UNKNOWN,))),
    )


def _measurements(raw: Raw) -> str | None:
    """Say so if y holds measurements."""
    if raw.y is None or raw.classes is not None:
        return None
    labelled, _ = without_unlabelled(raw)
    _, labels = encode(labelled.y, int(labelled.X.shape[0]), "y")
    if measurement_in(labels) is None:
        return None
    return (
        f"y holds {len(labels)} different numbers: measurements, and no classes; to predict them: autotransfer run "
        "--target continuous"
    )


def _too_few(raw: Raw, people: int, classes: int) -> Iterator[str]:
    if raw.subject is not None and people < 3:
        yield f"{count(people, 'person', 'people')}: to train, at least 3 are needed"
    if raw.y is not None and classes < 2:
        yield "one class: to train, at least 2 are needed"


def _pictures(
    X: Array | Tensor,
    y: NDArray[np.int64],
    who: NDArray[np.int64],
    counts: NDArray[np.int64],
    classes: Sequence[Label],
    people: Sequence[Label],
) -> Iterator[Picture]:
    """A window of every class, of one person where one has them all: the middle one, past the start of a session."""
    best = int(np.argmax((counts > 0).sum(1)))
    for k, name in enumerate(classes):
        rows = np.flatnonzero((y == k) & (who == best))
        rows = rows if len(rows) else np.flatnonzero(y == k)
        row = int(rows[len(rows) // 2])
        yield Picture(str(name), str(people[int(who[row])]), np.asarray(X[row], dtype=np.float64))


def sparklines(signals: list[NDArray[np.float64]]) -> list[str]:
    """Signals (T,) as bars on one scale. Each bar is the sample of its stretch that lies farthest from the middle."""
    finite = np.concatenate([signal[np.isfinite(signal)] for signal in signals])
    if not len(finite):
        return ["?" * WIDTH for _ in signals]
    low, high, middle = float(finite.min()), float(finite.max()), float(np.median(finite))
    return [_bars(signal, low, high, middle) for signal in signals]


def _bars(signal: NDArray[np.float64], low: float, high: float, middle: float) -> str:
    text = ""
    for part in np.array_split(signal, min(WIDTH, len(signal))):
        value = part[np.argmax(np.abs(part - middle))]
        level = 0.5 if high == low else (value - low) / (high - low)
        text += BARS[min(int(level * len(BARS)), len(BARS) - 1)] if np.isfinite(level) else "?"
    return text


def _some(names: tuple[str, ...]) -> str:
    return printable(_short(", ".join(names), MOST_LETTERS))


def _short(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
