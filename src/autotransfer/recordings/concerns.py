"""Concerns: probable mistakes in recordings, and properties that make scores misleading, found before training."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ..errors import shown
from ..words import count, shorten
from .copies import find_near_copies, find_shared_windows
from .labels import encode, without_unlabeled
from .raw import Array, Label, Raw
from .signal import channel_names, list_names, simplify_name
from .statistics import Floats, Ints, find_isolated_values, signal_statistics
from .windows import as_window_array

UNIT_RATIO = 30.0  # ratio of amplitudes in two units; each of 262 subjects is within 3.4 times the median of its set
MIN_CONFOUNDING = 0.15  # adjusted mutual information of groups and classes; below .1 in 29 of 30 data sets
MOST_PAIRS = 3  # pairs of subjects that are named
HELD_OUT = 2  # subjects that a fold holds out
FLAT = 0.5  # share of windows in which a channel is constant
SAME = 0.5  # two subjects count as one recording if they share at least this share of the windows of one
HYPHENS = re.compile("[-\u2010-\u2015]")
CLEAN = "or run with --clean"
LOST = "if this value marks lost samples, write NaN in its place and run with --clean"
UNKNOWN_RATE = (
    "the sampling rate is unknown, so the rate of a stream cannot be checked; give it, for example --sfreq 200 on the "
    "command line, `sfreq` in the meta of an .npz file, or sfreq=200 in Python"
)


class Study(NamedTuple):
    """Windows that have a label, with codes of their labels."""

    raw: Raw
    X: Array | Tensor  # (N, C, T)
    subject: Ints  # (N,)
    subjects: tuple[Label, ...]
    label: Ints  # (N,)
    classes: tuple[Label, ...]
    counts: Ints  # (subjects, classes)
    channels: tuple[str, ...]
    unlabeled: int  # number of windows without a label, which are left out

    @classmethod
    def from_raw(cls, raw: Raw) -> Study:
        raw, unlabeled = without_unlabeled(replace(raw, X=as_window_array(raw.X)))
        n, n_channels = int(raw.X.shape[0]), int(raw.X.shape[1])
        subject, subjects = encode_optional(raw.subject, n, "subject", raw.subjects)
        label, classes = encode_optional(raw.y, n, "y", raw.classes)
        counts = np.zeros((len(subjects), len(classes)), np.int64)
        np.add.at(counts, (subject, label), 1)
        names = channel_names(raw.channels, n_channels)
        return cls(raw, raw.X, subject, subjects, label, classes, counts, names, unlabeled)


def find_concerns(study: Study) -> list[str]:
    """Return a line for each concern, the most serious first, except those that `Recordings` warns of."""
    lines: list[str] = []
    if study.raw.subject is not None:
        lines += _name_concerns(study)
        if study.raw.y is not None:
            lines += _class_concerns(study)
        lines += _copy_concerns(study)
    return [*lines, *_signal_concerns(study)]


def encode_optional(values: object, n: int, what: str, names: object) -> tuple[Ints, tuple[Label, ...]]:
    """Return codes (N,) of labels, and the labels; all windows get the label "all" if `values` is None."""
    if values is None:
        return np.zeros(n, np.int64), ("all",)
    codes, labels = encode(values, n, what, names)
    return codes.numpy(), labels


def _name_concerns(study: Study) -> Iterator[str]:
    """Yield a line about subjects, and one about classes, whose names hardly differ."""
    for what, names in (("subjects", study.subjects), ("classes", study.classes)):
        spellings: dict[str, list[Label]] = {}
        for name in names:
            if isinstance(name, str):
                spellings.setdefault(simplify_name(HYPHENS.sub("_", name)), []).append(name)
        similar = [" and ".join(map(shown, group)) for group in spellings.values() if len(group) > 1]
        if similar:
            yield (
                f"names of {what} differ only in case, blanks, hyphens or invisible characters: "
                f"{shorten('; '.join(similar), 200)}; if they are the same, give them one name"
            )


def _class_concerns(study: Study) -> Iterator[str]:
    """Yield lines about rare classes, subjects that cannot be scored, and confounded classes."""
    from sklearn.metrics import adjusted_mutual_info_score  # takes long to import

    subject, subjects, label, session = study.subject, study.subjects, study.label, study.raw.session
    rare = np.flatnonzero((study.counts > 0).sum(0) <= min(HELD_OUT, len(subjects) - 1)).tolist()
    if rare:
        having = [str(subjects[s]) for s in np.flatnonzero(study.counts[:, rare].any(1)).tolist()]
        names = shorten(", ".join(shown(study.classes[k]) for k in rare), 100)
        yield (
            f"{count(len(rare), 'rare class', 'rare classes')} ({names}): at most {HELD_OUT} of {len(subjects)} "
            f"subjects have such windows ({list_names(having)}); when they are held out, none is left for training"
        )
    one_class = [str(subjects[s]) for s in np.flatnonzero((study.counts > 0).sum(1) < 2).tolist()]
    if one_class:
        yield (
            f"{len(one_class)} of {len(subjects)} subjects have windows of only one class ({list_names(one_class)}), "
            "so they are used for training, but cannot be scored"
        )
    # Two constants have the score 1, so only groups of several subjects and of several sessions are scored.
    if len(subjects) > 1 and (information := adjusted_mutual_info_score(subject, label)) >= MIN_CONFOUNDING:
        yield (
            f"the subject of a window tells its class ({information:.0%} of the mutual information that is possible): "
            "classes are confounded with subjects; use conditional penalties"
        )
    if session is None:
        return
    day = encode(session, len(subject), "session")[0].numpy()
    own = [rows for s in range(len(subjects)) if len(set(day[rows := subject == s].tolist())) > 1]
    scores = [adjusted_mutual_info_score(day[rows], label[rows]) for rows in own]
    if scores and (information := float(np.mean(scores))) >= MIN_CONFOUNDING:
        yield (
            f"the session of a window tells its class ({information:.0%} of the mutual information that is possible): "
            "a model can learn differences between sessions; record every class in every session"
        )


def _copy_concerns(study: Study) -> Iterator[str]:
    """Yield lines about windows that two subjects have in common."""
    subject, subjects = study.subject, study.subjects
    shared = find_shared_windows(study.X, subject)
    near = [pair for pair in find_near_copies(study.X, subject) if pair not in shared]
    for both in sorted(shared, key=lambda pair: -shared[pair][1])[:MOST_PAIRS] + near:
        first, second = (shown(subjects[index]) for index in both)
        if both in near:
            found = "are probably one recording, rounded, rescaled or with other channels; leave one of them out"
        elif shared[both][1] >= SAME:
            found = f"are one recording: they share {shared[both][1]:.0%} of the windows of one; leave one of them out"
        else:
            found = f"share {count(shared[both][0], 'window')}; find out whose they are"
        yield f"{first} and {second} {found}, because the test subject would be in the training data"


def _signal_concerns(study: Study) -> Iterator[str]:
    """Yield lines about NaN, different units, flat channels and isolated values."""
    X, subject, subjects, names = study.X, study.subject, study.subjects, study.channels
    signals = signal_statistics(X, subject, len(subjects))
    bad = [names[c] for c in np.flatnonzero(signals.not_finite).tolist()]
    if bad:
        where = f"in {int(signals.not_finite.max())} of {X.shape[0]} windows ({list_names(bad)})"
        yield f"X has NaN or infinite values {where}: drop or interpolate them, {CLEAN}"
    scales = signals.scales
    middle = float(np.nanmedian(scales)) if np.isfinite(scales).sum() > 1 else math.nan
    yield from _compare_scales(scales, middle, subjects, "the others")
    isolated, values = find_isolated_values(X, subject, signals)
    for share, least, what in (
        (isolated, 0.0, f"is {{1:g}} in {{0:.2%}} of the samples, far from all other values; {LOST}"),
        (signals.flat, FLAT, f"is constant in {{:.0%}} of the windows; leave subjects or channels out, {CLEAN}"),
    ):
        known = np.nan_to_num(share)
        found = np.argwhere(known > least)  # (n, 2) subject and channel
        if len(found):
            s, c = divmod(int(np.argmax(known)), known.shape[1])
            more = f" (the worst of {len(found)} in {len(np.unique(found[:, 0]))} subjects)" if len(found) > 1 else ""
            yield f"channel {shown(names[c])} of {shown(subjects[s])}{more} {what.format(known[s, c], values[s, c])}"


def compare_with_training(
    X: Array | Tensor, channels: Sequence[str], scale: float | None, subject: object = None
) -> list[str]:
    """Return a line about subjects whose unit probably differs from training, and one about constant channels.

    X (N, C, T) has the channels of the model, `scale` is `typical_scale` of the training windows, subject is (N,).
    """
    subject, subjects = encode_optional(subject, X.shape[0], "subject", None)
    signals = signal_statistics(X, subject, len(subjects))
    constant = [channels[c] for c in np.flatnonzero(signals.constant.all(0)).tolist()]
    if len(constant) == len(channels):
        return ["every channel is constant in these windows: is the device connected?"]
    lines = [f"constant in these windows: {list_names(constant)}; check the electrodes"] if constant else []
    return (
        lines if scale is None else [*lines, *_compare_scales(signals.scales, scale, subjects, "the training windows")]
    )


def _compare_scales(scales: Floats, usual: float, subjects: tuple[Label, ...], others: str) -> Iterator[str]:
    """Yield a line about the subjects whose scale (S,) differs so much from the usual one that their unit differs."""
    far = np.flatnonzero((scales >= UNIT_RATIO * usual) | (scales * UNIT_RATIO <= usual)).tolist()  # no NaN
    if far:
        ratio, more = scales[far[0]] / usual, f" and {len(far) - 1} more" if len(far) > 1 else ""
        which = "" if len(far) == len(scales) else f" of {shown(subjects[far[0]])}{more}"
        factor = float(f"{max(ratio, 1 / ratio):.1g}")  # probably a power of ten
        yield (
            f"the windows{which} vary by {scales[far[0]]:.2g}, {others} by {usual:.2g}, a factor of about "
            f"{factor:,.0f}: convert them to the same unit"
        )
