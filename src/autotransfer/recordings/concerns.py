"""Concerns: probable mistakes in recordings, and what makes scores misleading. Reported before any work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ..errors import shown
from .copies import shared_samples, stretches
from .labels import encode, without_unlabeled
from .raw import Array, Label, Raw
from .signals import Ints, clipped_share, signals_of
from .windows import as_window_array, channel_names

FAR = 30.0  # times: the amplitudes of 262 people of thirteen sets lie within 3.4 times the median, units seldom do
TELLING = 0.15  # share of trials by which a group must tell the class better than by chance
SHUFFLES = 20
MOST_PAIRS = 3  # of people who share samples, that are named
FEW = 2  # people whom a fold holds out
CLIPPED = 0.05  # share of samples at the end of a device's range: the 428 people of 21 sets stay below
FLAT = 0.5  # share of windows in which a channel does not change
SAME = 0.5  # share of windows with another person's samples, from which two people are one recording
CLEAN = "or run with --clean"  # what cleaning.py mends, too
UNKNOWN_RATE = (
    "the sampling rate is unknown: networks filter over 64 samples, however long these last, and the rate "
    "of a stream cannot be checked; give it, --sfreq 200 (sfreq in meta, sfreq=200)"
)


class Study(NamedTuple):
    """The windows of a reader that have a label, and codes of their labels."""

    raw: Raw
    X: Array | Tensor  # (N, C, T)
    person: Ints  # (N,)
    people: tuple[Label, ...]
    label: Ints  # (N,)
    classes: tuple[Label, ...]
    counts: Ints  # (people, classes)
    channels: tuple[str, ...]
    unlabeled: int  # windows that are left out

    @classmethod
    def from_raw(cls, raw: Raw) -> Study:
        raw, unlabeled = without_unlabeled(replace(raw, X=as_window_array(raw.X)))
        n, n_channels = int(raw.X.shape[0]), int(raw.X.shape[1])
        person, people = encode_optional(raw.subject, n, "subject", raw.subjects)
        label, classes = encode_optional(raw.y, n, "y", raw.classes)
        counts = np.zeros((len(people), len(classes)), np.int64)
        np.add.at(counts, (person, label), 1)
        names = channel_names(raw.channels, n_channels)
        return cls(raw, raw.X, person, people, label, classes, counts, names, unlabeled)


def concerns(study: Study) -> list[str]:
    """Return a line for each concern, the gravest first, without those of which Recordings warn."""
    lines: list[str] = []
    if study.raw.subject is not None:
        n_people, n = len(study.people), len(study.X)
        if 2 * n_people > n:
            every = "every trial has a subject of its own" if n_people == n else "most subjects have one trial"
            lines.append(f"{every} ({n_people} subjects, {n} trials): subject must name the person, not the trial")
        if study.raw.y is not None:
            lines += _class_concerns(study)
        lines += _copy_concerns(study)
    return [*lines, *_signal_concerns(study)]


def encode_optional(values: object, n: int, what: str, names: object) -> tuple[Ints, tuple[Label, ...]]:
    """Return codes (N,) of labels, and the labels; if none are known, one label for all."""
    if values is None:
        return np.zeros(n, np.int64), ("all",)
    codes, labels = encode(values, n, what, names)
    return codes.numpy(), labels


def _class_concerns(study: Study) -> Iterator[str]:
    """Yield classes that training people can lack, people who cannot be scored, and confounded classes."""
    person, people, label, classes, counts = study[2:7]
    session = study.raw.session
    for k, name in enumerate(classes):
        who = [str(people[s]) for s in np.flatnonzero(counts[:, k]).tolist()]
        if len(who) <= min(FEW, len(people) - 1):
            yield (
                f"class {shown(name)} occurs in {len(who)} of {len(people)} people only ({_listed(who)}): when these "
                "are held out, no training window of it is left"
            )
    one_class = [str(people[s]) for s in np.flatnonzero((counts > 0).sum(1) < 2).tolist()]
    if one_class:
        yield (
            f"{len(one_class)} of {len(people)} people have trials of one class ({_listed(one_class)}) and cannot be "
            "scored: they train, but are in no mean"
        )
    if share := _confounded(person, label, np.zeros_like(person)):
        yield (
            f"who a trial is from tells the class of {share}: classes are confounded with people; a penalty that "
            "removes people removes classes with them, so prefer the mode conditional"
        )
    if session is not None and (share := _confounded(_sessions(person, session), label, person)):
        yield (
            f"within people, the session of a trial tells the class of {share}: a model can learn what differs between "
            "sessions; record every class in every session"
        )


def _sessions(person: Ints, session: object) -> Ints:
    """Return a number for each session of each person, (N,)."""
    code: Ints = encode(session, len(person), "session")[0].numpy()
    return person * (int(code.max()) + 1) + code


def _confounded(groups: Ints, label: Ints, within: Ints) -> str | None:
    """Return the share of trials that have the most frequent class of their group; None unless it clearly exceeds the
    share with labels shuffled within `within`. groups, label, within: (N,)."""
    known, place = np.unique(groups, return_inverse=True)

    def right(y: Ints) -> float:
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
    share, expected = right(label), float(np.mean(chance))
    if share <= max(chance) or share - expected < TELLING:
        return None
    return f"{share:.0%} of the trials, where {expected:.0%} would be chance"


def _copy_concerns(study: Study) -> Iterator[str]:
    """Yield samples that two people, or two sessions of a person, have in common."""
    X, person, people = study[1:4]
    session = study.raw.session
    samples = stretches(X)
    between = shared_samples(samples, person)
    for pair in between[:MOST_PAIRS]:
        first, second = shown(people[pair.first]), shown(people[pair.second])
        if pair.share >= SAME:
            yield (
                f"{first} and {second} are one recording: {pair.share:.0%} of the windows of one of them have the "
                f"other's samples, so that who is tested has trained; leave one of them out, {CLEAN}"
            )
        else:
            yield (
                f"{first} and {second} share samples in {pair.windows} of their windows: who is tested has trained in "
                "part; find out whose they are"
            )
    if session is None or between:
        return
    groups = _sessions(person, session)
    if pairs := shared_samples(samples, groups, person):
        owner = dict(zip(groups.tolist(), person.tolist(), strict=True))
        whose = sorted({str(people[owner[pair.first]]) for pair in pairs})
        yield (
            f"windows of different sessions share samples in {len(whose)} of {len(people)} people ({_listed(whose)}): "
            "scores of new sessions would be too good; cut windows that do not overlap between sessions"
        )


def _signal_concerns(study: Study) -> Iterator[str]:
    X, person, people, names = *study[1:4], study.channels
    signals = signals_of(X, person, len(people))
    bad = np.flatnonzero(signals.not_finite).tolist()
    if bad:
        where = f"in {int(signals.not_finite.max())} of {X.shape[0]} trials ({_listed([names[c] for c in bad])})"
        yield f"X has NaN or infinite values {where}: drop or interpolate them, {CLEAN}"
    scales = signals.scales
    middle = float(np.nanmedian(scales)) if np.isfinite(scales).sum() > 1 else math.nan
    for s in np.flatnonzero((scales > FAR * middle) | (scales * FAR < middle)).tolist():
        yield (
            f"the signals of {shown(people[s])} vary by {scales[s]:.2g}, those of others by {middle:.2g}, a factor of "
            f"about {times(scales[s] / middle)}: give everybody's in the same unit"
        )
    clipped = clipped_share(X, person, signals)
    for share, least, what in (
        (signals.flat, FLAT, f"nothing changes in {{:.0%}} of the windows; leave people or channels out, {CLEAN}"),
        (clipped, CLIPPED, "{:.0%} of the samples are clipped; record with less gain, or leave them out"),
    ):
        known = np.nan_to_num(share)
        places = np.argwhere(known > least)
        if len(places):
            s, c = divmod(int(np.argmax(known)), known.shape[1])
            more = f" (the worst of {len(places)} in {len(np.unique(places[:, 0]))} people)" if len(places) > 1 else ""
            yield f"channel {shown(names[c])} of {shown(people[s])}{more}: {what.format(known[s, c])}"


def compare_with_training(
    X: Array | Tensor, channels: Sequence[str], scale: float | None, subject: object = None
) -> list[str]:
    """Return a line for people whose unit is probably not that of the training windows, and one for channels that never
    change in anybody.

    X: (N, C, T) in the model's order of channels, with their names. scale: `typical_scale` of the training windows, if
    it is known. subject (N,): whose each window is, None: one person's.
    """
    person, people = encode_optional(subject, X.shape[0], "subject", None)
    signals = signals_of(X, person, len(people))
    constant = np.flatnonzero(signals.constant.all(0)).tolist()
    if len(constant) == len(channels):
        return ["nothing changes in any of these windows: is the device connected?"]
    lines = []
    if constant:
        which = f"channel{'s' * (len(constant) > 1)} {_listed([channels[c] for c in constant])}"
        lines.append(
            f"{which}, which the model reads, never change{'s' * (len(constant) == 1)}: look at the electrodes"
        )
    scales = {who: s for who, s in zip(people, signals.scales, strict=True) if math.isfinite(s)}
    far = {} if scale is None else {who: s for who, s in scales.items() if not 1 / FAR < s / scale < FAR}
    if far and scale is not None:
        whose = "" if len(far) == len(people) else f" of {shown(next(iter(far)))}"
        more = f" and {len(far) - 1} more" if whose and len(far) > 1 else ""
        spread = next(iter(far.values()))
        lines.append(
            f"the windows{whose}{more} vary by {spread:.2g}, those that the model was trained on by {scale:.2g}, a "
            f"factor of about {times(spread / scale)}: give them in the same unit"
        )
    return lines


def times(ratio: float) -> str:
    """Write a factor, which is probably a power of ten, in one digit."""
    return f"{float(f'{max(ratio, 1 / ratio):.1g}'):,.0f}"


def _listed(names: Sequence[str]) -> str:
    return shown(", ".join(names), 200)
