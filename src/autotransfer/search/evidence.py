"""Evidence from which a run selects: validation scores and predictions of held-out subjects, but no test scores."""

from __future__ import annotations

import math
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
from .held_out import (
    NEAR,
    Array,
    FitKey,
    Score,
    finite_log,
    held_out_log_probs,
    held_out_scores,
    lower_quartile,
    mean_score,
    score_subject,
    scores_by_subject,
    validation_scores,
)
from .weights import Floats, balanced_sample_weight, combine_log_probs, fit_weights, shrunk_sharpness

MAX_CANDIDATES = 12  # of a delivered ensemble: a prediction waits for all of them
MIN_SHARE = 0.01  # of the weights: a candidate with less is left out
WINDOWS = 100  # of a subject and fit that weights are fitted on
MAX_WINDOWS = 20_000  # of all subjects and fits that weights are fitted on
BLOCKS = 40  # times that weights are fitted again: of more subjects, several are left out together
HEAVY = 1e4  # weight of the row that bounds the sum of weights, relative to all other rows


@dataclass(frozen=True)
class ClassificationEvidence:
    """Validation scores, and predictions of held-out subjects with their classes.

    Every fit holds out two subjects or groups, and each is predicted by the snapshot that the other one selected. So
    `evidence.without([subject])` depends on no label, score or fit of the subject. It has no test scores.
    """

    candidates: tuple[NamedSetting, ...]
    subjects: tuple[str, ...]  # names; all other fields have their indices
    log_probs: Mapping[FitKey, Array]  # by fit and held-out subject: (candidates, n, classes), mean over seeds
    y: Mapping[int, NDArray[np.int64]]  # classes (n,) of each subject
    scores: tuple[Score, ...] = ()
    trained: tuple[int, ...] = ()  # candidates with a finished fit
    rule: str = "average"  # of the run
    windows: int = WINDOWS  # of a subject and fit that weights are fitted on
    pools: dict[int, Array] = field(default_factory=dict, repr=False, compare=False)  # by subject with all their fits
    partial: frozenset[int] = frozenset()  # subjects some of whose fits are left out

    @classmethod
    def from_run(cls, run: Run, candidates: Sequence[NamedSetting], entries: Sequence[Entry]) -> ClassificationEvidence:
        """Collect the evidence of finished jobs of a run."""
        rec, settings = run.recordings, [named.setting for named in candidates]
        known, subject_of_window = set(scorable_subjects(rec)), rec.subject.numpy()
        rule = run.options.rule
        scores = validation_scores(entries, run.groups) if rule == "published" else held_out_scores(run, entries)
        log_probs = held_out_log_probs(run, settings, entries)
        done = {entry.setting for entry in entries if entry.status == "done"}
        return cls(
            candidates=tuple(candidates),
            subjects=tuple(map(str, rec.subjects)),
            log_probs=log_probs,
            y={subject: rec.y.numpy()[subject_of_window == subject] for subject in range(rec.n_subjects)},
            scores=tuple(score for score in scores if score.subject in known),
            trained=tuple(k for k, setting in enumerate(settings) if setting in done) or (0,),
            rule=rule,
            windows=max(10, min(WINDOWS, MAX_WINDOWS // len(log_probs))),
        )

    def without(self, subjects: Iterable[int]) -> ClassificationEvidence:
        """Return the evidence that does not depend on these subjects."""
        out = frozenset(subjects)
        log_probs = {(fold, who): log_p for (fold, who), log_p in self.log_probs.items() if out.isdisjoint(fold)}
        partial = self.partial | {who for fold, who in self.log_probs if not out.isdisjoint(fold)}
        return replace(
            self,
            log_probs=log_probs,
            y={subject: y for subject, y in self.y.items() if subject not in out},
            scores=tuple(s for s in self.scores if s.subject not in out and out.isdisjoint(s.others)),
            pools={subject: self.pool(subject) for subject in self.held_out_subjects if subject not in partial},
            partial=partial,
        )

    @cached_property
    def held_out_subjects(self) -> list[int]:
        """Return the held-out subjects with windows of at least two classes."""
        return sorted(who for who in {who for _, who in self.log_probs} if len(np.unique(self.y[who])) > 1)

    @property
    def strengths(self) -> list[None]:
        """Return the strength of each candidate's ridge penalty: classification has none."""
        return [None] * len(self.candidates)

    @property
    def blocks(self) -> list[list[int]]:
        """Return subjects to leave out together: at most BLOCKS blocks of whole groups that the same fits held out."""
        groups: dict[frozenset[tuple[int, ...]], list[int]] = {}
        for subject in self.held_out_subjects:
            groups.setdefault(frozenset(fold for fold, who in self.log_probs if who == subject), []).append(subject)
        whole = list(groups.values())
        parts = np.array_split(np.arange(len(whole)), min(len(whole), BLOCKS))
        return [[subject for place in part.tolist() for subject in whole[place]] for part in parts]

    def pool(self, subject: int) -> Array:
        """Return log-probabilities (candidates, n, classes) of a subject: the mean probability over fits."""
        if subject not in self.pools:
            fits = [np.exp(log_p) for (_, who), log_p in self.log_probs.items() if who == subject]
            self.pools[subject] = finite_log(np.mean(fits, 0))
        return self.pools[subject]

    def best(self, among: Sequence[int]) -> int:
        """Return the candidate with the highest lower quartile; in ensembles, of those near the best mean."""
        values = {k: self.candidate_validation(k) for k in among}
        means = {k: mean_score(of_candidate) for k, of_candidate in values.items()}
        least = -math.inf if self.rule == "published" else max(means.values()) - NEAR
        near = [k for k in among if means[k] >= least]
        return max(near, key=lambda k: (lower_quartile(values[k]), means[k]))  # the first of equal candidates

    def weights(self, among: Sequence[int]) -> Floats:
        """Return weights (K,) of all candidates; candidates that are not in `among`, or have a small weight, have 0.

        Weights are equal if no subject is left to fit them on, or if no candidate helps to predict.
        """
        kept, weights = np.asarray(among), np.zeros(len(self.candidates))
        if not self.held_out_subjects:
            weights[kept] = 1 / len(kept)
            return weights
        log_p, y, weight = self._fit_data()
        beta = fit_weights(log_p[kept], y, weight)
        # The candidates with the largest weights are weighed again without the others.
        order = np.argsort(-beta, kind="stable")[:MAX_CANDIDATES]
        enough = beta[order] >= MIN_SHARE * beta.sum()
        if enough.sum() < len(kept):
            kept = np.sort(kept[order[enough]])
            beta = fit_weights(log_p[kept], y, weight)
        # A pool of fewer fits is more confident, so the temperature is fitted on subjects with all of their fits.
        complete = [subject for subject in self.held_out_subjects if subject not in self.partial]
        subjects = complete or self.held_out_subjects
        shares = beta / beta.sum() if beta.any() else np.full(len(kept), 1 / len(kept))
        combined = [combine_log_probs(shares, self.pool(subject)[kept]) for subject in subjects]
        weights[kept] = shares * shrunk_sharpness(combined, [self.y[subject] for subject in subjects])
        return weights

    def _fit_data(self) -> tuple[NDArray[np.float32], NDArray[np.int64], Floats]:
        """Return log-probabilities (K, N, C), classes (N,) and weights (N,); every fit and subject counts the same."""
        used = [(who, log_p) for (_, who), log_p in self.log_probs.items() if who in self.held_out_subjects]
        parts, labels, weights = [], [], []
        for subject, log_p in used:
            y = self.y[subject]
            rows = np.sort(np.random.default_rng(subject).permutation(len(y))[: self.windows])
            parts.append(log_p[:, rows])
            labels.append(y[rows])
            weights.append(balanced_sample_weight(y[rows]) / len(used))
        return np.concatenate(parts, 1), np.concatenate(labels), np.concatenate(weights)

    def combine(self, weights: Floats, subject: int) -> Floats:
        """Return log-probabilities (n, classes) of a subject by the candidates with these weights (K,)."""
        return combine_log_probs(weights, self.pool(subject))

    def score(self, metric: Metric, log_probs: Mapping[int, NDArray[np.floating]]) -> Scores:
        """Score log-probabilities (n, classes) by subject."""
        return {self.subjects[w]: score_subject(metric, self.y[w], np.exp(log_p)) for w, log_p in log_probs.items()}

    def candidate_validation(self, candidate: int) -> Floats:
        """Return a candidate's mean validation score on each subject."""
        return scores_by_subject(self.scores, self.candidates[candidate].setting.key)


@dataclass(frozen=True)
class RegressionEvidence:
    """Predictions of K ridge regressions with S strengths for N windows, by fits that held the window's subject out.

    These determine the strength of each candidate and its weight in ŷ = ȳ + Σ_k w_k (f_k − ȳ), w_k ≥ 0, Σ_k w_k ≤ 1, by
    least squares with the same total weight for every subject. ȳ is the mean of the training targets.
    """

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


Evidence = ClassificationEvidence | RegressionEvidence
