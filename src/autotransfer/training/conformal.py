"""Conformal prediction sets, abstention and prediction intervals, with thresholds fitted to held-out subjects.

Windows of different subjects are not exchangeable. Therefore all subjects have the same weight, and the finite-sample
correction leaves out one subject at a time. A set contains the most probable class and every class with at least the
probability t. Let 1 − F_k(t) be the share of windows of subject k whose set lacks the true class:

    t₋ₖ(u) = the largest t with Σ_{j≠k} (1 − F_j(t)) ≤ u        threshold for subject k from the other subjects
    u*     = the largest u with (1 + Σ_k F_k(t₋ₖ(u))) / (K + 1) ≥ coverage
    t      = the largest t with Σ_j (1 − F_j(t)) ≤ u*

If every subject is either always or never covered, t is the order statistic of split conformal prediction over
subjects. If all subjects have one distribution, t is the quantile of their windows up to a term of the order 1 / K².
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, plain_value, shown

Floats = NDArray[np.float64]
ClassIds = NDArray[np.int64]

UNANSWERED = "unanswered"  # value that marks abstention if classes are text
N_LEVELS = 99  # thresholds are stored for coverages and shares of windows of 0.01 … 0.99
MIN_SUBJECTS = 3  # smallest number of held-out subjects to fit thresholds to
REPORTED_COVERAGE = 0.9  # coverage of the intervals that a run reports
MAX_THRESHOLDS = 2000  # largest number of thresholds to try
N_VALUES_OF_U = 2000  # number of values of u to try
ROUNDING = 1e-9


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of a model for prediction sets and abstention.

    n_subjects: number of held-out subjects to which the thresholds were fitted
    sets: (99,) smallest probability of a class in a set, for coverages of 0.01 … 0.99; 1: one class
    guaranteed_sets: (99,) the same with a guarantee for any distribution of subjects (see `find_guaranteed_thresholds`)
    confidences: (99,) quantiles of the confidence, 0.01 … 0.99, in the mean over subjects
    """

    n_subjects: int
    sets: list[float]
    guaranteed_sets: list[float]
    confidences: list[float]

    def __post_init__(self) -> None:
        has_enough_subjects = type(self.n_subjects) is int and self.n_subjects >= MIN_SUBJECTS
        has_sets = _is_monotone(self.sets, -1) and _is_monotone(self.guaranteed_sets, -1)
        if not (has_enough_subjects and has_sets and _is_monotone(self.confidences, 1)):
            raise UserError("the thresholds of the model are damaged; train the model again")

    def set_threshold(self, coverage: float, *, is_guaranteed: bool = False) -> float:
        """Return the threshold for a coverage, rounded up to a stored coverage; 0 (all classes) above 0.99."""
        index = int(np.ceil(100 * check_share("coverage", coverage) - 1e-6)) - 1
        return (self.guaranteed_sets if is_guaranteed else self.sets)[index] if index < N_LEVELS else 0.0

    def confidence_needed(self, abstain: float) -> float:
        """Return the confidence below which a share `abstain` of windows lies, by linear interpolation."""
        shares = np.arange(N_LEVELS + 2) / 100
        return float(np.interp(check_share("abstain", abstain), shares, [0.0, *self.confidences, 1.0]))

    @classmethod
    def fit(cls, y: Sequence[ClassIds], probability: Sequence[Floats]) -> Thresholds | None:
        """Fit thresholds to classes (n_k,) and probabilities (n_k, C) of each held-out subject; None for too few."""
        if len(y) < MIN_SUBJECTS:
            return None
        thresholds, covered = coverage_curves(y, probability)
        levels = np.arange(1, N_LEVELS + 1) / 100
        sets, confidences = thresholds[find_thresholds(covered, levels)], confidence_threshold(probability, levels)
        guaranteed = thresholds[find_guaranteed_thresholds(covered, levels)]
        return cls(len(y), *([_round_down(t) for t in values] for values in (sets, guaranteed, confidences)))


def _round_down(value: float) -> float:
    """Round a threshold down to 7 digits, so that files are short and no set loses a class."""
    return float(np.floor(float(value) * 1e7) / 1e7)


def _is_monotone(values: Any, sign: int) -> bool:
    """Return whether `values` are N_LEVELS numbers within [0, 1] that decrease (sign −1) or increase (1)."""
    if not isinstance(values, list) or len(values) != N_LEVELS or not all(type(v) in (int, float) for v in values):
        return False
    array = np.asarray(values, dtype=np.float64)
    return bool((array >= 0).all() and (array <= 1).all() and (sign * np.diff(array) >= 0).all())


