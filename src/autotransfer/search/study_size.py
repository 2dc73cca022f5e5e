"""Estimate the gains from more subjects and from more windows, from learning curves of linear discriminants.

Each tested subject is predicted by linear discriminants on n other subjects, for several n. The mean score is fitted by
a power law s(n) = a − b n^(−c) and extrapolated. A few points do not determine c, so the expected gain is the mean over
EXPONENTS. For the interval, tested subjects are resampled with replacement, and exponents at random.
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

MIN_PEOPLE = 5  # of a pilot study
MAX_MORE_PEOPLE = 10_000
MAX_TESTED = 20  # people who are predicted, spread over all
DRAWS = 3  # random groups of each size, for each tested person
SIZES = 6  # sizes of groups, and numbers of windows, that are tried
MAX_WINDOWS = 4500  # of all people together
MIN_WINDOWS = 3  # of a class and person, at the start of the curve over windows
MODELS = 3  # representations whose log-probabilities are averaged
MAX_FEATURES = 400  # of a window
SHRINKAGE = 0.5  # of a discriminant's covariance
EXPONENTS = (0.25, 0.5, 0.75, 1.0, 1.25)
RESAMPLES = 2000
LEVEL = 0.9
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Curve:
    """Learning curve of linear discriminants: balanced accuracy on unseen subjects by number of training units."""

    unit: str  # "subjects" or "windows per subject"
    sizes: list[int]  # numbers of units in training
    scores: list[float]  # mean over tested people at each size
    now: int  # number in the recordings
    then: int  # number in the larger study
    gain: float  # expected from `now` to `then`
    low: float  # 90 % interval of the gain
    high: float

    def lines(self) -> list[str]:
        """Return the curve as lines of text."""
        width = max(len(f"{n:,}") for n in self.sizes)
        top = max(*self.scores, 1e-9)
        bars = ["█" * max(1, round(40 * value / top)) for value in self.scores]
        points = zip(self.sizes, self.scores, bars, strict=True)
        more = f" ({self.then - self.now:,} more)" if self.unit == "subjects" else ""
        return [
            f"balanced accuracy on unseen subjects, by number of training {self.unit}",
            *(f"  {n:>{width},}  {score(value):>5}  {bar}" for n, value, bar in points),
            f"expected gain with {self.then:,} {self.unit} instead of {self.now:,}{more}: {signed(self.gain)} "
            f"({100 * LEVEL:.0f} % interval {range_words((self.low, self.high))})",
        ]


@dataclass(frozen=True)
class StudyPlan:
    """Gains that `plan_study` expects from more people and from more windows."""

    data: str  # name of the recordings
    people: Curve  # by the number of training people
    windows: Curve | None  # by number of windows per person, with all people; None if there are too few
    models: list[str]  # representations whose discriminants were averaged
    tested: int  # people who were predicted

    def lines(self) -> list[str]:
        """Return both curves as lines of text."""
        curves = [self.people, *([] if self.windows is None else [self.windows])]
        about = (
            f"{self.data}: {count(self.tested, 'subject')} tested, each by linear discriminants on up to "
            f"{self.people.now:,} other subjects, averaged over"
        )
        note = (
            "Networks and ensembles are not among these models. If an interval contains 0, these recordings do not "
            "show whether there is a gain."
        )
        return [f"{about} {', '.join(self.models)}", *(line for curve in curves for line in curve.lines()), note]


def gains(sizes: Sequence[int], scores: Floats, now: int, then: int) -> Floats:
    """Return the rise of R curves from `now` to `then`: sizes (S,), scores (R, S) -> (exponents, R)."""
    n, rises = np.asarray(sizes, dtype=np.float64), []
    for c in EXPONENTS:
        x = n**-c - (n**-c).mean()
        drop = -(scores @ x) / (x**2).sum()
        rises.append(drop * (now**-c - then**-c))
    return np.stack(rises)


def expected_gain(sizes: Sequence[int], scores: Floats, now: int, then: int) -> tuple[float, float, float]:
    """Return the expected rise of the mean curve from `now` to `then`, and its interval: scores (people, S)."""
    people, draw = len(scores), np.random.default_rng(0)
    rows = draw.integers(0, people, (RESAMPLES, people))
    again = gains(sizes, scores[rows].mean(1), now, then)
    again = again[draw.integers(0, len(EXPONENTS), RESAMPLES), np.arange(RESAMPLES)]
    tail = expanded_tail(people, LEVEL)
    expected = gains(sizes, scores.mean(0)[None], now, then).mean()
    reached = float(scores[:, -1].mean())
    gain, low, high = np.clip([expected, *np.quantile(again, (tail, 1 - tail))], -reached, 1 - reached).tolist()
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
    everybody = len(pilot.people) - 1
    sizes = _spread(2, everybody)
    people = _curve("subjects", sizes, [pilot.scores(n) for n in sizes], everybody, everybody + more_subjects)
    first, last = MIN_WINDOWS * recordings.n_classes, int(np.median(list(map(len, pilot.rows.values()))))
    windows = None
    if last >= 2 * first:
        numbers = _spread(first, last)
        scores = [pilot.scores(everybody, n) for n in numbers]
        windows = _curve("windows per subject", numbers, scores, pilot.windows, 2 * pilot.windows)
    return StudyPlan(recordings.name, people, windows, pilot.models, len(pilot.tested))


def check_more_subjects(value: object, name: str = "more_subjects") -> None:
    """Raise unless it is a possible number of additional people."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_MORE_PEOPLE:
        raise UserError(f"{name} is {shown(value)}; it must be a whole number from 1 to {MAX_MORE_PEOPLE:,}")


