"""How many people, how many windows: learning curves of linear discriminants, and what more of either would gain.

Each tested person is predicted by linear discriminants on n of the other people, for several n. The mean score over
people is fitted by a power law,

    s(n) = a − b n^(−c),   c among EXPONENTS

and extrapolated to more people. A handful of points does not determine the exponent, so the expected gain is the mean
over EXPONENTS. For the interval tested people are resampled with replacement, and with them an exponent. b may be
negative: where nothing is gained, the interval has to lie on both sides of 0. Gains are cut if a score would exceed 1.
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

FEWEST = 5  # people of a pilot study
MOST = 10_000  # people more than there are
TESTED = 20  # people who are predicted, spread over all
DRAWS = 3  # groups of each size, for each tested person
SIZES = 6  # groups of people, and numbers of windows, that are tried
WINDOWS = 4500  # of everybody together that are used
FEWEST_WINDOWS = 3  # of a class and person, where the curve over windows begins
KINDS = 3  # representations whose log-probabilities are averaged
NUMBERS = 400  # features of a window, at most
SHRINKAGE = 0.5  # of a discriminant's covariance
EXPONENTS = (0.25, 0.5, 0.75, 1.0, 1.25)
RESAMPLES = 2000
LEVEL = 0.9
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Curve:
    """Learning curve: mean score of unseen people by the amount of training data.

    Scores are balanced accuracies of linear discriminants. Each person is predicted by models of other people.
    """

    unit: str  # people, or windows a person
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
        more = f" ({self.then - self.now:,} more)" if self.unit == "people" else ""
        return [
            f"balanced accuracy of unseen people, by number of training {self.unit}",
            *(f"  {n:>{width},}  {score(value)}  {bar}" for n, value, bar in points),
            f"trained on {self.then:,} {self.unit} in place of {self.now:,}{more}: {signed(self.gain)} expected "
            f"({100 * LEVEL:.0f} % interval {range_words((self.low, self.high))})",
        ]


@dataclass(frozen=True)
class StudyPlan:
    """The gains that `plan_study` expects from more people and from more windows."""

    data: str  # name of the recordings
    people: Curve  # by the number of training people
    windows: Curve | None  # by the windows of each, with all people; None where there are too few for a curve
    models: list[str]  # representations whose discriminants were averaged
    tested: int  # people who were predicted

    def lines(self) -> list[str]:
        """Return both curves as lines of text."""
        curves = [self.people, *([] if self.windows is None else [self.windows])]
        about = (
            f"{self.data}: {count(self.tested, 'person', 'people')} tested, each by models of up to "
            f"{self.people.now:,} others, discriminants on"
        )
        note = (
            "Networks and the weighted average of a run are not among these models. An interval that holds 0 says that "
            "these recordings cannot tell."
        )
        return [f"{about} {', '.join(self.models)}", *(line for curve in curves for line in curve.lines()), note]


def gains(sizes: Sequence[int], scores: Floats, now: int, then: int) -> Floats:
    """Return the rise of curves from `now` to `then`, by least squares with each exponent: sizes (S,), scores (R, S) ->
    (exponents, R)."""
    n, rises = np.asarray(sizes, dtype=np.float64), []
    for c in EXPONENTS:
        x = n**-c - (n**-c).mean()
        drop = -(scores @ x) / (x**2).sum()
        rises.append(drop * (now**-c - then**-c))
    return np.stack(rises)


def expected_gain(sizes: Sequence[int], scores: Floats, now: int, then: int) -> tuple[float, float, float]:
    """Return the expected rise of the mean curve from `now` to `then`, and its interval, such that no score leaves 0 to
    1: scores (people, S)."""
    people, draw = len(scores), np.random.default_rng(0)
    rows = draw.integers(0, people, (RESAMPLES, people))
    again = gains(sizes, scores[rows].mean(1), now, then)
    again = again[draw.integers(0, len(EXPONENTS), RESAMPLES), np.arange(RESAMPLES)]
    tail = expanded_tail(people, LEVEL)
    expected = gains(sizes, scores.mean(0)[None], now, then).mean()
    reached = float(scores[:, -1].mean())
    gain, low, high = np.clip([expected, *np.quantile(again, (tail, 1 - tail))], -reached, 1 - reached).tolist()
    return gain, low, high


def plan_study(recordings: Recordings, *, more_people: int = 10) -> StudyPlan:
    """Estimate the gains from more people and from twice the windows of each.

    Learning curves of linear discriminants are measured on a pilot study with at least five people who can be scored,
    and extrapolated by power laws. Every score is on unseen people.

    more_people: number of additional people
    Returns both curves, each with the expected gain and its 90 % interval; `lines()` describes them.
    """
    check_recordings(recordings, "plan_study")
    check_more_people(more_people)
    pilot = Pilot(recordings)
    everybody = len(pilot.people) - 1
    sizes = _spread(2, everybody)
    people = _curve("people", sizes, [pilot.scores(n) for n in sizes], everybody, everybody + more_people)
    first, last = FEWEST_WINDOWS * recordings.n_classes, int(np.median(list(map(len, pilot.rows.values()))))
    windows = None
    if last >= 2 * first:
        numbers = _spread(first, last)
        scores = [pilot.scores(everybody, n) for n in numbers]
        windows = _curve("windows a person", numbers, scores, pilot.windows, 2 * pilot.windows)
    return StudyPlan(recordings.name, people, windows, pilot.models, len(pilot.tested))


def check_more_people(value: object, name: str = "more_people") -> None:
    """Raise unless it is a sensible number of people."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
        raise UserError(f"{name} is {shown(value)}; it must be a whole number from 1 to {MOST:,}")


