"""Evidence of regression: predictions of held-out subjects by ridge regressions, and strengths and weights from them.

Each candidate is a representation of windows with a ridge regression on it. Groups of subjects are held out in turn,
and a candidate's predictions for them decide its strength and its weight in the ensemble

    ŷ = ȳ + Σ_k w_k (f_k − ȳ),    w_k ≥ 0, Σ_k w_k ≤ 1, least squares over held-out windows, every subject counts alike.

The mean ȳ of the training targets has the rest of the weight: what subjects do not share is shrunk away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from ..folds import scorable_subjects
from ..recordings.units import Units
from ..runs.choice import NamedSetting, Scores
from ..runs.database import Entry
from ..runs.run import Run
from ..tasks import Metric
from ..training.ridge import STRENGTHS

Floats = NDArray[np.float64]
HEAVY = 1e4  # times all else


@dataclass(frozen=True)
class RegressionEvidence:
    """Predictions of K candidates with S strengths for every window, by fits that held its subject out."""

    candidates: tuple[NamedSetting, ...]
    subjects: tuple[str, ...]  # names by number
    metric: Metric  # of the run
    rows: tuple[NDArray[np.int64], ...]  # windows of each subject
    y: Floats  # (N,)
    constant: Floats  # (N,) mean of the training targets
    predicted: Floats  # (K, S, N)
    errors: Floats  # (K, S, subjects) mean squared errors
    scored: frozenset[int]  # subjects who can have a score
    deciding: tuple[int, ...]  # subjects whose errors decide
    units: Units | None = None  # parts of people, if these are held out
    pools: dict[int, Floats] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_run(cls, run: Run, candidates: Sequence[NamedSetting]) -> RegressionEvidence:
        """Collect the evidence of the finished fits of a run."""
        rec = run.recordings
        y, subject = rec.truth.numpy(), rec.subject.numpy()
        constant, predicted = np.empty(len(y)), np.empty((len(candidates), len(STRENGTHS), len(y)))
        for k, named in enumerate(candidates):
            for held_out in run.folds():
                entry = Entry.build("folds", named.setting, *held_out, run.options.seed)
                fold = run.job(entry).fold
                constant[fold.test] = y[fold.train].mean()
                stored = run.stored_predictions(entry.key, (len(fold.test), len(STRENGTHS)))
                predicted[k][:, fold.test] = stored.T.numpy()
        rows = tuple(np.flatnonzero(subject == person) for person in range(rec.n_subjects))
        return cls(
            candidates=tuple(candidates), subjects=tuple(map(str, rec.subjects)), metric=run.options.scoring,
            rows=rows, y=y, constant=constant, predicted=predicted, errors=errors_of(predicted, y, rows),
            scored=frozenset(scorable_subjects(rec)), deciding=tuple(range(len(rows))), units=run.data.units,
        )  # fmt: skip

    def without(self, subjects: Iterable[int]) -> RegressionEvidence:
        """Return the evidence that these subjects take no part in."""
        out = frozenset(subjects)
        return replace(self, deciding=tuple(who for who in self.deciding if who not in out), pools={})

    @property
    def people(self) -> list[int]:
        return list(range(len(self.rows)))

    @property
    def blocks(self) -> list[list[int]]:
        """Return subjects to leave out together: each alone."""
        return [[who] for who in self.people]

    @property
    def trained(self) -> list[int]:
        return list(range(len(self.candidates)))

    def uncensored(self, among: Iterable[int]) -> list[int]:
        return list(among)

    @cached_property
    def strengths(self) -> list[int]:
        """Return the index of the best strength of each candidate."""
        strengths: list[int] = self.errors[..., self.deciding].mean(-1).argmin(1).tolist()
        return strengths

    def strength(self, candidate: int) -> float:
        return STRENGTHS[self.strengths[candidate]]

    def best(self, among: Sequence[int]) -> int:
        """Return the candidate with the smallest error, each with its best strength."""
        return among[int(self.errors[..., self.deciding].mean(-1).min(1)[list(among)].argmin())]

    def weights(self, among: Sequence[int]) -> Floats:
        """Return weights (K,) of all candidates, 0 for those that are not `among` the ones to weigh."""
        rows = np.concatenate([self.rows[who] for who in self.deciding])
        count = np.concatenate([np.full(len(self.rows[who]), len(self.rows[who])) for who in self.deciding])
        predicted = np.stack([self.predicted[k, self.strengths[k], rows] for k in among], axis=1)
        root = 1 / np.sqrt(count)
        shares = np.zeros(len(self.candidates))
        shares[list(among)] = average_shares(
            (predicted - self.constant[rows, None]) * root[:, None], (self.y[rows] - self.constant[rows]) * root
        )
        return shares

    def validation(self, candidate: int) -> Floats:
        """Return the scores of people by a candidate with the strength that all of them decide."""
        predicted = self.predicted[candidate, self.strengths[candidate]]
        scores = self.scores_of(self.metric, {who: predicted[rows] for who, rows in enumerate(self.rows)})
        return np.array(list((scores if self.units is None else self.units.by_person(scores)).values()))

    def pool(self, subject: int) -> Floats:
        """Return predictions (K, n) of a subject, with strengths that the others decided."""
        if subject not in self.pools:
            rows, strengths = self.rows[subject], self.without([subject]).strengths
            self.pools[subject] = np.stack([self.predicted[k, s, rows] for k, s in enumerate(strengths)])
        return self.pools[subject]

    def combine(self, weights: Floats, subject: int) -> Floats:
        """Return predictions (n,) of a subject by the candidates with these weights (K,)."""
        constant = self.constant[self.rows[subject]]
        return np.asarray(constant + weights @ (self.pool(subject) - constant))

    def scores_of(self, metric: Metric, predictions: Mapping[int, NDArray[np.floating]]) -> Scores:
        """Score predictions (n,) by subject, of those who can be scored."""
        return {
            self.subjects[who]: metric.score(self.y[self.rows[who]], np.asarray(predicted, dtype=np.float64))
            for who, predicted in predictions.items()
            if who in self.scored
        }

    @property
    def guessing(self) -> Scores:
        """Return the scores of the mean of the training targets."""
        return self.scores_of(self.metric, {who: self.constant[rows] for who, rows in enumerate(self.rows)})

    @property
    def single_scores(self) -> dict[str, Scores]:
        """Return scores by candidate and subject, with strengths that the other subjects decided."""
        return {
            named.name: self.scores_of(self.metric, {who: self.pool(who)[k] for who in self.people})
            for k, named in enumerate(self.candidates)
        }


def errors_of(predicted: Floats, y: Floats, rows: Sequence[NDArray[np.int64]]) -> Floats:
    """Return mean squared errors (K, S, subjects) of predictions (K, S, N)."""
    squares = np.square(predicted - y)
    return np.stack([squares[..., of_subject].mean(-1) for of_subject in rows], axis=-1)


def average_shares(predicted: Floats, target: Floats) -> Floats:
    """Fit weights w (K,) ≥ 0 by least squares |predicted (n, K) · w − target (n,)|², with a sum of at most 1."""
    weights: Floats = nnls(predicted, target)[0]
    if weights.sum() <= 1:
        return weights
    # Where the bound is active, the sum is 1: one more row that outweighs all others.
    heavy = HEAVY * np.sqrt(np.square(predicted).sum())
    weights = nnls(np.vstack([predicted, np.full(len(weights), heavy)]), np.append(target, heavy))[0]
    return np.asarray(weights / weights.sum())
