"""Concerns: probable mistakes in recordings, and what makes scores misleading. Reported before any work."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import shown
from .artefacts import Artefacts, artefacts_of
from .chunks import window_chunks
from .container import check_sfreq
from .copies import shapes, shared_samples, stretches
from .labels import alike_warning, encode
from .raw import Array, Label, Raw
from .unlabelled import unlabelled_warning, without_unlabelled
from .windows import axes_concern, names_or_numbers, window_array

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FAR = 30.0  # times: the amplitudes of 262 people of thirteen sets lie within 3.4 times the median, units seldom do
TELLING = 0.15  # share of trials by which a group must tell the class better than by chance
SHUFFLES = 20
MOST_PAIRS = 3  # of people who share samples, that are named
FEWEST_TO_COMPARE = 5  # people: with fewer, no channel counts as unusual
FEW_LEVELS = 6  # of floats, which may be classes whatever they are
FEW = 2  # people whom a fold holds out
CLIPPED = 0.05  # share of samples at the end of a device's range: the 428 people of 21 sets stay below
CLEAN = "or run with --clean"  # what cleaning.py mends, too
FLAT = 0.5  # share of windows in which a channel does not change
NOTHING = "nothing changes in {:.0%} of the windows"
HUM = 0.5  # share of a channel's power at the frequency of the mains
SAME = 0.5  # share of windows with another person's samples, from which two people are one recording
UNKNOWN_RATE = (
    "the sampling rate is unknown: networks filter over 64 samples, however long these last, and neither mains hum nor "
    "the rate of a stream can be checked; give it, --sfreq 200 (sfreq in meta, sfreq=200)"
)


class Signals(NamedTuple):
    """What the values of X are like, by person and channel."""

    spread: Floats  # (S, C) root mean variance of windows; NaN without finite windows
    low: Floats  # (S, C) the smallest value; infinite without finite windows
    high: Floats  # (S, C)
    not_finite: Array  # (C,) int64: windows that hold NaN or infinite values

    @property
    def constant(self) -> Array:
        """(S, C) bool: one value in all windows."""
        return np.asarray(self.low == self.high)

    @property
    def varying(self) -> Floats:
        """(S, C) the spread of channels that vary; NaN for others."""
        return np.where((self.spread > 0) & ~self.constant, self.spread, np.nan)

    @property
    def scales(self) -> Floats:
        """(S,) the median over channels that vary; NaN without any."""
        return np.array([np.nanmedian(row) if np.isfinite(row).any() else np.nan for row in self.varying])


def signals_of(X: Array | Tensor, person: Ints, n_people: int) -> Signals:
    """X (N, C, T), person (N,); one pass in chunks."""
    n_channels = X.shape[1]
    total, count = np.zeros((n_people, n_channels)), np.zeros((n_people, n_channels))
    low, high = np.full((n_people, n_channels), np.inf), np.full((n_people, n_channels), -np.inf)
    not_finite = np.zeros(n_channels, np.int64)
    for rows in window_chunks(X):
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
        return Signals(np.sqrt(total / count), low, high, not_finite)


def typical_scale(X: Array | Tensor) -> float | None:
    """The median over channels of the windows' root mean variance; None where nothing varies."""
    scale = float(signals_of(X, np.zeros(X.shape[0], np.int64), 1).scales[0])
    return scale if math.isfinite(scale) and scale > 0 else None


