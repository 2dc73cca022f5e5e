"""Evidence from which models are selected: validation scores and predictions of held-out subjects, no test scores."""

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

MAX_CANDIDATES = 12  # candidates of a delivered ensemble; each of them adds time to a prediction
MIN_SHARE = 0.01  # smallest share of a candidate in the sum of weights; other candidates are left out
WINDOWS = 100  # windows per subject and fit from which weights are computed
MAX_WINDOWS = 20_000  # windows of all subjects and fits from which weights are computed
BLOCKS = 40  # largest number of blocks of subjects that are left out together
HEAVY = 1e4  # weight of the row that bounds the sum of weights, relative to all other rows


@dataclass(frozen=True)
class ClassificationEvidence:
    """Validation scores, predictions and classes of held-out subjects.

    Every fit holds out two subjects or two groups of subjects, and the checkpoint that is selected on one predicts the
    other. Therefore, `evidence.without([subject])` does not depend on labels, scores or fits of the subject.
    """

    candidates: tuple[NamedSetting, ...]
    subjects: tuple[str, ...]  # names; all other fields refer to subjects by their index in this tuple
    log_probs: Mapping[FitKey, Array]  # by fit and held-out subject: (candidates, n, classes), mean over seeds
    y: Mapping[int, NDArray[np.int64]]  # classes (n,) of each subject
    scores: tuple[Score, ...] = ()
    trained: tuple[int, ...] = ()  # indices of candidates with a finished fit
    rule: str = "average"  # option of the run
    max_windows: int = WINDOWS  # windows per subject and fit from which weights are computed
    pools: dict[int, Array] = field(default_factory=dict, repr=False, compare=False)  # cache of `pool`
    incomplete: frozenset[int] = frozenset()  # subjects for which some fits are left out

    @classmethod
    def from_run(cls, run: Run, candidates: Sequence[NamedSetting], entries: Sequence[Entry]) -> ClassificationEvidence:
        """Collect the evidence of finished jobs of a run."""
        rec, settings = run.recordings, [candidate.setting for candidate in candidates]
        scorable, subject_of_window = set(scorable_subjects(rec)), rec.subject.numpy()
        rule = run.options.rule
        scores = validation_scores(entries, run.groups) if rule == "published" else held_out_scores(run, entries)
        log_probs = held_out_log_probs(run, settings, entries)
        trained = {entry.setting for entry in entries if entry.status == "done"}
        return cls(
            candidates=tuple(candidates),
            subjects=tuple(map(str, rec.subjects)),
            log_probs=log_probs,
            y={subject: rec.y.numpy()[subject_of_window == subject] for subject in range(rec.n_subjects)},
            scores=tuple(score for score in scores if score.subject in scorable),
            trained=tuple(k for k, setting in enumerate(settings) if setting in trained) or (0,),
            rule=rule,
            max_windows=max(10, min(WINDOWS, MAX_WINDOWS // len(log_probs))),
        )

    def without(self, subjects: Iterable[int]) -> ClassificationEvidence:
        """Return the evidence that does not depend on these subjects."""
        out = frozenset(subjects)
        log_probs = {key: log_p for key, log_p in self.log_probs.items() if out.isdisjoint(key[0])}
        incomplete = self.incomplete | {subject for fold, subject in self.log_probs if not out.isdisjoint(fold)}
        return replace(
            self,
            log_probs=log_probs,
            y={subject: y for subject, y in self.y.items() if subject not in out},
            scores=tuple(s for s in self.scores if s.subject not in out and out.isdisjoint(s.held_out_with)),
            pools={subject: self.pool(subject) for subject in self.held_out_subjects if subject not in incomplete},
            incomplete=incomplete,
        )

    @cached_property
    def held_out_subjects(self) -> list[int]:
        """Return the held-out subjects with windows of at least two classes."""
        return sorted({subject for _, subject in self.log_probs if len(np.unique(self.y[subject])) > 1})

    @property
    def ridge_penalties(self) -> list[None]:
        """Return None for each candidate: ridge penalties are selected in regression only."""
        return [None] * len(self.candidates)

    @property
    def blocks(self) -> list[list[int]]:
        """Return at most BLOCKS blocks of subjects to leave out together; subjects of the same fits share a block."""
        groups: dict[frozenset[tuple[int, ...]], list[int]] = {}
        for subject in self.held_out_subjects:
            folds = frozenset(fold for fold, held_out in self.log_probs if held_out == subject)
            groups.setdefault(folds, []).append(subject)
        parts = np.array_split(np.arange(len(groups)), min(len(groups), BLOCKS))
        members = list(groups.values())
        return [[subject for group in part.tolist() for subject in members[group]] for part in parts]

    def pool(self, subject: int) -> Array:
        """Return the log of the mean probability over fits (candidates, n, classes) for a subject."""
        if subject not in self.pools:
            fits = [np.exp(log_p) for (_, held_out), log_p in self.log_probs.items() if held_out == subject]
            self.pools[subject] = finite_log(np.mean(fits, 0))
        return self.pools[subject]

    def best(self, indices: Sequence[int]) -> int:
        """Return the index of the candidate with the best lower quartile; for ensembles, its mean is near the best."""
        scores = {k: self.candidate_validation_scores(k) for k in indices}
        means = {k: mean_score(values) for k, values in scores.items()}
        lowest_mean = -math.inf if self.rule == "published" else max(means.values()) - NEAR
        finalists = [k for k in indices if means[k] >= lowest_mean]
        return max(finalists, key=lambda k: (lower_quartile(scores[k]), means[k]))  # the first of equal candidates

    def weights(self, indices: Sequence[int]) -> Floats:
        """Return weights (K,) of all candidates; small weights, and weights of candidates not in `indices`, are 0.

        Weights are equal if there are no held-out subjects, or if no candidate lowers the loss.
        """
        selected, weights = np.asarray(indices), np.zeros(len(self.candidates))
        if not self.held_out_subjects:
            weights[selected] = 1 / len(selected)
            return weights
        log_p, y, sample_weight = self._collect_training_data()
        beta = fit_weights(log_p[selected], y, sample_weight)
        # Weights are fitted again with only the candidates that have the largest weights.
        order = np.argsort(-beta, kind="stable")[:MAX_CANDIDATES]
        largest = order[beta[order] >= MIN_SHARE * beta.sum()]
        if len(largest) < len(selected):
            selected = np.sort(selected[largest])
            beta = fit_weights(log_p[selected], y, sample_weight)
        # A mean over fewer fits is more confident, so the temperature is fitted on subjects without missing fits.
        subjects = [s for s in self.held_out_subjects if s not in self.incomplete] or self.held_out_subjects
        shares = beta / beta.sum() if beta.any() else np.full(len(selected), 1 / len(selected))
        combined = [combine_log_probs(shares, self.pool(subject)[selected]) for subject in subjects]
        weights[selected] = shares * shrunk_sharpness(combined, [self.y[subject] for subject in subjects])
        return weights

    def _collect_training_data(self) -> tuple[NDArray[np.float32], NDArray[np.int64], Floats]:
        """Return log-probabilities (K, N, C), classes and sample weights (N,). Fits and subjects have equal weight."""
        pairs = [(key[1], log_p) for key, log_p in self.log_probs.items() if key[1] in self.held_out_subjects]
        parts, labels, weights = [], [], []
        for subject, log_p in pairs:
            y = self.y[subject]
            rows = np.sort(np.random.default_rng(subject).permutation(len(y))[: self.max_windows])
            parts.append(log_p[:, rows])
            labels.append(y[rows])
            weights.append(balanced_sample_weight(y[rows]) / len(pairs))
        return np.concatenate(parts, 1), np.concatenate(labels), np.concatenate(weights)

    def combine(self, weights: Floats, subject: int) -> Floats:
        """Return log-probabilities (n, classes) for a subject by the ensemble with these weights (K,)."""
        return combine_log_probs(weights, self.pool(subject))

    def score(self, metric: Metric, log_probs: Mapping[int, NDArray[np.floating]]) -> Scores:
        """Score log-probabilities (n, classes) by subject."""
        return {self.subjects[s]: score_subject(metric, self.y[s], np.exp(log_p)) for s, log_p in log_probs.items()}

    def candidate_validation_scores(self, candidate: int) -> Floats:
        """Return the mean validation score of a candidate on each subject."""
        return scores_by_subject(self.scores, self.candidates[candidate].setting.key)


@dataclass(frozen=True)
class RegressionEvidence:
    """Predictions of K ridge regressions with S ridge penalties for N windows of held-out subjects.

    Penalties and the weights in ŷ = ȳ + Σ_k w_k (f_k − ȳ), w_k ≥ 0, Σ_k w_k ≤ 1, are fitted by least squares with the
    same total weight for every subject. ȳ is the mean of the training targets.
    """

    candidates: tuple[NamedSetting, ...]
    subjects: tuple[str, ...]  # names; all other fields refer to subjects by their index in this tuple
    metric: Metric  # metric of the run
    rows: tuple[NDArray[np.int64], ...]  # windows of each subject
    y: Floats  # (N,)
    target_mean: Floats  # (N,) mean of the training targets
    predictions: Floats  # (K, S, N)
    errors: Floats  # (K, S, subjects) mean squared errors
    scorable: frozenset[int]  # subjects who can have a score
    remaining: tuple[int, ...]  # subjects from which ridge penalties and weights are computed
    units: Units | None = None  # parts of subjects, if parts are held out
    rule = "least squares"
    pools: dict[int, Floats] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_run(cls, run: Run, candidates: Sequence[NamedSetting]) -> RegressionEvidence:
        """Collect the evidence of the finished fits of a run."""
        rec = run.recordings
        y, subject = rec.truth.numpy(), rec.subject.numpy()
        target_mean, predictions = np.empty(len(y)), np.empty((len(candidates), len(STRENGTHS), len(y)))
        for k, candidate in enumerate(candidates):
            for held_out in run.folds():
                entry = Entry.build("folds", candidate.setting, *held_out, run.options.seed)
                fold = run.job(entry).fold
                target_mean[fold.test] = y[fold.train].mean()
                stored = run.stored_predictions(entry.key, (len(fold.test), len(STRENGTHS)))
                predictions[k][:, fold.test] = stored.T.numpy()
        rows = tuple(np.flatnonzero(subject == index) for index in range(rec.n_subjects))
        return cls(
            candidates=tuple(candidates), subjects=tuple(map(str, rec.subjects)), metric=run.options.scoring,
            rows=rows, y=y, target_mean=target_mean, predictions=predictions,
            errors=mean_squared_errors(predictions, y, rows), scorable=frozenset(scorable_subjects(rec)),
            remaining=tuple(range(len(rows))), units=run.data.units,
        )  # fmt: skip

    def without(self, subjects: Iterable[int]) -> RegressionEvidence:
        """Return the evidence that does not depend on these subjects."""
        out = frozenset(subjects)
        return replace(self, remaining=tuple(subject for subject in self.remaining if subject not in out), pools={})

    @property
    def held_out_subjects(self) -> list[int]:
        """Return all subjects; `score` skips subjects who cannot be scored."""
        return list(range(len(self.rows)))

    @property
    def blocks(self) -> list[list[int]]:
        """Return blocks of subjects to leave out together; each subject is a block."""
        return [[subject] for subject in self.held_out_subjects]

    @property
    def trained(self) -> list[int]:
        return list(range(len(self.candidates)))

    @cached_property
    def best_penalties(self) -> list[int]:
        """Return the index of the best ridge penalty of each candidate."""
        indices: list[int] = self.errors[..., self.remaining].mean(-1).argmin(1).tolist()
        return indices

    @property
    def ridge_penalties(self) -> list[float]:
        return [STRENGTHS[index] for index in self.best_penalties]

    def best(self, indices: Sequence[int]) -> int:
        """Return the index of the candidate with the smallest error at its best ridge penalty."""
        return indices[int(self.errors[..., self.remaining].mean(-1).min(1)[list(indices)].argmin())]

    def weights(self, indices: Sequence[int]) -> Floats:
        """Return weights (K,) of all candidates; weights of candidates not in `indices` are 0."""
        parts = [self.rows[subject] for subject in self.remaining]
        rows = np.concatenate(parts)
        scale = np.concatenate([np.full(len(part), 1 / np.sqrt(len(part))) for part in parts])
        predictions = np.stack([self.predictions[k, self.best_penalties[k], rows] for k in indices], axis=1)
        centered = (predictions - self.target_mean[rows, None]) * scale[:, None]
        weights = np.zeros(len(self.candidates))
        weights[list(indices)] = fit_bounded_weights(centered, (self.y[rows] - self.target_mean[rows]) * scale)
        return weights

    def candidate_validation_scores(self, candidate: int) -> Floats:
        """Return the score of a candidate on each subject, with the ridge penalty that is best for all subjects."""
        predictions = self.predictions[candidate, self.best_penalties[candidate]]
        scores = self.score(self.metric, {subject: predictions[rows] for subject, rows in enumerate(self.rows)})
        return np.array(list((scores if self.units is None else self.units.average_by_subject(scores)).values()))

    def pool(self, subject: int) -> Floats:
        """Return predictions (K, n) for a subject, with ridge penalties that are best for the other subjects."""
        if subject not in self.pools:
            rows, penalties = self.rows[subject], self.without([subject]).best_penalties
            self.pools[subject] = np.stack([self.predictions[k, s, rows] for k, s in enumerate(penalties)])
        return self.pools[subject]

    def combine(self, weights: Floats, subject: int) -> Floats:
        """Return predictions (n,) for a subject by the ensemble with these weights (K,)."""
        target_mean = self.target_mean[self.rows[subject]]
        return np.asarray(target_mean + weights @ (self.pool(subject) - target_mean))

    def score(self, metric: Metric, predictions: Mapping[int, NDArray[np.floating]]) -> Scores:
        """Score predictions (n,) by subject, without subjects who cannot be scored."""
        return {
            self.subjects[subject]: metric.score(self.y[self.rows[subject]], np.asarray(values, dtype=np.float64))
            for subject, values in predictions.items()
            if subject in self.scorable
        }

    @property
    def candidate_scores(self) -> dict[str, Scores]:
        """Return scores by candidate and subject, with ridge penalties that are best for the other subjects."""
        return {
            c.name: self.score(self.metric, {subject: self.pool(subject)[k] for subject in self.held_out_subjects})
            for k, c in enumerate(self.candidates)
        }


def mean_squared_errors(predictions: Floats, y: Floats, rows: Sequence[NDArray[np.int64]]) -> Floats:
    """Return mean squared errors (K, S, subjects) of predictions (K, S, N)."""
    squares = np.square(predictions - y)
    return np.stack([squares[..., part].mean(-1) for part in rows], axis=-1)


def fit_bounded_weights(predictions: Floats, target: Floats) -> Floats:
    """Fit weights w (K,) ≥ 0 by least squares |predictions (n, K) · w − target (n,)|², with a sum of at most 1."""
    weights: Floats = nnls(predictions, target)[0]
    if weights.sum() <= 1:
        return weights
    # The bound is active, so a row that outweighs all other rows forces the sum to be 1.
    heavy = HEAVY * np.sqrt(np.square(predictions).sum())
    weights = nnls(np.vstack([predictions, np.full(len(weights), heavy)]), np.append(target, heavy))[0]
    return np.asarray(weights / weights.sum())


Evidence = ClassificationEvidence | RegressionEvidence
