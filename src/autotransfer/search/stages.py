"""Shortlist and choice, from validation scores alone.

Everything here receives `Score`s: a setting, the subject it was measured on, a number. No test score
can reach a decision, because none is ever passed in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SHORTLIST_PER_METHOD = 3
RESAMPLES = 1000


class Score(NamedTuple):
    """A validation score."""

    setting: str  # Setting.key
    subject: int  # whose trials it was measured on
    value: float


def by_subject(scores: Iterable[Score], setting: str) -> NDArray[np.float64]:
    """The setting's mean validation score on each subject (seeds and trajectories averaged), by subject."""
    values: dict[int, list[float]] = {}
    for score in scores:
        if score.setting == setting:
            values.setdefault(score.subject, []).append(score.value)
    return np.array([np.mean(values[subject]) for subject in sorted(values)])


def lower_quartile(scores: Sequence[Score], setting: str) -> float:
    """The 25th percentile over subjects; -inf without any score."""
    values = by_subject(scores, setting)
    return float(np.percentile(values, 25)) if len(values) else float("-inf")


def mean_score(scores: Sequence[Score], setting: str) -> float:
    values = by_subject(scores, setting)
    return float(values.mean()) if len(values) else float("-inf")


def shortlist(scores: Sequence[Score], methods: Mapping[str, str | None]) -> list[str]:
    """The best 3 settings of each method and of the uncensored ones (method None), and the first of the uncensored
    ones, the plain baseline, in the order of `methods`."""
    kept = set([setting for setting, method in methods.items() if method is None][:1])
    order = {setting: place for place, setting in enumerate(methods)}
    for method in set(methods.values()):
        own = [setting for setting in methods if methods[setting] == method]
        own.sort(key=lambda setting: (-mean_score(scores, setting), order[setting]))
        kept.update(setting for setting in own[:SHORTLIST_PER_METHOD] if mean_score(scores, setting) > float("-inf"))
    return [setting for setting in methods if setting in kept]


def choose(scores: Sequence[Score], candidates: Sequence[str]) -> str:
    """The highest lower quartile of validation scores; ties by the mean, then by the order of candidates."""
    return max(
        candidates,
        key=lambda setting: (
            lower_quartile(scores, setting),
            mean_score(scores, setting),
            -candidates.index(setting),
        ),
    )


def worth_leaving(scores: Sequence[Score], candidates: Sequence[str]) -> list[str]:
    """The first candidate, the plain network, and those for which it may be left: their mean over subjects is no lower,
    or their lower quartile is higher by more than a standard error (a bootstrap over subjects).

    Where nothing helps, the highest of many lower quartiles is luck, and with a lower mean likelier to cost than to
    gain.
    """
    table = np.array([by_subject(scores, setting) for setting in candidates])  # (candidates, subjects)
    draws = np.random.default_rng(0).integers(table.shape[1], size=(RESAMPLES, table.shape[1]))
    gain = np.percentile(table, 25, axis=1) - np.percentile(table[0], 25)
    drawn = np.percentile(table[:, draws], 25, axis=2)
    error = (drawn - drawn[0]).std(1)
    worth = (table.mean(1) >= table[0].mean()) | (gain > error)
    return [setting for place, setting in enumerate(candidates) if place == 0 or worth[place]]


def simplest(scores: Sequence[Score], candidates: Sequence[str], errors: float = 1.0) -> str:
    """The one-standard-error rule (Breiman et al. 1984): the first candidate, simple ones coming first, that falls
    short of the best mean over subjects by no more than the standard error of that difference, or `errors` of them.

    A lower quartile hangs on one or two subjects; where the candidates are nearly as good as each other it hops from
    one to the next as soon as a subject is left out.
    """
    best = max(candidates, key=lambda setting: mean_score(scores, setting))
    top = by_subject(scores, best)
    for setting in candidates:
        short = top - by_subject(scores, setting)
        error = short.std(ddof=1) / math.sqrt(len(short)) if len(short) > 1 else 0.0
        if short.mean() <= errors * error:
            return setting
    raise AssertionError("the best does not fall short of itself")


def without_subject(scores: Iterable[Score], subject: int) -> list[Score]:
    """What may be used to choose for a subject: nothing that was measured on them."""
    return [score for score in scores if score.subject != subject]