def concerns(raw: Raw) -> list[str]:
    """A line for each concern, the gravest first; without those of which Recordings have already warned."""
    X = window_array(raw.X)
    whole = int(X.shape[0])
    raw, missing = without_unlabelled(replace(raw, X=X))
    X, n = raw.X, whole - missing
    person, people = codes_of(raw.subject, n, "subject", raw.subjects)
    label, classes = codes_of(raw.y, n, "y", raw.classes)
    names = names_or_numbers(raw.channels, X.shape[1])
    lines: list[str | None] = []
    if not raw.checked:
        lines.append(axes_concern(tuple(X.shape), tuple(names)))
        lines.append(unlabelled_warning(missing, whole))
        lines.append(UNKNOWN_RATE if raw.sfreq is None else None)
        lines += [alike_warning(people, "people"), alike_warning(classes, "classes")]
    lines.append(_class_minus_one(classes))
    if raw.subject is not None:
        lines.append(_too_many_subjects(n, len(people)))
    if raw.subject is not None and raw.y is not None:
        counts = np.zeros((len(people), len(classes)), np.int64)
        np.add.at(counts, (person, label), 1)
        lines += [*_rare_classes(counts, people, classes), _one_class(counts, people)]
        lines.append(_other_classes(counts, people, classes))
        lines.append(_may_be_measured(classes))
        lines.append(_confounded(person, label, np.zeros_like(person), OF_PEOPLE))
        if raw.session is not None:
            lines.append(_confounded(_sessions(person, raw.session), label, person, OF_SESSIONS))
    if raw.subject is not None:
        lines += _copy_concerns(X, person, people, raw.session)
    signals = signals_of(X, person, len(people))
    lines += _signal_concerns(signals, n, people, names)
    artefacts = artefacts_of(X, person, signals.low, signals.high, check_sfreq(raw.sfreq))
    lines += _artefact_concerns(signals, artefacts, people, names)
    return [line for line in lines if line is not None]


def codes_of(values: object, n: int, what: str, names: object) -> tuple[Ints, tuple[Label, ...]]:
    """Codes (N,) of labels, and the labels; where none are known, one label for all."""
    if values is None:
        return np.zeros(n, np.int64), ("all",)
    codes, labels = encode(values, n, what, names)
    return codes.numpy(), labels


def _class_minus_one(classes: Sequence[Label]) -> str | None:
    """-1 is a class like any other, unless it stands beside numbers that count from 0."""
    others = [label for label in classes if label != -1]
    counting = len(others) > 1 and all(type(label) is int for label in others) and min(others) in (0, 1)
    if len(others) == len(classes) or not counting:
        return None
    return (
        "class -1 is trained like the others; if it marks windows without a label, give None, NaN or empty text, which "
        "are left out"
    )


def _may_be_measured(classes: Sequence[Label]) -> str | None:
    """Several floats that do not count on, such as 0.0, 20.0, 40.0 … may be levels of a force, and no classes."""
    numbers = [label for label in classes if isinstance(label, float)]
    if len(numbers) < len(classes) or len(numbers) <= FEW_LEVELS or max(numbers) - min(numbers) == len(numbers) - 1:
        return None
    return (
        f"y holds {len(numbers)} different numbers from {min(numbers):g} to {max(numbers):g}, which are taken for "
        "classes; to predict them as numbers: autotransfer run --target continuous"
    )


def _too_many_subjects(n_trials: int, n_people: int) -> str | None:
    if 2 * n_people <= n_trials:
        return None
    every = "every trial has a subject of its own" if n_people == n_trials else "most subjects have one trial"
    return f"{every} ({n_people} subjects, {n_trials} trials): subject must name the person, not the trial"


def _rare_classes(counts: Ints, people: Sequence[Label], classes: Sequence[Label]) -> list[str]:
    """Classes that training people can lack."""
    lines = []
    for k, name in enumerate(classes):
        who = [str(people[s]) for s in np.flatnonzero(counts[:, k]).tolist()]
        if len(who) <= min(FEW, len(people) - 1):
            lines.append(
                f"class {shown(name)} occurs in {len(who)} of {len(people)} people only ({listed(who)}): when "
                f"{'that person is' if len(who) == 1 else 'they are'} held out, no training window of it is left"
            )
    return lines