def _curve(unit: str, sizes: list[int], scores: Sequence[Floats], now: int, then: int) -> Curve:
    by_person = np.stack(scores, 1)  # (people, sizes)
    return Curve(unit, sizes, by_person.mean(0).tolist(), now, then, *expected_gain(sizes, by_person, now, then))


def _spread(low: int, high: int) -> list[int]:
    """Return about SIZES whole numbers from low to high, evenly on a logarithmic scale."""
    return [int(n) for n in np.unique(np.geomspace(low, high, SIZES).round())]


class Pilot:
    """Latents of a pilot study, which depend neither on the fold nor on the person."""

    def __init__(self, recordings: Recordings) -> None:
        self.people = scorable_subjects(recordings)
        if len(self.people) < MIN_PEOPLE:
            raise UserError(
                f"{count(len(self.people), 'subject')} of {shown(recordings.name)} can be scored; a learning curve "
                f"needs at least {MIN_PEOPLE}"
            )
        places = np.linspace(0, len(self.people) - 1, MAX_TESTED).round().astype(int)
        self.tested = [self.people[place] for place in np.unique(places)]
        y, who, self.n_classes = recordings.y.numpy(), recordings.subject.numpy(), recordings.n_classes
        every = {person: np.flatnonzero(who == person) for person in self.people}
        self.windows = int(np.median([len(rows) for rows in every.values()]))  # of a person
        most = max(MAX_WINDOWS // len(every), 4 * self.n_classes)
        # Any number of first windows of a person is balanced over classes.
        self.rows = {person: _alternate_classes(rows, y, person)[:most] for person, rows in every.items()}
        self.y = {person: torch.from_numpy(y[rows]) for person, rows in self.rows.items()}
        settings = _settings(recordings)
        self.models = [setting.family for setting in settings]
        self.latents = [
            {person: _prepare_latents(recordings, setting, rows) for person, rows in self.rows.items()}
            for setting in settings
        ]

    def scores(self, n: int, windows: int | None = None) -> Floats:
        """Return the mean score of each tested person over draws of n other people. windows: per person; None: all."""
        sums = [
            {p: ClassSums.of(latents[p][:windows], self.y[p][:windows], self.n_classes) for p in self.people}
            for latents in self.latents
        ]
        scores = []
        for person in self.tested:
            others = [other for other in self.people if other != person]
            orders = [np.random.default_rng((person, draw)).permutation(others).tolist() for draw in range(DRAWS)]
            groups = {frozenset(order[:n]) for order in orders}
            scores.append(np.mean([self._score(sorted(group), sums, person) for group in groups]))
        return np.array(scores)

    def _score(self, train: Sequence[int], sums: Sequence[dict[int, ClassSums]], person: int) -> float:
        log_p = torch.zeros(len(self.y[person]), self.n_classes, dtype=torch.float64)
        for latents, of_people in zip(self.latents, sums, strict=True):
            log_p += ClassSums.total([of_people[other] for other in train]).log_probabilities(latents[person])
        return balanced_accuracy_of(log_p.argmax(1).numpy(), self.y[person].numpy(), self.n_classes)


class ClassSums(NamedTuple):
    """Sufficient statistics of latents (n, D) in K classes for a linear discriminant. float64."""

    counts: Tensor  # (K,)
    totals: Tensor  # (K, D)
    products: Tensor  # (D, D) Σ z zᵀ

    @classmethod
    def of(cls, latents: Tensor, y: Tensor, n_classes: int) -> ClassSums:
        counts = torch.bincount(y, minlength=n_classes).double()
        return cls(
            counts, latents.new_zeros(n_classes, latents.shape[1]).index_add_(0, y, latents), latents.T @ latents
        )

    @classmethod
    def total(cls, sums: Sequence[ClassSums]) -> ClassSums:
        return cls(*(sum(tensors[1:], tensors[0]) for tensors in zip(*sums, strict=True)))

    def log_probabilities(self, latents: Tensor) -> Tensor:
        """Return log-probabilities (m, K) of latents (m, D), as `training.closed_form` computes them."""
        n, dim = self.counts.sum(), latents.shape[1]
        center = self.totals.sum(0) / n
        variance = self.products.diagonal() / n - center.square()
        varies = variance > 1e-9 * (self.products.diagonal() / n).clamp(min=1e-300)
        scale = torch.where(varies, variance, 1.0).rsqrt() * varies
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
    turn = np.zeros(len(rows), dtype=np.int64)
    for label in np.unique(y[rows]):
        of_class = y[shuffled] == label
        turn[of_class] = np.arange(of_class.sum())
    return shuffled[np.argsort(turn, kind="stable")]


def _settings(recordings: Recordings) -> list[Setting]:
    """Return linear models of several families: the first that are small enough, otherwise the smallest."""
    settings = linear_candidates("zero-shot", recordings)
    # Their latents depend neither on the fold nor on the person.
    fixed = [one for one in settings if one.encoder == "linear" and one.preprocessing.n_until_representation]
    families = list({setting.family: setting for setting in reversed(fixed)}.values())[::-1]

    def n_features(setting: Setting) -> int:
        return math.prod(setting.preprocessing.shape(recordings.n_channels, recordings.n_times))

    small = [setting for setting in families if n_features(setting) <= MAX_FEATURES]
    return small[:MODELS] or [min(families, key=n_features)]


def _prepare_latents(recordings: Recordings, setting: Setting, rows: Rows) -> Tensor:
    """Return latents (rows, D) in float64, projected at random to MAX_FEATURES if D is larger."""
    chain, parts = setting.preprocessing, []
    first, who = torch.from_numpy(rows[:2]), recordings.subject
    fitted = chain.fit(recordings.X[first].float(), who[first], [np.arange(len(first))])
    for chunk in row_chunks(len(rows), recordings.n_channels * recordings.n_times):
        places = torch.from_numpy(rows[chunk])
        parts.append(fitted(recordings.X[places].float()[None], who[places][None])[0].flatten(1).double())
    latents = torch.cat(parts)
    if latents.shape[1] <= MAX_FEATURES:
        return latents
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (latents.shape[1], MAX_FEATURES))
    return latents @ torch.from_numpy(signs / np.sqrt(latents.shape[1]))
