"""Confidence intervals of a mean over subjects, and prediction intervals for the next subject."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtr, stdtrit  # scipy.stats takes a second to import

from ..errors import UserError
from ..words import score

Floats = NDArray[np.float64]
LEVEL = 0.84  # confidence level of lower bounds, about one standard error
ROUNDING = 1e-9  # rounding error of a mean of scores
MIN_SUBJECTS = 2  # number of subjects that a standard error requires

UNLIMITED = (-math.inf, math.inf)  # limits of differences
MIN_SUBJECTS_TO_TEST = 6  # with 5 subjects the smallest two-sided p of a signed-rank test is 2/2⁵ = 0.0625
LOWEST_SCORE = -1e6  # smallest score that is printed, because R² has no lower limit
PREDICTION_LEVEL = 0.9  # probability of the interval for the next subject


def mean_interval(values: ArrayLike, limits: tuple[float, float] = UNLIMITED) -> tuple[float, float] | None:
    """Return a 95 % confidence interval for the mean of `values` (n,) over subjects, within `limits`; None for n < 2.

    The interval is a Student's t interval, computed on the logit scale if both limits are finite. The method was chosen
    by simulated coverage (tests/test_intervals.py). The interval is for the mean over the population of subjects with
    the same model. It does not include the variation between training sets.
    """
    data = np.sort(np.asarray(values, dtype=float))  # sorted, because rounding depends on the order
    n = len(data)
    if n < 2:
        return None
    mean, (lowest, highest) = float(data.mean()), limits
    half = float(stdtrit(n - 1, 0.975) * data.std(ddof=1)) / math.sqrt(n)  # half of the interval's width
    width = highest - lowest
    if not math.isfinite(width) or not lowest < mean < highest or half == 0:
        return max(lowest, mean - half), min(highest, mean + half)
    share = (mean - lowest) / width
    center, half = float(logit(share)), half / (width * share * (1 - share))
    return lowest + width * float(expit(center - half)), lowest + width * float(expit(center + half))


def expanded_tail(n: int, level: float) -> float:
    """Return the tail probability of the expanded percentile interval (Hesterberg 2015) for n ≥ 2 subjects."""
    t = float(stdtrit(n - 1, (1 - level) / 2))
    return float(ndtr(math.sqrt(n / (n - 1)) * t))


@dataclass(frozen=True)
class NextSubject:
    """Prediction interval for the score of the next subject, with probability `level`."""

    low: float
    high: float
    level: float
    n_subjects: int  # number of subjects whose scores determine the interval
    assumes: str  # "nothing": order statistics; "normal": normally distributed scores

    @property
    def basis(self) -> str:
        """Return the data and the assumption behind the interval."""
        is_normal = self.assumes == "normal"
        assumption = "assuming normally distributed scores" if is_normal else "without assuming a distribution"
        return f"from {self.n_subjects} subjects, {assumption}"


def next_subject(scores: ArrayLike, *, lowest: float = 0.0, highest: float = 1.0) -> NextSubject | None:
    """Return the prediction interval for one more score, within [lowest, highest], from finite scores (n,).

    If subjects are exchangeable, the next score lies between the k-th smallest and the k-th largest score with
    probability (n + 1 − 2k) / (n + 1) for any distribution. For 90 % this needs 19 subjects. With fewer subjects the
    interval is the predictive interval of Student's t. None for n < 2, or if fewer than 19 subjects have equal scores.
    """
    values = np.asarray(scores, dtype=float)
    values = np.sort(values[np.isfinite(values)])
    n, level = len(values), PREDICTION_LEVEL
    if n < 2:
        return None
    k = math.floor((n + 1) * (1 - level) / 2 + 1e-9)
    if k >= 1:
        return NextSubject(float(values[k - 1]), float(values[n - k]), level, n, "nothing")
    t = float(stdtrit(n - 1, (1 + level) / 2))
    if values[0] == values[-1]:
        return None
    half_width = t * float(values.std(ddof=1)) * math.sqrt(1 + 1 / n)
    mean = float(values.mean())
    return NextSubject(
        max(lowest, LOWEST_SCORE, mean - half_width), min(highest, mean + half_width), level, n, "normal"
    )


def describe_next_subject(expected: NextSubject | None, hold_out: str = "subject", *, metric: str = "") -> str | None:
    """Return a sentence with the prediction interval for the next subject; None without an interval."""
    if expected is None:
        return None
    label = "Next subject, after training on their other sessions" if hold_out == "session" else "Next subject"
    low = "far below 0" if expected.low <= LOWEST_SCORE else score(expected.low)
    values = f"{metric} {low} to {score(expected.high)}".lstrip()
    return f"{label}: {values} ({100 * expected.level:.0f} % prediction interval {expected.basis})."


def check_at_least(value: float | None, lowest: float = 0.0, highest: float = 1.0) -> None:
    """Raise UserError if the smallest acceptable score is outside the range of scores."""
    if value is not None and not lowest < value < highest:
        raise UserError(
            f"at_least is {value:g}; give a score between {lowest:g} and {highest:g}, such as "
            f"{max(lowest, highest - 0.3):g}"
        )


def is_helpful(gains: Floats) -> bool:
    """Return whether the mean of the gains of held-out subjects (S,) exceeds one standard error.

    The gains must be those of choices that were made without the subject.
    """
    return len(gains) >= MIN_SUBJECTS and float(lower_bound(gains)) > ROUNDING


def is_better_than_guessing(gains: ArrayLike) -> bool:
    """Return whether the mean gain over guessing (S,) is above zero with 95 % confidence.

    The standard error is multiplied by √2. Each pair of subjects enters two scores, because the model of one subject
    was trained on the labels of the other one. If classes cannot be predicted, the variance of the mean is therefore
    twice the variance of a mean of independent scores.
    """
    values = np.asarray(gains, dtype=float)
    if (n := len(values)) < MIN_SUBJECTS:
        return False
    error = math.sqrt(2 / n) * float(values.std(ddof=1))
    return float(values.mean()) - float(stdtrit(n - 1, 0.975)) * error > ROUNDING


def lower_bound(values: Floats) -> Floats:
    """Return the lower bound at LEVEL of the mean over subjects (S, ...) -> (...)."""
    error = values.std(0, ddof=1) / np.sqrt(len(values))
    return np.asarray(values.mean(0) - stdtrit(len(values) - 1, LEVEL) * error)
