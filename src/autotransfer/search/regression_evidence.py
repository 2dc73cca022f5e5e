"""Evidence of regression: predictions of held-out subjects by ridge regressions, with strengths and weights from them.

Each candidate is a ridge regression on one representation of windows. Its predictions for held-out subjects determine
its strength and its weight in the ensemble

    ŷ = ȳ + Σ_k w_k (f_k − ȳ),    w_k ≥ 0, Σ_k w_k ≤ 1, least squares with the same total weight for every subject.

The mean ȳ of the training targets has the rest of the weight.
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
HEAVY = 1e4  # weight of the row that bounds the sum, relative to all other rows


@dataclass(frozen=True)
class RegressionEvidence:
    """Predictions of K candidates with S strengths for N windows, by fits that held the window's subject out."""

    candidates: tuple[NamedSetting, ...]
    subjects: tuple[str, ...]  # names; all other fields have their indices
    metric: Metric  # of the run
    rows: tuple[NDArray[np.int64], ...]  # windows of each subject
    y: Floats  # (N,)
    constant: Floats  # (N,) mean of the training targets
    predicted: Floats  # (K, S, N)
    errors: Floats  # (K, S, subjects) mean squared errors
    scored: frozenset[int]  # subjects who can have a score
    fitted: tuple[int, ...]  # subjects on whom strengths and weights are fitted
    units: Units | None = None  # parts of persons, if these are held out
    rule = "least squares"
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
            rows=rows, y=y, constant=constant, predicted=predicted, errors=mean_squared_errors(predicted, y, rows),
            scored=frozenset(scorable_subjects(rec)), fitted=tuple(range(len(rows))), units=run.data.units,
        )  # fmt: skip

    def without(self, subjects: Iterable[int]) -> RegressionEvidence:
        """Return the evidence that does not depend on these subjects."""
        out = frozenset(subjects)
        return replace(self, fitted=tuple(who for who in self.fitted if who not in out), pools={})

    @property
    def held_out_subjects(self) -> list[int]:
        """Return all subjects; `score` leaves out those who cannot be scored."""
        return list(range(len(self.rows)))

    @property
    def blocks(self) -> list[list[int]]:
        """Return subjects to leave out together: each alone."""
        return [[who] for who in self.held_out_subjects]

    @property
    def trained(self) -> list[int]:
        return list(range(len(self.candidates)))

    @cached_property
    def best_strengths(self) -> list[int]:
        """Return the index of the best strength of each candidate."""
        indices: list[int] = self.errors[..., self.fitted].mean(-1).argmin(1).tolist()
        return indices

    @property
    def strengths(self) -> list[float]:
        return [STRENGTHS[index] for index in self.best_strengths]

    def best(self, among: Sequence[int]) -> int:
        """Return the candidate with the smallest error at its best strength."""
        return among[int(self.errors[..., self.fitted].mean(-1).min(1)[list(among)].argmin())]

    def weights(self, among: Sequence[int]) -> Floats:
        """Return weights (K,) of all candidates; candidates that are not in `among` have 0."""
        rows = np.concatenate([self.rows[who] for who in self.fitted])
        count = np.concatenate([np.full(len(self.rows[who]), len(self.rows[who])) for who in self.fitted])
        predicted = np.stack([self.predicted[k, self.best_strengths[k], rows] for k in among], axis=1)
        root = 1 / np.sqrt(count)
        weights = np.zeros(len(self.candidates))
        weights[list(among)] = fit_bounded_weights(
            (predicted - self.constant[rows, None]) * root[:, None], (self.y[rows] - self.constant[rows]) * root
        )
        return weights

    def candidate_validation(self, candidate: int) -> Floats:
        """Return a candidate's score on each person, with the strength that is best for all."""
        predicted = self.predicted[candidate, self.best_strengths[candidate]]
        scores = self.score(self.metric, {who: predicted[rows] for who, rows in enumerate(self.rows)})
        return np.array(list((scores if self.units is None else self.units.average_by_person(scores)).values()))

    def pool(self, subject: int) -> Floats:
        """Return predictions (K, n) of a subject, with strengths that are best for the other subjects."""
        if subject not in self.pools:
            rows, strengths = self.rows[subject], self.without([subject]).best_strengths
            self.pools[subject] = np.stack([self.predicted[k, s, rows] for k, s in enumerate(strengths)])
        return self.pools[subject]

    def combine(self, weights: Floats, subject: int) -> Floats:
        """Return predictions (n,) of a subject by the candidates with these weights (K,)."""
        constant = self.constant[self.rows[subject]]
        return np.asarray(constant + weights @ (self.pool(subject) - constant))

    def score(self, metric: Metric, predictions: Mapping[int, NDArray[np.floating]]) -> Scores:
        """Score predictions (n,) by subject, without subjects who cannot be scored."""
        return {
            self.subjects[who]: metric.score(self.y[self.rows[who]], np.asarray(predicted, dtype=np.float64))
            for who, predicted in predictions.items()
            if who in self.scored
        }

    @property
    def constant_scores(self) -> Scores:
        """Return the scores of the mean of the training targets."""
        return self.score(self.metric, {who: self.constant[rows] for who, rows in enumerate(self.rows)})

    @property
    def candidate_scores(self) -> dict[str, Scores]:
        """Return scores by candidate and subject, with strengths that are best for the other subjects."""
        return {
            named.name: self.score(self.metric, {who: self.pool(who)[k] for who in self.held_out_subjects})
            for k, named in enumerate(self.candidates)
        }


def mean_squared_errors(predicted: Floats, y: Floats, rows: Sequence[NDArray[np.int64]]) -> Floats:
    """Return mean squared errors (K, S, subjects) of predictions (K, S, N)."""
    squares = np.square(predicted - y)
    return np.stack([squares[..., of_subject].mean(-1) for of_subject in rows], axis=-1)


def fit_bounded_weights(predicted: Floats, target: Floats) -> Floats:
    """Fit weights w (K,) ≥ 0 by least squares |predicted (n, K) · w − target (n,)|², with a sum of at most 1."""
    weights: Floats = nnls(predicted, target)[0]
    if weights.sum() <= 1:
        return weights
    # The bound is active: a row that outweighs all others makes the sum 1.
    heavy = HEAVY * np.sqrt(np.square(predicted).sum())
    weights = nnls(np.vstack([predicted, np.full(len(weights), heavy)]), np.append(target, heavy))[0]
    return np.asarray(weights / weights.sum())
