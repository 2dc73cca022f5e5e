"""Shortlist and choice, from validation scores alone.

Everything here receives `Score`s: a setting, the subject it was measured on, a number. No test score can reach a
decision, because none is passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SHORTLIST_PER_METHOD = 3
NEAR = 0.005  # of balanced accuracy: less than this tells nobody apart


class Score(NamedTuple):
    """A validation score."""

    setting: str  # Setting.key
    subject: int  # whose trials it was measured on
    value: float
    others: frozenset[int] = frozenset()  # who else was held out, where one of them chose the snapshot


def by_subject(scores: Iterable[Score], setting: str) -> NDArray[np.float64]:
    """Return the setting's mean validation score on each subject, over seeds and fits."""
    values: dict[int, list[float]] = {}
    for score in scores:
        if score.setting == setting:
            values.setdefault(score.subject, []).append(score.value)
    return np.array([np.mean(values[subject]) for subject in sorted(values)])


def lower_quartile_of(values: NDArray[np.float64]) -> float:
    """Return the 25th percentile over subjects; -inf without any score."""
    return float(np.percentile(values, 25)) if len(values) else float("-inf")


def mean_of(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else float("-inf")


def lower_quartile(scores: Sequence[Score], setting: str) -> float:
    return lower_quartile_of(by_subject(scores, setting))


def mean_score(scores: Sequence[Score], setting: str) -> float:
    return mean_of(by_subject(scores, setting))


def shortlist(scores: Sequence[Score], methods: Mapping[str, str | None]) -> list[str]:
    """Select the best 3 settings of each method and of the uncensored ones (method None), and the first of the
    uncensored ones, the network without a penalty, in the order of `methods`."""
    kept = set([setting for setting, method in methods.items() if method is None][:1])
    for method in set(methods.values()):
        ranked = [setting for setting in methods if methods[setting] == method]
        ranked.sort(key=lambda setting: -mean_score(scores, setting))
        kept.update(setting for setting in ranked[:SHORTLIST_PER_METHOD] if mean_score(scores, setting) > float("-inf"))
    return [setting for setting in methods if setting in kept]


def choose(scores: Sequence[Score], candidates: Sequence[str]) -> str:
    """Return the setting with the highest lower quartile of validation scores; ties by the mean, then by the order of
    candidates."""
    return max(candidates, key=lambda setting: (lower_quartile(scores, setting), mean_score(scores, setting)))


def best_mean(scores: Sequence[Score], candidates: Sequence[str]) -> str:
    """Return the setting with the highest mean of validation scores over people. Of those that come within `NEAR` of
    it, return the one with the highest lower quartile; then by the mean, then by the order of candidates."""
    most = max(mean_score(scores, setting) for setting in candidates)
    near = [setting for setting in candidates if mean_score(scores, setting) >= most - NEAR]
    return choose(scores, near)
