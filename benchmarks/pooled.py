"""Several data sets together: the mean difference over all their subjects, or with every set weighing the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from autotransfer.report.statistics import TIE, signed_rank_p
from autotransfer.training.intervals import RESAMPLES, bootstrap_interval

LEVEL = 0.95


@dataclass(frozen=True)
class Pooled:
    """Differences of the subjects of all sets."""

    sets: int
    n: int  # subjects
    mean: float
    interval: tuple[float, float] | None  # 95 %; None where a set has no spread to estimate
    p: float | None  # Wilcoxon over all subjects, each counting once
    wins: int
    ties: int
    losses: int


def pooled(differences: Mapping[str, Mapping[str, float]], *, equal_sets: bool = False, seed: int = 0) -> Pooled | None:
    """differences: set -> subject -> difference, as in `Paired.differences`. None without any.

    equal_sets: the mean of the sets' means, so that a set of 38 subjects does not outweigh one of 5. Subjects are
    then resampled within their sets; without it, among all subjects.
    """
    groups = [np.array(list(group.values()), dtype=float) for group in differences.values() if group]
    if not groups:
        return None
    everyone = np.concatenate(groups)
    everyone[np.abs(everyone) <= TIE] = 0.0
    if equal_sets:
        mean, limits = float(np.mean([group.mean() for group in groups])), stratified_interval(groups, seed=seed)
    else:
        mean, limits = float(everyone.mean()), bootstrap_interval(everyone, seed=seed)
    signs = [int((everyone > 0).sum()), int((everyone == 0).sum()), int((everyone < 0).sum())]
    return Pooled(len(groups), len(everyone), mean, limits, signed_rank_p(everyone), *signs)


def stratified_interval(
    groups: list[NDArray[np.float64]], *, seed: int, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """Bootstrap interval for the mean of the groups' means, subjects resampled within each group (n_k,).

    Small groups are put right as in `bootstrap_interval`: deviations are stretched by √(n/(n-1)), and the percentiles
    taken further out, by Student's t with Welch's degrees of freedom.
    """
    if any(len(group) < 2 for group in groups):
        return None
    generator = np.random.default_rng(seed)
    total, parts, freedom = np.zeros(resamples), 0.0, 0.0
    for group in groups:
        n, data = len(group), np.sort(group)  # sorted: the order of subjects must not matter, not even by rounding
        stretched = data.mean() + (data - data.mean()) * math.sqrt(n / (n - 1))
        total += stretched[generator.integers(0, n, (resamples, n))].mean(axis=1)
        part = float(data.var(ddof=1)) / n
        parts, freedom = parts + part, freedom + part**2 / (n - 1)
    df = parts**2 / freedom if freedom > 0 else math.inf
    tail = float(ndtr(stdtrit(df, (1 - LEVEL) / 2)))
    low, high = np.quantile(total / len(groups), (tail, 1 - tail))
    return float(low), float(high)
