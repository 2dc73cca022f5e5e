"""Intervals and tests for differences of people who are nested in data sets, beyond what a report of one set needs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from autotransfer.report.wording import SIGNIFICANT, probability, share, signed
from autotransfer.training.intervals import RESAMPLES, bootstrap_interval
from autotransfer.words import range_words

from .markdown import markdown

Differences = Mapping[str, Mapping[str, float]]  # data set -> person -> difference

HIERARCHICAL = 4_000  # resamples: every one draws people in each place of a set
MARGIN = 0.01  # balanced accuracy: differences below it are called none
LOST = 0.02  # a person who loses more than this was harmed


@dataclass(frozen=True)
class Mean:
    """A mean difference with its 95 % interval."""

    value: float
    interval: tuple[float, float] | None

    def __str__(self) -> str:
        return signed(self.value) if self.interval is None else f"{signed(self.value)} ({range_words(self.interval)})"


def mean_of(values: Sequence[float] | NDArray[np.float64] | pd.Series[float], *, seed: int = 0) -> Mean:
    """values: (n,) differences."""
    return Mean(float(np.mean(values)), bootstrap_interval(values, seed=seed))


def over_people(differences: Differences, *, seed: int = 0) -> Mean:
    """Everybody counts once, whatever set they are of."""
    return mean_of(_everyone(differences), seed=seed)


def over_sets(differences: Differences, *, seed: int = 0) -> Mean:
    """Every set counts once; sets are resampled, as if their means were known exactly."""
    return mean_of(_means(differences), seed=seed)


def over_equal_sets(differences: Differences, *, seed: int = 0, resamples: int = RESAMPLES) -> Mean:
    """The mean of the sets' means, so that a set of 38 people does not outweigh one of 5, with people resampled within
    their sets; no interval where a set has a single person.

    Small sets are put right as in `bootstrap_interval`: deviations are stretched by √(n/(n-1)), and the percentiles
    taken further out, by Student's t with Welch's degrees of freedom.
    """
    groups = [np.sort(list(people.values())) for people in differences.values() if people]  # the order must not matter
    mean = float(np.mean([group.mean() for group in groups]))
    if any(len(group) < 2 for group in groups):
        return Mean(mean, None)
    generator = np.random.default_rng(seed)
    total, parts, freedom = np.zeros(resamples), 0.0, 0.0
    for group in groups:
        n = len(group)
        stretched = group.mean() + (group - group.mean()) * math.sqrt(n / (n - 1))
        total += stretched[generator.integers(0, n, (resamples, n))].mean(axis=1)
        part = float(group.var(ddof=1)) / n
        parts, freedom = parts + part, freedom + part**2 / (n - 1)
    df = parts**2 / freedom if freedom > 0 else math.inf
    tail = float(stats.norm.cdf(stats.t.ppf(0.025, df)))
    low, high = np.quantile(total / len(groups), (tail, 1 - tail))
    return Mean(mean, (float(low), float(high)))


def over_both(differences: Differences, *, seed: int = 0, resamples: int = HIERARCHICAL) -> Mean:
    """The same mean over sets; sets are resampled, and in each of those that are drawn its people.

    The noise of a set's mean is in it twice, once in how sets differ, so it is wide rather than narrow. Percentiles are
    taken further out as in `bootstrap_interval`, by Student's t for the number of sets.
    """
    generator = np.random.default_rng(seed)
    groups = [np.sort(list(people.values())) for people in differences.values() if people]  # the order must not matter
    n = len(groups)
    if n < 2:
        return Mean(float(groups[0].mean()), None)
    again = np.stack([
        values[generator.integers(0, len(values), (resamples, n, len(values)))].mean(2) for values in groups
    ])  # fmt: skip
    drawn = generator.integers(0, n, (resamples, n))  # (resamples, n): the set in each place
    means = again[drawn, np.arange(resamples)[:, None], np.arange(n)].mean(1)
    tail = float(stats.norm.cdf(math.sqrt(n / (n - 1)) * stats.t.ppf(0.025, n - 1)))
    low, high = np.quantile(means, (tail, 1 - tail))
    return Mean(float(_means(differences).mean()), (float(low), float(high)))


def ahead_on(differences: Differences) -> str:
    """On how many of the sets the mean is above 0."""
    return f"{int((_means(differences) > 0).sum())} of {len(differences)}"


@dataclass(frozen=True)
class Equivalence:
    """Two one-sided t tests of a mean difference against ± `MARGIN`."""

    interval: tuple[float, float]  # 90 %: it lies within the margin where p < .05
    p: float

    def __str__(self) -> str:
        return f"{range_words(self.interval)}, p {probability(self.p)}"


def equivalence(values: NDArray[np.float64], margin: float = MARGIN) -> Equivalence:
    """values: (n,) differences, one for each person or set; n ≥ 2."""
    below = stats.ttest_1samp(values, -margin, alternative="greater")
    above = stats.ttest_1samp(values, margin, alternative="less")
    interval = stats.ttest_1samp(values, 0.0).confidence_interval(0.90)
    return Equivalence((float(interval.low), float(interval.high)), float(max(below.pvalue, above.pvalue)))


def equivalence_table(claims: Mapping[str, Differences]) -> str:
    """A row for each claim that there is no difference."""
    rows = []
    for name, differences in claims.items():
        units = (equivalence(_everyone(differences)), equivalence(_means(differences)))
        within = all(unit.p < SIGNIFICANT for unit in units)
        rows.append([name, *map(str, units), f"less than {MARGIN:.3f} either way" if within else "not shown"])
    margin = f"two one-sided tests against ± {MARGIN:.3f}"
    heads = [margin, "people: 90 % interval", "sets: 90 % interval", "difference"]
    return markdown(heads, rows)


def harm(differences: Differences) -> tuple[float, float]:
    """Shares of people who lose, and who gain, more than `LOST`."""
    values = _everyone(differences)
    return float((values < -LOST).mean()), float((values > LOST).mean())


def harm_table(steps: Mapping[str, Differences]) -> str:
    """A row for each step: people, who loses and who gains, the set with most losers, the largest loss of anybody."""
    rows = []
    for name, differences in steps.items():
        lose, gain = harm(differences)
        rates = {dataset: harm({dataset: people})[0] for dataset, people in differences.items() if people}
        worst = max(rates, key=lambda dataset: rates[dataset])
        values = _everyone(differences)
        most = f"{share(rates[worst])} ({worst})" if rates[worst] else "–"
        rows.append([name, str(len(values)), share(lose), share(gain), most, signed(float(values.min()))])
    limits = [f"lose more than {LOST:g}", f"gain more than {LOST:g}"]
    heads = ["", "people", *limits, "set with most losers", "largest loss"]
    return markdown(heads, rows)


def _everyone(differences: Differences) -> NDArray[np.float64]:
    return np.array([value for people in differences.values() for value in people.values()], dtype=float)


def _means(differences: Differences) -> NDArray[np.float64]:
    return np.array([np.mean(list(people.values())) for people in differences.values() if people], dtype=float)
