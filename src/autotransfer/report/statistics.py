"""Paired comparison of two models on the same subjects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from ..training.intervals import MIN_SUBJECTS_TO_TEST as MIN_SUBJECTS_TO_TEST
from ..training.intervals import bootstrap_interval
from ..words import score

MOST_TO_ENUMERATE = 50  # subjects for the exact test; above, the normal approximation is good
TIE = 1e-9  # smaller differences are due to rounding


@dataclass(frozen=True)
class Spread:
    """Summary of the scores of one model over subjects."""

    n: int
    mean: float
    lower_quartile: float
    minimum: float

    def __str__(self) -> str:
        return f"mean {score(self.mean)}, lower quartile {score(self.lower_quartile)}, minimum {score(self.minimum)}"


@dataclass(frozen=True)
class Paired:
    """Comparison of two models: scores of `first` minus those of `second`, subject by subject."""

    differences: dict[str, float]  # by subject, in the order of `second`
    first: Spread
    second: Spread
    mean: float
    interval: tuple[float, float] | None  # 95 %; None for a single subject
    p: float | None  # None if too few subjects differ
    wins: int
    ties: int
    losses: int

    @property
    def n(self) -> int:
        return len(self.differences)


def spread(scores: ArrayLike) -> Spread:
    """Describe scores (n,), one for each subject, n ≥ 1."""
    values = np.asarray(scores, dtype=float)
    return Spread(len(values), float(values.mean()), float(np.quantile(values, 0.25)), float(values.min()))


def paired(first: Mapping[str, float], second: Mapping[str, float]) -> Paired | None:
    """Compare two models on the subjects with finite scores of both; None if there are no such subjects."""
    common = [s for s in second if s in first and math.isfinite(first[s]) and math.isfinite(second[s])]
    if not common:
        return None
    a = np.array([first[s] for s in common], dtype=float)
    b = np.array([second[s] for s in common], dtype=float)
    difference = a - b
    difference[np.abs(difference) <= TIE] = 0.0
    return Paired(
        differences=dict(zip(common, difference.tolist(), strict=True)),
        first=spread(a),
        second=spread(b),
        mean=float(difference.mean()),
        interval=bootstrap_interval(difference, seed=0),
        p=signed_rank_p(difference),
        wins=int((difference > 0).sum()),
        ties=int((difference == 0).sum()),
        losses=int((difference < 0).sum()),
    )


def signed_rank_p(differences: ArrayLike) -> float | None:
    """Return the two-sided p of Wilcoxon's signed-rank test without zeros; None for fewer than 6 differences."""
    data = np.round(np.asarray(differences, dtype=float), 12)  # equal accuracies must tie in spite of rounding
    if len(data) and not data.any():
        return 1.0
    data = data[data != 0]
    if len(data) < MIN_SUBJECTS_TO_TEST:
        return None
    if len(data) > MOST_TO_ENUMERATE:
        return float(stats.wilcoxon(data, method="approx").pvalue)
    return _exact_p(data)


def _exact_p(data: NDArray[np.float64]) -> float:
    """Compute p from the exact distribution of the rank sum, by convolution over all 2ⁿ signs; valid with ties."""
    ranks = np.rint(2 * stats.rankdata(np.abs(data))).astype(int)  # doubled: tied ranks are half-integers
    total = int(ranks.sum())
    law = np.zeros(total + 1)
    law[0] = 1.0
    for rank in ranks:
        law[rank:] = (law[rank:] + law[: total + 1 - rank]) / 2
        law[:rank] /= 2
    positive = int(ranks[data > 0].sum())
    extreme = min(positive, total - positive)
    return min(1.0, 2 * float(law[: extreme + 1].sum()))


def holm(p_values: Mapping[str, float | None]) -> dict[str, float | None]:
    """Correct p values of several methods by Holm's step-down method. None stays None and does not count."""
    known = sorted((p, name) for name, p in p_values.items() if p is not None)
    corrected: dict[str, float | None] = dict.fromkeys(p_values)
    largest = 0.0
    for position, (p, name) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - position) * p))  # a larger p never gets a smaller corrected one
        corrected[name] = largest
    return corrected
