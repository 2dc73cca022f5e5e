"""Rank settings by validation scores. No function here is given a test score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SHORTLIST_PER_METHOD = 3
NEAR = 0.005  # of balanced accuracy: smaller differences between settings are noise


class Score(NamedTuple):
    """Validation score of a setting on one subject."""

    setting: str  # Setting.key
    subject: int
    value: float
    others: frozenset[int] = frozenset()  # other held-out subjects, one of whom selected the snapshot


def scores_by_subject(scores: Iterable[Score], setting: str) -> NDArray[np.float64]:
    """Return a setting's mean validation score on each subject (S,), over seeds and fits."""
    values: dict[int, list[float]] = {}
    for score in scores:
        if score.setting == setting:
            values.setdefault(score.subject, []).append(score.value)
    return np.array([np.mean(values[subject]) for subject in sorted(values)])


def lower_quartile(values: NDArray[np.float64]) -> float:
    """Return the 25th percentile over subjects; -inf without scores."""
    return float(np.percentile(values, 25)) if len(values) else float("-inf")


def mean_score(values: NDArray[np.float64]) -> float:
    """Return the mean over subjects; -inf without scores."""
    return float(values.mean()) if len(values) else float("-inf")


def shortlist(scores: Sequence[Score], methods: Mapping[str, str | None]) -> list[str]:
    """Return the best three settings of each method, in the order of `methods` (None: without a penalty).

    The first setting without a penalty is on the shortlist in any case.
    """
    means = {setting: mean_score(scores_by_subject(scores, setting)) for setting in methods}
    kept = set([setting for setting, method in methods.items() if method is None][:1])
    for method in set(methods.values()):
        ranked = sorted((s for s in methods if methods[s] == method), key=lambda setting: -means[setting])
        kept.update(setting for setting in ranked[:SHORTLIST_PER_METHOD] if means[setting] > float("-inf"))
    return [setting for setting in methods if setting in kept]
