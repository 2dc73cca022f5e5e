"""Paired comparison of two models on the same subjects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from ..training.intervals import MIN_SUBJECTS_TO_TEST as MIN_SUBJECTS_TO_TEST
from ..training.intervals import mean_interval
from ..words import score

MOST_TO_ENUMERATE = 50  # maximum number of subjects for the exact test; otherwise the normal approximation is used
TIE = 1e-9  # largest difference that is a rounding error


@dataclass(frozen=True)
class ScoreSummary:
    """Mean, lower quartile and minimum of the scores of a model over subjects."""

    n: int
    mean: float
    lower_quartile: float
    minimum: float

    def __str__(self) -> str:
        return f"mean {score(self.mean)}, lower quartile {score(self.lower_quartile)}, minimum {score(self.minimum)}"


@dataclass(frozen=True)
class PairedComparison:
    """Comparison of two models by the differences of their scores, first minus second, on the same subjects."""

    differences: dict[str, float]  # by subject
    first: ScoreSummary
    second: ScoreSummary
    mean: float
    interval: tuple[float, float] | None  # 95 %; None for a single subject
    p: float | None  # None if too few subjects differ
    wins: int
    ties: int
    losses: int

    @property
    def n(self) -> int:
        return len(self.differences)


def summarize(scores: ArrayLike) -> ScoreSummary:
    """Summarize the scores (n,) of n ≥ 1 subjects."""
    values = np.asarray(scores, dtype=float)
    return ScoreSummary(len(values), float(values.mean()), float(np.quantile(values, 0.25)), float(values.min()))


def compare_paired(first: Mapping[str, float], second: Mapping[str, float]) -> PairedComparison | None:
    """Compare two models on subjects with finite scores by both models; return None if there are no such subjects."""
    common = [s for s in second if s in first and math.isfinite(first[s]) and math.isfinite(second[s])]
    if not common:
        return None
    a = np.array([first[s] for s in common], dtype=float)
    b = np.array([second[s] for s in common], dtype=float)
    difference = a - b
    difference[np.abs(difference) <= TIE] = 0.0
    return PairedComparison(
        differences=dict(zip(common, difference.tolist(), strict=True)),
        first=summarize(a),
        second=summarize(b),
        mean=float(difference.mean()),
        interval=mean_interval(difference),
        p=signed_rank_p(difference),
        wins=int((difference > 0).sum()),
        ties=int((difference == 0).sum()),
        losses=int((difference < 0).sum()),
    )


def signed_rank_p(differences: ArrayLike) -> float | None:
    """Return the two-sided p value of Wilcoxon's signed-rank test; None for fewer than 6 nonzero differences."""
    data = np.round(np.asarray(differences, dtype=float), 12)  # rounding errors must not break ties
    if len(data) and not data.any():
        return 1.0
    data = data[data != 0]
    if len(data) < MIN_SUBJECTS_TO_TEST:
        return None
    if len(data) > MOST_TO_ENUMERATE:
        return float(stats.wilcoxon(data, method="approx").pvalue)
    return _compute_exact_p(data)


def _compute_exact_p(data: NDArray[np.float64]) -> float:
    """Return the p value from the exact distribution of the rank sum over all 2ⁿ signs, which is valid with ties."""
    ranks = np.rint(2 * stats.rankdata(np.abs(data))).astype(int)  # times 2, because tied ranks may be half-integers
    total = int(ranks.sum())
    probability = np.zeros(total + 1)  # distribution of the sum of positive ranks
    probability[0] = 1.0
    for rank in ranks:
        probability[rank:] = (probability[rank:] + probability[: total + 1 - rank]) / 2
        probability[:rank] /= 2
    positive = int(ranks[data > 0].sum())
    extreme = min(positive, total - positive)
    return min(1.0, 2 * float(probability[: extreme + 1].sum()))


def holm(p_values: Mapping[str, float | None]) -> dict[str, float | None]:
    """Correct p values of several methods by Holm's step-down method. None is not counted and stays None."""
    sorted_p = sorted((p, name) for name, p in p_values.items() if p is not None)
    corrected: dict[str, float | None] = dict.fromkeys(p_values)
    largest = 0.0
    for position, (p, name) in enumerate(sorted_p):
        largest = max(largest, min(1.0, (len(sorted_p) - position) * p))  # keeps the order of p values
        corrected[name] = largest
    return corrected
