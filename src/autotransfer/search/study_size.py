"""Estimate the gains from more subjects and from more windows, from learning curves of linear discriminants.

Linear discriminants are fitted on n subjects, for several n, and predict another subject. The mean score is fitted by a
power law s(n) = a − b n^(−c) and extrapolated. A few points do not determine c, so the expected gain is the mean over
EXPONENTS. For the interval, tested subjects and exponents are resampled with replacement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError, shown
from ..folds import scorable_subjects
from ..recordings import Recordings
from ..recordings.chunks import row_chunks
from ..recordings.container import check_recordings
from ..settings import Setting
from ..training.closed_form import ABSENT_LOGIT
from ..training.intervals import expanded_tail
from ..training.metrics import balanced_accuracy_of
from ..words import count, range_words, score, signed
from .candidates import linear_candidates

MIN_SUBJECTS = 5  # subjects of a pilot study
MAX_MORE_SUBJECTS = 10_000
MAX_TESTED = 20  # subjects that are predicted, evenly spaced
DRAWS = 3  # random groups of training subjects, for each size and tested subject
SIZES = 6  # points of a learning curve
MAX_WINDOWS = 4500  # windows of all subjects together
MIN_WINDOWS = 3  # windows per class and subject, at the start of the curve over windows
MODELS = 3  # representations whose log-probabilities are averaged
MAX_FEATURES = 400  # features of a window
SHRINKAGE = 0.5  # shrinkage of the covariance of a discriminant
EXPONENTS = (0.25, 0.5, 0.75, 1.0, 1.25)  # values of c
RESAMPLES = 2000
LEVEL = 0.9  # level of the interval
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Curve:
    """Learning curve of linear discriminants: balanced accuracy on unseen subjects by number of training units."""

    unit: str  # "subjects" or "windows per subject"
    sizes: list[int]  # numbers of units in training
    scores: list[float]  # mean over tested subjects at each size
    current: int  # number of units in the recordings
    planned: int  # number of units in the larger study
    gain: float  # expected gain from `current` to `planned`
    low: float  # 90 % interval of the gain
    high: float

    def lines(self) -> list[str]:
        """Return the curve as lines of text."""
        width = max(len(f"{n:,}") for n in self.sizes)
        top = max(*self.scores, 1e-9)
        bars = ["█" * max(1, round(40 * value / top)) for value in self.scores]
        points = zip(self.sizes, self.scores, bars, strict=True)
        more = f" ({self.planned - self.current:,} more)" if self.unit == "subjects" else ""
        return [
            f"balanced accuracy on unseen subjects, by number of training {self.unit}",
            *(f"  {n:>{width},}  {score(value):>5}  {bar}" for n, value, bar in points),
            f"expected gain with {self.planned:,} {self.unit} instead of {self.current:,}{more}: {signed(self.gain)} "
            f"({100 * LEVEL:.0f} % interval {range_words((self.low, self.high))})",
        ]


@dataclass(frozen=True)
class StudyPlan:
    """Gains that `plan_study` expects from more subjects and from more windows."""

    data: str  # name of the recordings
    subjects: Curve  # by number of training subjects
    windows: Curve | None  # by number of windows per subject, with all subjects; None if there are too few windows
    models: list[str]  # representations whose discriminants were averaged
    n_tested: int  # number of tested subjects

    def lines(self) -> list[str]:
        """Return both curves as lines of text."""
        curves = [self.subjects, *([] if self.windows is None else [self.windows])]
        about = (
            f"{self.data}: {count(self.n_tested, 'subject')} tested, each by linear discriminants on up to "
            f"{self.subjects.current:,} other subjects, averaged over"
        )
        note = (
            "Networks and ensembles are not among these models. If an interval contains 0, these recordings do not "
            "show whether there is a gain."
        )
        return [f"{about} {', '.join(self.models)}", *(line for curve in curves for line in curve.lines()), note]


def extrapolate_gains(sizes: Sequence[int], scores: Floats, current: int, planned: int) -> Floats:
    """Return gains (exponents, R) from `current` to `planned` units of R learning curves: scores (R, S) at S sizes."""
    n, gains = np.asarray(sizes, dtype=np.float64), []
    for c in EXPONENTS:
        x = n**-c - (n**-c).mean()
        b = -(scores @ x) / (x**2).sum()
        gains.append(b * (current**-c - planned**-c))
    return np.stack(gains)


def expected_gain(sizes: Sequence[int], scores: Floats, current: int, planned: int) -> tuple[float, float, float]:
    """Return the expected gain of the mean learning curve, and its interval: scores (n, S) of n subjects at S sizes."""
    n, rng = len(scores), np.random.default_rng(0)
    rows = rng.integers(0, n, (RESAMPLES, n))
    resampled = extrapolate_gains(sizes, scores[rows].mean(1), current, planned)
    resampled = resampled[rng.integers(0, len(EXPONENTS), RESAMPLES), np.arange(RESAMPLES)]
    tail = expanded_tail(n, LEVEL)
    expected = extrapolate_gains(sizes, scores.mean(0)[None], current, planned).mean()
    last_score = float(scores[:, -1].mean())
    interval = np.quantile(resampled, (tail, 1 - tail))
    gain, low, high = np.clip([expected, *interval], -last_score, 1 - last_score).tolist()
    return gain, low, high


def plan_study(recordings: Recordings, *, more_subjects: int = 10) -> StudyPlan:
    """Estimate the gains from more subjects and from twice as many windows per subject.

    Learning curves of linear discriminants are measured on a pilot study of at least five subjects, and extrapolated by
    power laws. Every score is on unseen subjects.

    Parameters
    ----------
    recordings : Recordings
        Pilot study.
    more_subjects : int
        Number of additional subjects.

    Returns
    -------
    StudyPlan
        Both curves, with the expected gain and its 90 % interval; `lines()` describes them.
    """
    check_recordings(recordings, "plan_study")
    check_more_subjects(more_subjects)
    pilot = Pilot(recordings)
    n_train = len(pilot.subjects) - 1
    sizes = _space_logarithmically(2, n_train)
    subjects = _fit_curve("subjects", sizes, [pilot.scores(n) for n in sizes], n_train, n_train + more_subjects)
    first, last = MIN_WINDOWS * recordings.n_classes, int(np.median(list(map(len, pilot.rows.values()))))
    windows = None
    if last >= 2 * first:
        sizes = _space_logarithmically(first, last)
        scores = [pilot.scores(n_train, n) for n in sizes]
        windows = _fit_curve("windows per subject", sizes, scores, pilot.n_windows, 2 * pilot.n_windows)
    return StudyPlan(recordings.name, subjects, windows, pilot.models, len(pilot.tested))


def check_more_subjects(value: object, name: str = "more_subjects") -> None:
    """Raise unless `value` is a possible number of additional subjects."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_MORE_SUBJECTS:
        raise UserError(f"{name} is {shown(value)}; it must be a whole number from 1 to {MAX_MORE_SUBJECTS:,}")


