"""Concerns: what in recordings is probably a mistake, or will make scores mean something else. Said before any work."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import shown
from .chunks import row_chunks
from .labels import as_list, encode
from .raw import Array, Label, Raw
from .windows import window_array

FAR = 30.0  # times: the amplitudes of 262 people of thirteen sets lie within 3.4 times the median, units seldom do
TELLING = 0.15  # share of trials by which a group must tell the class better than by chance
SHUFFLES = 20
FEW = 2  # people whom a fold holds out
UNNAMED = re.compile(r"ch\d+")  # what channels are called that have no names


class Signals(NamedTuple):
    """What the values of X are like, by person and channel."""

    spread: NDArray[np.float64]  # (S, C) root mean variance of windows; NaN without finite windows
    constant: Array  # (S, C) bool: one value in all windows
    not_finite: Array  # (C,) int64: windows that hold NaN or infinite values

    @property
    def scales(self) -> NDArray[np.float64]:
        """(S,) the median over channels that vary; NaN without any."""
        spread = np.where((self.spread > 0) & ~self.constant, self.spread, np.nan)
        return np.array([np.nanmedian(row) if np.isfinite(row).any() else np.nan for row in spread])


def signals_of(X: Array | Tensor, person: NDArray[np.int64], n_people: int) -> Signals:
    """X (N, C, T), person (N,); one pass in chunks."""
    n_channels = X.shape[1]
    total, count = np.zeros((n_people, n_channels)), np.zeros((n_people, n_channels))
    low, high = np.full((n_people, n_channels), np.inf), np.full((n_people, n_channels), -np.inf)
    not_finite = np.zeros(n_channels, np.int64)
    for rows in row_chunks(X.shape[0], int(X.shape[1] * X.shape[2])):
        values = np.asarray(X[rows], dtype=np.float64)
        finite = np.asarray(np.isfinite(values).all(-1))  # (n, C)
        not_finite += (~finite).sum(0)
        values = np.where(finite[..., None], values, 0.0)
        who = person[rows]
        with np.errstate(over="ignore"):
            np.add.at(total, who, values.var(-1))
        np.add.at(count, who, finite)
        np.minimum.at(low, who, np.where(finite, values.min(-1), np.inf))
        np.maximum.at(high, who, np.where(finite, values.max(-1), -np.inf))
    with np.errstate(divide="ignore", invalid="ignore"):
        return Signals(np.sqrt(total / count), low == high, not_finite)


def typical_scale(X: Array | Tensor) -> float | None:
    """The median over channels of the windows' root mean variance; None where nothing varies."""
    scale = float(signals_of(X, np.zeros(X.shape[0], np.int64), 1).scales[0])
    return scale if math.isfinite(scale) and scale > 0 else None


def scale_concern(found: float | None, expected: float | None) -> str | None:
    """What to say of windows whose unit is probably another one than that of the model's recordings."""
    if found is None or expected is None or 1 / FAR < found / expected < FAR:
        return None
    return (
        f"the windows vary by {found:.2g}, those that the model was trained on by {expected:.2g}, a factor of about "
        f"{_times(found / expected)}: give them in the same unit"
    )


def concerns(raw: Raw) -> list[str]:
    """One line for each, the gravest first."""
    X = window_array(raw.X)
    n = int(X.shape[0])
    person, people = _codes(raw.subject, n, "subject", raw.subjects)
    label, classes = _codes(raw.y, n, "y", raw.classes)
    found: list[str | None] = [_axes(X, raw.channels)]
    if raw.subject is not None:
        found.append(_own_subjects(n, len(people)))
    if raw.subject is not None and raw.y is not None:
        counts = np.zeros((len(people), len(classes)), np.int64)
        np.add.at(counts, (person, label), 1)
        found += [*_lonely_classes(counts, people, classes), _one_class(counts, people)]
        found.append(_told_by_people(person, label))
        if raw.session is not None:
            session, _ = encode(as_list(raw.session, "session"), n, "session")
            found.append(_told_by_sessions(person, session.numpy(), label))
    names = _names(raw.channels, X.shape[1])
    found += _signal_concerns(signals_of(X, person, len(people)), n, people, names)
    return [line for line in found if line is not None]


def _codes(values: object, n: int, what: str, names: object) -> tuple[NDArray[np.int64], tuple[Label, ...]]:
    """(N,) and what they stand for; one for all where nothing is known."""
    if values is None:
        return np.zeros(n, np.int64), ("all",)
    codes, known = encode(values, n, what, names)
    return codes.numpy(), known


def _names(channels: object, n_channels: int) -> list[str]:
    return (
        [f"ch{c}" for c in range(n_channels)]
        if channels is None
        else [str(name) for name in as_list(channels, "channels")]
    )


