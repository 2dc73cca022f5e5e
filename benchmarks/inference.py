"""Estimate and test differences of subjects that are nested in data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from autotransfer.report.wording import probability, share
from autotransfer.training.intervals import expanded_tail, mean_interval
from autotransfer.words import range_words, score, signed

from .markdown import markdown

Differences = Mapping[str, Mapping[str, float]]  # data set -> subject -> difference

HIERARCHICAL = 20_000  # number of resamples; each resample draws data sets, and then subjects of each data set
MIN_SETS = 5  # smallest number of data sets for an interval over data sets
SIGNIFICANT = 0.05  # corrected p values below this number are significant
MARGIN = 0.01  # differences of balanced accuracy below this number are negligible
HARM = 0.02  # decrease of the score above which a subject counts as harmed


@dataclass(frozen=True)
class Mean:
    """Mean difference with its 95 % interval."""

    value: float
    interval: tuple[float, float] | None

    def __str__(self) -> str:
        return signed(self.value) if self.interval is None else f"{signed(self.value)} ({range_words(self.interval)})"


def estimate_mean(values: Sequence[float] | NDArray[np.float64] | pd.Series[float]) -> Mean:
    """Return the mean of differences (n,) and its interval."""
    return Mean(float(np.mean(values)), mean_interval(values))


def mean_over_subjects(differences: Differences) -> Mean:
    """Return the mean over all subjects, each counted once."""
    return estimate_mean(all_values(differences))


def mean_over_sets(differences: Differences) -> Mean:
    """Return the mean over data sets, with an interval from the means of the sets."""
    return estimate_mean(_means(differences))


def mean_over_both(differences: Differences, *, seed: int = 0, resamples: int = HIERARCHICAL) -> Mean:
    """Return the mean over data sets; the interval resamples data sets and then the subjects of each data set.

    The interval is conservative: the noise of a set's mean counts twice, because it also contributes to the differences
    between sets. Percentiles follow Student's t for the number of sets, as in `expanded_tail`.
    """
    n = len(_means(differences))
    if n < 2:
        return Mean(float(_means(differences).mean()), None)
    generator = np.random.default_rng(seed)
    means = _resample_subjects(differences, generator, generator.integers(0, n, (resamples, n)))
    tail = expanded_tail(n, 0.95)
    low, high = np.quantile(means, (tail, 1 - tail))
    return Mean(float(_means(differences).mean()), (float(low), float(high)))


def mean_over_fixed_sets(differences: Differences, *, seed: int = 0, resamples: int = HIERARCHICAL) -> Mean:
    """Return the mean over data sets, with the subjects of each resampled: an interval for these sets only."""
    drawn = np.tile(np.arange(len(_means(differences))), (resamples, 1))
    means = _resample_subjects(differences, np.random.default_rng(seed), drawn)
    low, high = np.quantile(means, (0.025, 0.975))
    return Mean(float(_means(differences).mean()), (float(low), float(high)))


def mean_over_data(differences: Differences) -> Mean:
    """Return the mean over data sets, with an interval for new sets, or for these sets if there are few."""
    return mean_over_both(differences) if len(differences) >= MIN_SETS else mean_over_fixed_sets(differences)


def _resample_subjects(
    differences: Differences, generator: np.random.Generator, drawn: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return means over drawn data sets (resamples,), with the subjects of each set resampled.

    drawn: (resamples, n) index of each drawn data set.
    """
    means = np.empty(drawn.shape)
    groups = [list(subjects.values()) for _, subjects in sorted(differences.items()) if subjects]
    for index, values in enumerate(map(np.sort, groups)):  # sorted, so that the order of subjects has no effect
        is_drawn = drawn == index
        rows = generator.integers(0, len(values), (int(is_drawn.sum()), len(values)))
        means[is_drawn] = values[rows].mean(1)
    return np.asarray(means.mean(1))


def format_sets_ahead(differences: Differences) -> str:
    """Format the number of data sets with a mean above 0."""
    return f"{int((_means(differences) > 0).sum())} of {len(differences)}"


@dataclass(frozen=True)
class Equivalence:
    """Two one-sided t tests of a mean difference against ± `MARGIN`."""

    interval: tuple[float, float]  # 90 %; it lies within the margin if p < .05
    p: float

    def __str__(self) -> str:
        return f"{range_words(self.interval)}, p {probability(self.p)}"


def equivalence(values: NDArray[np.float64], margin: float = MARGIN) -> Equivalence:
    """Test differences (n,), one for each subject or data set, n ≥ 2."""
    below = stats.ttest_1samp(values, -margin, alternative="greater")
    above = stats.ttest_1samp(values, margin, alternative="less")
    interval = stats.ttest_1samp(values, 0.0).confidence_interval(0.90)
    return Equivalence((float(interval.low), float(interval.high)), float(max(below.pvalue, above.pvalue)))


def equivalence_table(claims: Mapping[str, Differences]) -> str:
    """Return a table of equivalence tests with a row for each claim."""
    rows = []
    for name, differences in claims.items():
        units = (equivalence(all_values(differences)), equivalence(_means(differences)))
        within = all(unit.p < SIGNIFICANT for unit in units)
        rows.append([name, *map(str, units), f"less than {score(MARGIN)} either way" if within else "not shown"])
    margin = f"two one-sided tests against ± {score(MARGIN)}"
    heads = [margin, "subjects: 90 % interval", "sets: 90 % interval", "difference"]
    return markdown(heads, rows)


def harm_rates(differences: Differences) -> tuple[float, float]:
    """Return the share of subjects who lose more than `HARM`, and the share of subjects who gain more than `HARM`."""
    values = all_values(differences)
    return float((values < -HARM).mean()), float((values > HARM).mean())


def harm_table(steps: Mapping[str, Differences]) -> str:
    """Return a table with a row for each step: shares of falling and rising scores, worst set, largest loss."""
    rows = []
    for name, differences in steps.items():
        lose, gain = harm_rates(differences)
        rates = {dataset: harm_rates({dataset: subjects})[0] for dataset, subjects in differences.items() if subjects}
        worst = max(rates, key=lambda dataset: rates[dataset])
        values = all_values(differences)
        most = f"{share(rates[worst])} ({worst})" if rates[worst] else "–"
        rows.append([name, str(len(values)), share(lose), share(gain), most, signed(float(values.min()))])
    limits = [f"lose more than {score(HARM)}", f"gain more than {score(HARM)}"]
    heads = ["", "subjects", *limits, "worst set", "largest loss"]
    return markdown(heads, rows)


def all_values(differences: Differences) -> NDArray[np.float64]:
    return np.array([value for subjects in differences.values() for value in subjects.values()], dtype=float)


def _means(differences: Differences) -> NDArray[np.float64]:
    return np.array([np.mean(list(subjects.values())) for subjects in differences.values() if subjects], dtype=float)
