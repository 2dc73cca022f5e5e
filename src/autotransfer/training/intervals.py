"""Confidence intervals of a mean over people, and prediction intervals for one more person."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, stdtrit  # scipy.stats takes a second to import

from ..errors import UserError
from ..words import score

RESAMPLES = 10_000
MIN_SUBJECTS_TO_TEST = 6  # with 5 people the smallest two-sided p of a signed-rank test is 2/2⁵ = 0.0625
LOWEST_SCORE = -1e6  # of the scores that a run states: an R² of somebody whose target hardly changes has no lower end
PREDICTION_LEVEL = 0.9  # of the people to come lie within the interval for the next person


def bootstrap_interval(
    values: ArrayLike, *, seed: int, level: float = 0.95, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """Return an interval for the mean of `values` (n,), resampling subjects; None for n < 2.

    The percentile interval is too narrow for a dozen subjects: it lacks the factor √(n/(n-1)) and the heavier tails
    of Student's t. Both are put back by taking the percentiles further out (Hesterberg 2015, "expanded percentile").
    """
    data = np.sort(np.asarray(values, dtype=float))  # the order of subjects must not matter, not even by rounding
    n = len(data)
    if n < 2:
        return None
    rows = np.random.default_rng(seed).integers(0, n, (resamples, n))
    means = data[rows].mean(axis=1)
    tail = expanded_tail(n, level)
    low, high = np.quantile(means, (tail, 1 - tail))
    return float(low), float(high)


def expanded_tail(n: int, level: float) -> float:
    """Return the lower percentile that is taken for n ≥ 2 subjects; the upper one mirrors it."""
    t = float(stdtrit(n - 1, (1 - level) / 2))
    return float(ndtr(math.sqrt(n / (n - 1)) * t))


@dataclass(frozen=True)
class NextSubject:
    """Where the score of one more person will lie, with the probability `level`."""

    low: float
    high: float
    level: float
    n_subjects: int  # whose scores it rests on
    assumes: str  # "nothing": order statistics; "normal": scores of people have a normal distribution

    @property
    def basis(self) -> str:
        """Return what the interval rests on, in words."""
        nothing = self.assumes == "nothing"
        assumed = "with no distribution assumed" if nothing else "assuming normally distributed scores"
        return f"from {self.n_subjects} people, {assumed}"


def next_subject(
    scores: ArrayLike, *, level: float = PREDICTION_LEVEL, lowest: float = 0.0, highest: float = 1.0
) -> NextSubject | None:
    """Return the prediction interval for one more score from those of n people (n,), within [lowest, highest]; None for
    n < 2, and where all of fewer than 19 are alike, which says nothing of how people differ. A person without a score
    is left out.

    If the next person is like these, each of the n + 1 ranks is as likely, so the k-th smallest and the k-th largest
    score enclose them with probability (n + 1 − 2k) / (n + 1), whatever the distribution. For 90 % that takes 19
    people. Fewer have the predictive interval of Student's t.
    """
    values = np.asarray(scores, dtype=float)
    values = np.sort(values[np.isfinite(values)])
    n = len(values)
    if n < 2:
        return None
    k = math.floor((n + 1) * (1 - level) / 2 + 1e-9)
    if k >= 1:
        return NextSubject(float(values[k - 1]), float(values[n - k]), level, n, "nothing")
    t = float(stdtrit(n - 1, (1 + level) / 2))
    if values[0] == values[-1]:
        return None
    reach = t * float(values.std(ddof=1)) * math.sqrt(1 + 1 / n)
    mean = float(values.mean())
    return NextSubject(max(lowest, LOWEST_SCORE, mean - reach), min(highest, mean + reach), level, n, "normal")


def describe_next_subject(expected: NextSubject | None, hold_out: str = "subject", *, metric: str = "") -> str | None:
    """Say what to expect of one more person; None if there was only one.

    hold_out: what people were scored on. metric: 'R²', if the sentence must say it.
    """
    if expected is None:
        return None
    who = "Next person, once it is trained on their other sessions" if hold_out == "session" else "Next person"
    low = "far below 0" if expected.low <= LOWEST_SCORE else score(expected.low)
    values = f"{metric} {low} to {score(expected.high)}".lstrip()
    return f"{who}: {values} ({100 * expected.level:.0f} % prediction interval {expected.basis})."


def check_at_least(value: float | None, lowest: float = 0.0, highest: float = 1.0) -> None:
    """Refuse a threshold that no score can be compared with."""
    if value is not None and not lowest < value < highest:
        raise UserError(
            f"at least {value:g} is asked of every person; give a score between {lowest:g} and {highest:g}, such as "
            f"{max(lowest, highest - 0.3):g}"
        )