def _axes(X: Array | Tensor, channels: object) -> str | None:
    names = _names(channels, X.shape[1])
    if X.shape[1] <= X.shape[2] or not all(UNNAMED.fullmatch(name) for name in names):
        return None
    return (
        f"X has {X.shape[1]} channels of {X.shape[2]} samples; if these are {X.shape[2]} channels of {X.shape[1]} "
        "samples, exchange the last two axes: X.transpose(0, 2, 1)"
    )


def _own_subjects(n_trials: int, n_people: int) -> str | None:
    if 2 * n_people <= n_trials:
        return None
    every = "every trial has a subject of its own" if n_people == n_trials else "most subjects have one trial"
    return f"{every} ({n_people} subjects, {n_trials} trials): subject must name the person, not the trial"


def _lonely_classes(counts: NDArray[np.int64], people: Sequence[Label], classes: Sequence[Label]) -> list[str]:
    """Classes that training people can lack."""
    lines = []
    for k, name in enumerate(classes):
        who = [str(people[s]) for s in np.flatnonzero(counts[:, k]).tolist()]
        if len(who) <= min(FEW, len(people) - 1):
            lines.append(
                f"class {shown(name)} occurs in {len(who)} of {len(people)} people only ({_listed(who)}): where they "
                "are held out, nobody teaches it"
            )
    return lines


def _one_class(counts: NDArray[np.int64], people: Sequence[Label]) -> str | None:
    left_out = [str(people[s]) for s in np.flatnonzero((counts > 0).sum(1) < 2).tolist()]
    if not left_out:
        return None
    who = "subject" if len(left_out) == 1 else "subjects"
    return (
        f"{len(left_out)} {who} with trials of one class ({_listed(left_out)}) cannot be scored: they train, but are "
        "in no mean"
    )


def _told_by_people(person: NDArray[np.int64], label: NDArray[np.int64]) -> str | None:
    found = _telling(person, label, np.zeros_like(person))
    return found and (
        f"who a trial is from tells the class of {found}: classes are confounded with people; a penalty that removes "
        "people removes classes with them, so prefer the mode conditional"
    )


def _told_by_sessions(person: NDArray[np.int64], session: NDArray[np.int64], label: NDArray[np.int64]) -> str | None:
    groups = person * (int(session.max()) + 1) + session
    found = _telling(groups, label, person)
    return found and (
        f"within people, the session of a trial tells the class of {found}: a model can learn what differs between "
        "sessions; record every class in every session"
    )


def _telling(groups: NDArray[np.int64], label: NDArray[np.int64], within: NDArray[np.int64]) -> str | None:
    """How many trials are right where each is given the most frequent class of its group, if that is more than with
    labels shuffled within `within`; all (N,)."""

    known, place = np.unique(groups, return_inverse=True)

    def right(y: NDArray[np.int64]) -> float:
        counts = np.zeros((len(known), int(label.max()) + 1), np.int64)
        np.add.at(counts, (place, y), 1)
        return float(counts.max(1).sum() / len(y))

    draw = np.random.default_rng(0)
    order = np.argsort(within, kind="stable")
    chance = []
    for _ in range(SHUFFLES):
        mixed = np.empty_like(label)
        mixed[order] = label[np.lexsort((draw.random(len(label)), within))]
        chance.append(right(mixed))
    found, expected = right(label), float(np.mean(chance))
    if found <= max(chance) or found - expected < TELLING:
        return None
    return f"{found:.0%} of the trials, where {expected:.0%} would be chance"


def _signal_concerns(signals: Signals, n_trials: int, people: Sequence[Label], names: Sequence[str]) -> Iterable[str]:
    bad = np.flatnonzero(signals.not_finite).tolist()
    if bad:
        most = int(signals.not_finite.max())
        channels = _listed([names[c] for c in bad])
        yield f"X has NaN or infinite values in {most} of {n_trials} trials ({channels}): drop or interpolate them"
    for c in np.flatnonzero(signals.constant.any(0)).tolist():
        who = np.flatnonzero(signals.constant[:, c]).tolist()
        whom = "everybody" if len(who) == len(people) else _listed([str(people[s]) for s in who])
        yield f"channel {shown(names[c])} never changes in {whom}: leave the channel or the people out"
    scales = signals.scales
    if np.isfinite(scales).sum() < 2:
        return
    middle = float(np.nanmedian(scales))
    for s in np.flatnonzero((scales > FAR * middle) | (scales * FAR < middle)).tolist():
        yield (
            f"the signals of {shown(people[s])} vary by {scales[s]:.2g}, those of others by {middle:.2g}, a factor of "
            f"about {_times(scales[s] / middle)}: give everybody's in the same unit"
        )


def _times(ratio: float) -> str:
    """A factor that is probably a power of ten, in one digit."""
    whole = float(f"{max(ratio, 1 / ratio):.1g}")
    return f"{whole:,.0f}" if ratio >= 1 else f"1/{whole:,.0f}"


def _listed(names: Sequence[str]) -> str:
    return shown(", ".join(names), 200)
