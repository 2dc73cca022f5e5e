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
LEAD = 2.0  # standard errors


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


def two_se_rule(scores: Sequence[Score], candidates: Sequence[str]) -> list[str]:
    """The first candidate, the simplest, and those whose mean over subjects is above its own by more than `LEAD`
    standard errors of that difference, subjects being paired.

    Where nothing helps, the best of many is luck, and it is another one as soon as a subject is left out.
    """
    first = by_subject(scores, candidates[0])
    gains = [by_subject(scores, setting) - first for setting in candidates]  # of each, (subjects,)
    errors = [gain.std(ddof=1) / math.sqrt(len(gain)) if len(gain) > 1 else 0.0 for gain in gains]
    lead = [gain.mean() > LEAD * error for gain, error in zip(gains, errors, strict=True)]
    return [setting for place, setting in enumerate(candidates) if place == 0 or lead[place]]


def without_subject(scores: Iterable[Score], subject: int) -> list[Score]:
    """What may be used to choose for a subject: nothing that was measured on them."""
    return [score for score in scores if score.subject != subject]