def _one_class(counts: Ints, people: Sequence[Label]) -> str | None:
    left_out = [str(people[s]) for s in np.flatnonzero((counts > 0).sum(1) < 2).tolist()]
    if not left_out:
        return None
    who = "subject" if len(left_out) == 1 else "subjects"
    return (
        f"{len(left_out)} {who} with trials of one class ({listed(left_out)}) cannot be scored: they train, but are "
        "in no mean"
    )


def _other_classes(counts: Ints, people: Sequence[Label], classes: Sequence[Label]) -> str | None:
    """People who lack some of the classes that most have; people with one class have their own concern."""
    usual = (counts > 0).sum(0) > FEW
    lacking = (counts == 0) & usual & ((counts > 0).sum(1) > 1)[:, None]
    who = np.flatnonzero(lacking.any(1)).tolist()
    if not who:
        return None
    k = int(np.argmax(lacking.sum(0)))
    without = [str(people[s]) for s in np.flatnonzero(lacking[:, k]).tolist()]
    return (
        f"{len(who)} of {len(people)} people {'lack' if len(who) > 1 else 'lacks'} classes that others have (most "
        f"often {shown(classes[k])}: {listed(without)}): they train, and are scored on the classes that they have"
    )


def _copy_concerns(X: Array | Tensor, person: Ints, people: Sequence[Label], session: object) -> Iterable[str]:
    """Samples that two people, or two sessions of a person, have in common."""
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
    if len(between) > MOST_PAIRS:
        yield f"{len(between) - MOST_PAIRS} further pairs of people share samples"
    told = {(pair.first, pair.second) for pair in between}
    scaled = [p for p in shared_samples(shapes(X), person) if p.share >= SAME and (p.first, p.second) not in told]
    for pair in scaled[:MOST_PAIRS]:
        yield (
            f"{shown(people[pair.first])} and {shown(people[pair.second])} are one recording in two units or with two "
            f"offsets, by {pair.share:.0%} of the windows of one of them, so that who is tested has trained; leave one "
            "of them out"
        )
    if session is None or between:
        return
    groups = _sessions(person, session)
    if pairs := shared_samples(samples, groups, person):
        owner = dict(zip(groups.tolist(), person.tolist(), strict=True))
        whose = sorted({str(people[owner[pair.first]]) for pair in pairs})
        yield (
            f"windows of different sessions share samples in {len(whose)} of {len(people)} people "
            f"({listed(whose)}; {sum(pair.windows for pair in pairs)} windows): scores of new sessions would be too "
            "good; cut windows that do not overlap between sessions"
        )


def _artefact_concerns(
    signals: Signals, artefacts: Artefacts, people: Sequence[Label], names: Sequence[str]
) -> Iterable[str]:
    """Channels with artefacts; those that never change have their own concern."""
    for share, least, what, remedy in (
        (artefacts.flat, FLAT, NOTHING, f"leave people or channels out, {CLEAN}"),
        (artefacts.clipped, CLIPPED, "{:.0%} of the samples are clipped", "record with less gain, or leave them out"),
        (artefacts.mains, HUM, "{:.0%} of the power is mains hum", "filter it out, with a notch at 50 or 60 Hz"),
    ):  # fmt: skip
        share = np.where(signals.constant, 0.0, np.nan_to_num(share))
        where = np.argwhere(share > least)
        if not len(where):
            continue
        s, c = divmod(int(np.argmax(share)), share.shape[1])
        worst = "" if len(where) == 1 else f" ({shown(names[c])} of {shown(people[s])})"
        channels, whose = _where(where, people, names)
        if what is NOTHING and (share[share > least] == 1).all():
            verb = "change" if channels.startswith(("channels", "some")) else "changes"
            yield f"{channels} never {verb}, in {whose}, while a window lasts; {remedy}"
        else:
            yield f"{channels} of {whose}: {what.format(share[s, c])}{worst}; {remedy}"
    spread = signals.varying
    if np.isfinite(spread).all(1).sum() < FEWEST_TO_COMPARE or spread.shape[1] < 2:
        return
    usual = spread / np.nanmedian(spread, 0)
    usual /= np.nanmedian(usual, 1)[:, None]  # a person's own scale has its own concern
    for s, c in np.argwhere((usual > FAR) | (usual * FAR < 1)).tolist():
        yield (
            f"channel {shown(names[c])} of {shown(people[s])} varies {times(usual[s, c])} times as much as in others, "
            "measured by the person's other channels: look at it, and leave it or the person out"
        )