def check_share(name: str, value: object) -> float:
    """Return a share as a float; raise unless it lies in [0, 1), or in (0, 1) for a coverage."""
    number = plain_value(value)
    limits, example = ("above 0", "0.9") if name == "coverage" else ("at least 0", "0.2")
    if (
        isinstance(number, bool)
        or not isinstance(number, (int, float))
        or not 0 <= number < 1
        or (name == "coverage" and number == 0)
    ):
        raise UserError(f"{name} is {shown(value)}; it must be {limits} and below 1, such as {example}")
    return float(number)


def make_sets(probability: Floats, threshold: float) -> NDArray[np.bool_]:
    """Return sets (..., C) for probabilities (..., C): the most probable class and classes that reach the threshold."""
    sets = np.asarray(probability >= threshold)
    np.put_along_axis(sets, probability.argmax(-1)[..., None], True, -1)
    return sets


def coverage_curves(y: Sequence[ClassIds], probability: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return thresholds (T,) from 0 to 1, and the share of each subject's windows whose set is correct (K, T)."""
    true_class = []  # sorted probabilities of the true class in misclassified windows, by subject
    for labels, p in zip(y, probability, strict=True):
        is_wrong = p.argmax(1) != labels
        true_class.append(np.sort(p[is_wrong, labels[is_wrong]]))
    thresholds = _thin(np.unique(np.concatenate([[0.0, 1.0], *true_class])))
    counts = [np.searchsorted(p, thresholds, "left") for p in true_class]
    uncovered = [count / max(len(labels), 1) for count, labels in zip(counts, y, strict=True)]
    return thresholds, 1 - np.stack(uncovered)


def _thin(thresholds: Floats) -> Floats:
    """Return at most MAX_THRESHOLDS of sorted thresholds (T,), with the first and the last."""
    if len(thresholds) <= MAX_THRESHOLDS:
        return thresholds
    indices = np.linspace(0, len(thresholds) - 1, MAX_THRESHOLDS).round().astype(np.int64)
    return np.take(thresholds, indices)


def find_thresholds(covered: Floats, levels: Floats) -> NDArray[np.int64]:
    """Return indices of the thresholds t (L,) for coverages (L,) from coverage curves (K, T)."""
    uncovered = 1 - covered
    total = uncovered.sum(0)
    u = np.linspace(0, len(covered), N_VALUES_OF_U + 1) + ROUNDING
    index = np.stack([np.searchsorted(total - curve, u, "right") - 1 for curve in uncovered])  # t₋ₖ(u)
    # The maximum is needed, because a difference of sums that is 0 may be rounded to a number above 0.
    held_out = np.take_along_axis(covered, np.maximum(index, 0), 1).sum(0)  # Σ_k F_k(t₋ₖ(u)), decreasing in u
    coverage = (1 + held_out) / (1 + len(covered))
    last_index = np.searchsorted(-coverage, -(levels - ROUNDING), "right") - 1  # index of u*
    return np.where(last_index < 0, 0, np.searchsorted(total, u[np.maximum(last_index, 0)], "right") - 1)


def find_guaranteed_thresholds(covered: Floats, levels: Floats) -> NDArray[np.int64]:
    """Return indices of the thresholds t (L,) of conformal risk control (Angelopoulos et al. 2024) over subjects.

    t is the largest threshold with (1 + Σ_k (1 − F_k(t))) / (K + 1) ≤ 1 − coverage. The mean coverage of a new subject
    is then at least the requested one if subjects are exchangeable, whatever their distribution. Sets are larger: with
    fewer than 1 / (1 − coverage) − 1 subjects, they have all classes.
    """
    risk = (1 + (1 - covered).sum(0)) / (1 + len(covered))  # (T,), increasing
    return np.maximum(np.searchsorted(risk, 1 - levels + ROUNDING, "right") - 1, 0)


def confidence_threshold(probability: Sequence[Floats], shares: Floats) -> Floats:
    """Return confidences (L,) below which shares (L,) of windows lie, with equal weights of subjects (n_k, C)."""
    confidence = np.concatenate([p.max(1) for p in probability])
    weight = np.concatenate([np.full(len(p), 1 / (len(p) * len(probability))) for p in probability])
    order = np.argsort(confidence, kind="stable")
    share_below = np.cumsum(weight[order]) - weight[order]  # share of windows with less confidence
    index = np.searchsorted(share_below, shares + ROUNDING, "right") - 1
    return np.where(shares > 0, confidence[order][np.maximum(index, 0)], 0.0)


def unanswered_value(classes: Sequence[Any]) -> Any:
    """Return the value that marks abstention: a number below 0 and below all classes, or the text "unanswered"."""
    values = [plain_value(value) for value in classes]
    if all(isinstance(value, (int, float)) for value in values):
        return min(-1, int(np.floor(min(values))) - 1)
    value = UNANSWERED
    while value in values:
        value += "_"
    return value


def least_probability(thresholds: Thresholds | None, coverage: float, *, is_guaranteed: bool = False) -> float:
    """Return the smallest probability of a class in a set; raise UserError if the model has no thresholds."""
    return require_thresholds(thresholds).set_threshold(coverage, is_guaranteed=is_guaranteed)


def least_confidence(thresholds: Thresholds | None, abstain: float | None) -> float | None:
    """Return the smallest confidence with which a class is predicted; None if `abstain` is None."""
    return None if abstain is None else require_thresholds(thresholds).confidence_needed(abstain)


def require_thresholds(thresholds: Thresholds | None) -> Thresholds:
    """Return thresholds; raise UserError if the model has none."""
    if thresholds is None:
        raise UserError(
            f"the model has no thresholds for sets and abstention, because fewer than {MIN_SUBJECTS} subjects were "
            "held out; use AutoTransferClassifier, or CensoredClassifier with more validation_subjects"
        )
    return thresholds


def decide_classes(probability: Floats, classes: NDArray[Any], threshold: float | None) -> Any:
    """Return the most probable class (..., C) -> (...), or `unanswered_value` if the threshold is not reached."""
    predicted = classes[probability.argmax(-1)]
    if threshold is None:
        return predicted
    value = unanswered_value(classes.tolist())
    dtype = classes.dtype if classes.dtype == object else np.result_type(classes, np.asarray(value))
    if classes.dtype.kind == "u" and dtype.kind == "f":  # no integer type holds both
        dtype = np.dtype(object)
    return np.where(probability.max(-1) >= threshold, predicted.astype(dtype), np.array(value, dtype=dtype))[()]


# ---- intervals for regression ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Intervals:
    """Half-widths of prediction intervals for regression.

    n_subjects: number of held-out subjects to which the radii were fitted
    radii: (99,) for coverages of 0.01 … 0.99; None: only an infinite interval has this coverage
    """

    n_subjects: int
    radii: list[float | None]

    def __post_init__(self) -> None:
        values = [math.inf if radius is None else radius for radius in self.radii]
        is_rising = len(values) == N_LEVELS and values[0] >= 0 and all(low <= high for low, high in pairwise(values))
        if not is_rising or self.n_subjects < MIN_SUBJECTS:
            raise UserError("the intervals of the model are damaged; train the model again")

    def radius(self, coverage: float) -> float:
        """Return the half-width for a coverage, rounded up to a stored coverage; infinite if there is none."""
        index = int(np.ceil(100 * check_share("coverage", coverage) - 1e-6)) - 1
        radius = self.radii[index] if index < N_LEVELS else None
        return math.inf if radius is None else radius

    @classmethod
    def fit(cls, residuals: Sequence[Floats]) -> Intervals | None:
        """Fit intervals to absolute errors |y − ŷ| (n_k,) of held-out subjects; None for too few subjects."""
        if len(residuals) < MIN_SUBJECTS:
            return None
        radii = np.concatenate([[np.inf], _thin(np.unique(np.concatenate(residuals)))[::-1]])
        covered = [np.searchsorted(np.sort(errors), radii, "right") / len(errors) for errors in residuals]
        index = find_thresholds(np.stack(covered), np.arange(1, N_LEVELS + 1) / 100)
        return cls(len(residuals), [float(radius) if np.isfinite(radius) else None for radius in radii[index]])


def interval_radius(intervals: Intervals | None, coverage: float) -> float:
    """Return the half-width of an interval; raise UserError if the model has no intervals."""
    if intervals is None:
        raise UserError(
            f"the model has no intervals: fewer than {MIN_SUBJECTS} subjects were held out; train on more subjects"
        )
    return intervals.radius(coverage)


def make_intervals(predicted: Floats, radius: float) -> Floats:
    """Return lower and upper ends (N, 2) of intervals around predictions (N,)."""
    return np.stack([predicted - radius, predicted + radius], axis=1)


def held_out_coverage(residuals: Sequence[Floats], coverage: float) -> list[float]:
    """Return each subject's coverage (K,) by intervals fitted to the other subjects; empty for too few subjects."""
    shares = []
    for k, errors in enumerate(residuals):
        intervals = Intervals.fit([*residuals[:k], *residuals[k + 1 :]])
        if intervals is None:
            return []
        shares.append(float(np.mean(errors <= intervals.radius(coverage))))
    return shares