def _fit_curve(unit: str, sizes: list[int], scores: Sequence[Floats], current: int, planned: int) -> Curve:
    by_subject = np.stack(scores, 1)  # (subjects, sizes)
    gain = expected_gain(sizes, by_subject, current, planned)
    return Curve(unit, sizes, by_subject.mean(0).tolist(), current, planned, *gain)


def _space_logarithmically(low: int, high: int) -> list[int]:
    """Return about SIZES whole numbers from low to high, evenly on a logarithmic scale."""
    return [int(n) for n in np.unique(np.geomspace(low, high, SIZES).round())]


class Pilot:
    """Latents of a pilot study. They do not depend on training subjects."""

    def __init__(self, recordings: Recordings) -> None:
        self.subjects = scorable_subjects(recordings)
        if len(self.subjects) < MIN_SUBJECTS:
            raise UserError(
                f"{count(len(self.subjects), 'subject')} of {shown(recordings.name)} can be scored; a learning curve "
                f"needs at least {MIN_SUBJECTS}"
            )
        indices = np.linspace(0, len(self.subjects) - 1, MAX_TESTED).round().astype(int)
        self.tested = [self.subjects[index] for index in np.unique(indices)]
        y, subject_of_window = recordings.y.numpy(), recordings.subject.numpy()
        all_rows = {subject: np.flatnonzero(subject_of_window == subject) for subject in self.subjects}
        self.n_windows = int(np.median([len(rows) for rows in all_rows.values()]))  # windows per subject
        self.n_classes = recordings.n_classes
        max_windows = max(MAX_WINDOWS // len(all_rows), 4 * self.n_classes)
        # The first n windows of a subject are balanced over classes, for any n.
        self.rows = {s: _alternate_classes(rows, y, s)[:max_windows] for s, rows in all_rows.items()}
        self.y = {subject: torch.from_numpy(y[rows]) for subject, rows in self.rows.items()}
        settings = _select_pilot_settings(recordings)
        self.models = [setting.family for setting in settings]
        self.latents = [
            {subject: _prepare_latents(recordings, setting, rows) for subject, rows in self.rows.items()}
            for setting in settings
        ]

    def scores(self, n: int, n_windows: int | None = None) -> Floats:
        """Return the mean score of each tested subject over draws of n training subjects with n_windows each."""
        sums = [
            {s: ClassSums.of(latents[s][:n_windows], self.y[s][:n_windows], self.n_classes) for s in self.subjects}
            for latents in self.latents
        ]
        scores = []
        for subject in self.tested:
            others = [other for other in self.subjects if other != subject]
            orders = [np.random.default_rng((subject, draw)).permutation(others).tolist() for draw in range(DRAWS)]
            groups = {frozenset(order[:n]) for order in orders}
            scores.append(np.mean([self._score(sorted(group), sums, subject) for group in groups]))
        return np.array(scores)

    def _score(self, train: Sequence[int], sums: Sequence[dict[int, ClassSums]], subject: int) -> float:
        log_p = torch.zeros(len(self.y[subject]), self.n_classes, dtype=torch.float64)
        for latents, sums_by_subject in zip(self.latents, sums, strict=True):
            log_p += ClassSums.total([sums_by_subject[s] for s in train]).predict_log_proba(latents[subject])
        return balanced_accuracy_of(log_p.argmax(1).numpy(), self.y[subject].numpy(), self.n_classes)


class ClassSums(NamedTuple):
    """Sufficient statistics of latents (n, D) in K classes for a linear discriminant, in float64."""

    counts: Tensor  # (K,)
    totals: Tensor  # (K, D)
    products: Tensor  # (D, D) Σ z zᵀ

    @classmethod
    def of(cls, latents: Tensor, y: Tensor, n_classes: int) -> ClassSums:
        counts = torch.bincount(y, minlength=n_classes).double()
        totals = latents.new_zeros(n_classes, latents.shape[1]).index_add_(0, y, latents)
        return cls(counts, totals, latents.T @ latents)

    @classmethod
    def total(cls, sums: Sequence[ClassSums]) -> ClassSums:
        return cls(*(sum(tensors[1:], tensors[0]) for tensors in zip(*sums, strict=True)))

    def predict_log_proba(self, latents: Tensor) -> Tensor:
        """Return log-probabilities (m, K) of latents (m, D), with the same model as `training.closed_form`."""
        n, dim = self.counts.sum(), latents.shape[1]
        center = self.totals.sum(0) / n
        variance = self.products.diagonal() / n - center.square()
        is_varying = variance > 1e-9 * (self.products.diagonal() / n).clamp(min=1e-300)
        scale = torch.where(is_varying, variance, 1.0).rsqrt() * is_varying
        means = self.totals / self.counts.clamp(min=1)[:, None]
        within = (self.products - (self.counts[:, None] * means).T @ means) / n
        within = within * scale * scale[:, None]
        means = (means - center) * scale
        level = within.diagonal().sum() / dim
        matrix = (1 - SHRINKAGE) * within
        matrix.diagonal().add_(SHRINKAGE * level if level > 0 else 1.0)
        weight = torch.cholesky_solve(means.T, torch.linalg.cholesky(matrix)).T
        logits = (latents - center) * scale @ weight.T - 0.5 * (weight * means).sum(1)
        return torch.log_softmax(logits.masked_fill(self.counts == 0, ABSENT_LOGIT), 1)


def _alternate_classes(rows: Rows, y: Rows, seed: int) -> Rows:
    """Shuffle rows so that classes alternate as long as they have rows."""
    shuffled = np.random.default_rng(seed).permutation(rows)
    rank = np.zeros(len(rows), dtype=np.int64)  # rank of a row within its class
    for label in np.unique(y[rows]):
        is_class = y[shuffled] == label
        rank[is_class] = np.arange(is_class.sum())
    return shuffled[np.argsort(rank, kind="stable")]


def _select_pilot_settings(recordings: Recordings) -> list[Setting]:
    """Return linear models of the first families with few features, otherwise the model with fewest features."""
    settings = linear_candidates("zero-shot", recordings)
    # Transforms up to these representations do not depend on training subjects.
    linear = [s for s in settings if s.encoder == "linear" and s.preprocessing.n_until_representation]
    families = list({setting.family: setting for setting in reversed(linear)}.values())[::-1]

    def n_features(setting: Setting) -> int:
        return math.prod(setting.preprocessing.shape(recordings.n_channels, recordings.n_times))

    small = [setting for setting in families if n_features(setting) <= MAX_FEATURES]
    return small[:MODELS] or [min(families, key=n_features)]


def _prepare_latents(recordings: Recordings, setting: Setting, rows: Rows) -> Tensor:
    """Return latents (rows, D) in float64, projected at random to MAX_FEATURES if D is larger."""
    subject_of_window, first, parts = recordings.subject, torch.from_numpy(rows[:2]), []
    fitted = setting.preprocessing.fit(recordings.X[first].float(), subject_of_window[first], [np.arange(len(first))])
    for chunk in row_chunks(len(rows), recordings.n_channels * recordings.n_times):
        index = torch.from_numpy(rows[chunk])
        parts.append(fitted(recordings.X[index].float()[None], subject_of_window[index][None])[0].flatten(1).double())
    latents = torch.cat(parts)
    if latents.shape[1] <= MAX_FEATURES:
        return latents
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (latents.shape[1], MAX_FEATURES))
    return latents @ torch.from_numpy(signs / np.sqrt(latents.shape[1]))