def _curve(unit: str, sizes: list[int], scores: Sequence[Floats], now: int, then: int) -> Curve:
    by_person = np.stack(scores, 1)  # (people, sizes)
    return Curve(unit, sizes, by_person.mean(0).tolist(), now, then, *expected_gain(sizes, by_person, now, then))


def _spread(low: int, high: int) -> list[int]:
    """Return about SIZES whole numbers from low to high, evenly on a scale of logarithms."""
    return [int(n) for n in np.unique(np.geomspace(low, high, SIZES).round())]


class Pilot:
    """Features of the recordings' windows, which depend neither on the fold nor on the person."""

    def __init__(self, recordings: Recordings) -> None:
        self.people = scorable_subjects(recordings)
        if len(self.people) < FEWEST:
            raise UserError(
                f"{count(len(self.people), 'person', 'people')} of {shown(recordings.name)} can be scored; a learning "
                f"curve needs at least {FEWEST}"
            )
        places = np.linspace(0, len(self.people) - 1, TESTED).round().astype(int)
        self.tested = [self.people[place] for place in np.unique(places)]
        y, who, self.n_classes = recordings.y.numpy(), recordings.subject.numpy(), recordings.n_classes
        every = {person: np.flatnonzero(who == person) for person in self.people}
        self.windows = int(np.median([len(rows) for rows in every.values()]))  # of a person
        most = max(WINDOWS // len(every), 4 * self.n_classes)
        # The first windows of a person, any number of them, hold the classes in equal parts.
        self.rows = {person: _in_turns(rows, y, person)[:most] for person, rows in every.items()}
        self.y = {person: torch.from_numpy(y[rows]) for person, rows in self.rows.items()}
        settings = _settings(recordings)
        self.models = [setting.family for setting in settings]
        self.codes = [
            {person: _codes(recordings, setting, rows) for person, rows in self.rows.items()} for setting in settings
        ]

    def scores(self, n: int, windows: int | None = None) -> Floats:
        """Return the score of each tested person after training on n others, the mean over draws. windows: how many of
        each are used; None: all."""
        sums = [
            {p: Sums.of(codes[p][:windows], self.y[p][:windows], self.n_classes) for p in self.people}
            for codes in self.codes
        ]
        scores = []
        for person in self.tested:
            others = [other for other in self.people if other != person]
            orders = [np.random.default_rng((person, draw)).permutation(others).tolist() for draw in range(DRAWS)]
            groups = {frozenset(order[:n]) for order in orders}
            scores.append(np.mean([self._score(sorted(group), sums, person) for group in groups]))
        return np.array(scores)

    def _score(self, train: Sequence[int], sums: Sequence[dict[int, Sums]], person: int) -> float:
        log_p = torch.zeros(len(self.y[person]), self.n_classes, dtype=torch.float64)
        for codes, of_people in zip(self.codes, sums, strict=True):
            log_p += Sums.total([of_people[other] for other in train]).log_probabilities(codes[person])
        return balanced_accuracy_of(log_p.argmax(1).numpy(), self.y[person].numpy(), self.n_classes)


class Sums(NamedTuple):
    """Sufficient statistics of codes (n, D) in K classes for a linear discriminant. float64."""

    counts: Tensor  # (K,)
    totals: Tensor  # (K, D)
    products: Tensor  # (D, D) Σ z zᵀ

    @classmethod
    def of(cls, codes: Tensor, y: Tensor, n_classes: int) -> Sums:
        counts = torch.bincount(y, minlength=n_classes).double()
        return cls(counts, codes.new_zeros(n_classes, codes.shape[1]).index_add_(0, y, codes), codes.T @ codes)

    @classmethod
    def total(cls, sums: Sequence[Sums]) -> Sums:
        return cls(*(sum(tensors[1:], tensors[0]) for tensors in zip(*sums, strict=True)))

    def log_probabilities(self, codes: Tensor) -> Tensor:
        """Map codes (m, D) to log-probabilities (m, K), as `training.closed_form` has them: codes standardized by the
        training windows, one shrunk covariance, classes equally likely. A class without training windows is never
        predicted."""
        n, dim = self.counts.sum(), codes.shape[1]
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
        logits = (codes - center) * scale @ weight.T - 0.5 * (weight * means).sum(1)
        return torch.log_softmax(logits.masked_fill(self.counts == 0, ABSENT_LOGIT), 1)


def _in_turns(rows: Rows, y: Rows, seed: int) -> Rows:
    """Shuffle rows so that classes take turns as long as they have rows."""
    shuffled = np.random.default_rng(seed).permutation(rows)
    turn = np.zeros(len(rows), dtype=np.int64)
    for label in np.unique(y[rows]):
        of_class = y[shuffled] == label
        turn[of_class] = np.arange(of_class.sum())
    return shuffled[np.argsort(turn, kind="stable")]


def _settings(recordings: Recordings) -> list[Setting]:
    """Return linear models, one of each kind, whose codes depend neither on the fold nor on the person: the first of
    those that are small enough, otherwise the smallest."""
    forms = linear_candidates("zero-shot", recordings)
    fixed = [form for form in forms if form.encoder == "linear" and form.preprocessing.n_until_representation]
    of_kinds = list({form.family: form for form in reversed(fixed)}.values())[::-1]

    def numbers(form: Setting) -> int:
        return math.prod(form.preprocessing.shape(recordings.n_channels, recordings.n_times))

    small = [form for form in of_kinds if numbers(form) <= NUMBERS]
    return small[:KINDS] or [min(of_kinds, key=numbers)]


def _codes(recordings: Recordings, setting: Setting, rows: Rows) -> Tensor:
    """Return codes (rows, D) in float64. Codes of too many numbers have the same random projection for everybody."""
    chain, parts = setting.preprocessing, []
    first, who = torch.from_numpy(rows[:2]), recordings.subject
    fitted = chain.fit(recordings.X[first].float(), who[first], [np.arange(len(first))])
    for chunk in row_chunks(len(rows), recordings.n_channels * recordings.n_times):
        places = torch.from_numpy(rows[chunk])
        parts.append(fitted(recordings.X[places].float()[None], who[places][None])[0].flatten(1).double())
    codes = torch.cat(parts)
    if codes.shape[1] <= NUMBERS:
        return codes
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (codes.shape[1], NUMBERS))
    return codes @ torch.from_numpy(signs / np.sqrt(codes.shape[1]))