def _where(places: Ints, people: Sequence[Label], names: Sequence[str]) -> tuple[str, str]:
    """places (n, 2) person and channel: which channels and whose, as "channel 'ch1'" and "all 8 people"."""
    who, which = (np.unique(places[:, axis]).tolist() for axis in (0, 1))
    each = "" if len(places) == len(who) * len(which) else "some of the "
    channels = f"{each}{'channels' if len(which) > 1 else 'channel'} {listed([names[c] for c in which])}"
    if len(who) == 1:
        return channels, shown(people[who[0]])
    if len(who) == len(people):
        return channels, f"all {len(who)} people"
    return channels, f"{len(who)} of {len(people)} people ({listed([str(people[s]) for s in who])})"


OF_PEOPLE = (
    "who a trial is from tells the class of {}: classes are confounded with people; a penalty that removes people "
    "removes classes with them, so prefer the mode conditional"
)
OF_SESSIONS = (
    "within people, the session of a trial tells the class of {}: a model can learn what differs between sessions; "
    "record every class in every session"
)


def _sessions(person: Ints, session: object) -> Ints:
    """(N,) a number for each session of each person."""
    code: Ints = encode(session, len(person), "session")[0].numpy()
    return person * (int(code.max()) + 1) + code


def _confounded(groups: Ints, label: Ints, within: Ints, words: str) -> str | None:
    """words: with the share of trials that have the most frequent class of their group; None unless it clearly exceeds
    the share with labels shuffled within `within`. groups, label, within: (N,)."""

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
    return words.format(f"{share:.0%} of the trials, where {expected:.0%} would be chance")


def _signal_concerns(signals: Signals, n_trials: int, people: Sequence[Label], names: Sequence[str]) -> Iterable[str]:
    bad = np.flatnonzero(signals.not_finite).tolist()
    if bad:
        most = int(signals.not_finite.max())
        channels = listed([names[c] for c in bad])
        where = f"in {most} of {n_trials} trials ({channels})"
        yield f"X has NaN or infinite values {where}: drop or interpolate them, {CLEAN}"
    for c in np.flatnonzero(signals.constant.any(0)).tolist():
        who = [str(person) for person, constant in zip(people, signals.constant[:, c], strict=True) if constant]
        where, what = f" in {listed(who)}", "the channel or the people"
        if len(who) == len(people) > 1:
            where, what = f", in all {len(who)} people", "the channel"
        yield f"channel {shown(names[c])} never changes{where}: leave {what} out, {CLEAN}"
    scales = signals.scales
    if np.isfinite(scales).sum() < 2:
        return
    middle = float(np.nanmedian(scales))
    for s in np.flatnonzero((scales > FAR * middle) | (scales * FAR < middle)).tolist():
        yield (
            f"the signals of {shown(people[s])} vary by {scales[s]:.2g}, those of others by {middle:.2g}, a factor of "
            f"about {times(scales[s] / middle)}: give everybody's in the same unit"
        )


def times(ratio: float) -> str:
    """A factor that is probably a power of ten, in one digit."""
    factor = max(ratio, 1 / ratio)
    text = f"{float(f'{factor:.1g}'):,.0f}" if factor < 1e9 else f"{factor:.0e}"
    return text if ratio >= 1 else f"1/{text}"


def listed(names: Sequence[str]) -> str:
    return shown(", ".join(names), 200)
