"""Selection among linear models that predict numbers: strengths and weights by least squares on held-out subjects.

Each candidate is a representation of windows with a ridge regression on it. Groups of people are held out in turn, and
a candidate's predictions for them decide its strength and its weight in the ensemble

    ŷ = ȳ + Σ_k w_k (f_k − ȳ),    w_k ≥ 0, Σ_k w_k ≤ 1, least squares over the held-out windows, every person alike,

with ȳ the mean of the training targets, which has the rest of the weight: what people do not share is shrunk away. For
a person's own score strengths and weights are chosen again without them: nobody decides about themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from torch import Tensor

from ..errors import UserError
from ..folds import Fold, not_scored, scorable, whole_people
from ..models.assembly import Part
from ..preprocessing import strongest
from ..runs.choice import (
    Choice,
    Diagnosis,
    Ensemble,
    Evaluation,
    IntervalCheck,
    NamedSetting,
    Scores,
    Selection,
    Weighted,
)
from ..runs.executor import LOG_PROBS
from ..runs.ledger import REMEDY
from ..runs.run import Run
from ..settings import Setting
from ..training.conformal import REPORTED, Intervals, held_out_coverage
from ..training.ridge import STRENGTHS, fit_ridge

Floats = NDArray[np.float64]
People = NDArray[np.int64]  # positions in recordings.subjects
BASELINE = "ridge on features"  # the simple model: the first candidate, on what any signal has
HEAVY = 1e4  # times all else


class Weights(NamedTuple):
    """Indices of the candidates' strengths, and their weights (K,)."""

    strengths: list[int]
    shares: Floats


@dataclass(frozen=True)
class NumberEvidence:
    """Predictions of K candidates with S strengths for every window, by fits that held its subject out."""

    candidates: tuple[NamedSetting, ...]
    rows: tuple[NDArray[np.int64], ...]  # windows of each subject
    y: Floats  # (N,)
    constant: Floats  # (N,) mean of the training targets
    predicted: Floats  # (K, S, N)

    @classmethod
    def of(cls, run: Run, candidates: Sequence[NamedSetting]) -> NumberEvidence:
        """Collect the evidence of the finished fits of a run."""
        rec = run.recordings
        y, subject = rec.truth.numpy(), rec.subject.numpy()
        constant, predicted = np.empty(len(y)), np.empty((len(candidates), len(STRENGTHS), len(y)))
        for k, named in enumerate(candidates):
            for held_out in run.folds():
                entry = run.entry("folds", named.setting, *held_out, run.options.seed)
                fold = run.job(entry).fold
                constant[fold.test] = y[fold.train].mean()
                predicted[k][:, fold.test] = _stored(run, entry.key, fold)
        rows = tuple(np.flatnonzero(subject == person) for person in range(rec.n_subjects))
        return cls(tuple(candidates), rows, y, constant, predicted)

    @property
    def everybody(self) -> People:
        return np.arange(len(self.rows))

    @cached_property
    def errors(self) -> Floats:
        """Mean squared errors (K, S, subjects)."""
        squares = np.square(self.predicted - self.y)
        return np.stack([squares[..., rows].mean(-1) for rows in self.rows], axis=-1)

    def best(self, people: People) -> int:
        """Return the candidate with the smallest error for these people, each with its best strength."""
        return int(self.errors[..., people].mean(-1).min(1).argmin())

    def weights(self, people: People) -> Weights:
        """Return the strengths and weights that are best for these people, of whom each counts the same."""
        strengths = self.errors[..., people].mean(-1).argmin(1).tolist()
        rows = np.concatenate([self.rows[person] for person in people])
        count = np.concatenate([np.full(len(self.rows[person]), len(self.rows[person])) for person in people])
        predicted = np.stack([of_one[s, rows] for of_one, s in zip(self.predicted, strengths, strict=True)], axis=1)
        root = 1 / np.sqrt(count)
        shares = average_shares(
            (predicted - self.constant[rows, None]) * root[:, None], (self.y[rows] - self.constant[rows]) * root
        )
        return Weights(strengths, shares)

    @cached_property
    def nested(self) -> list[Weights]:
        """Weights of each subject, found without them."""
        return [self.weights(np.delete(self.everybody, person)) for person in self.everybody]

    def alone(self, candidate: int) -> Floats:
        """Return predictions (N,) of a candidate with the strength that is best for the other subjects."""
        predicted = np.empty(len(self.y))
        for rows, weights in zip(self.rows, self.nested, strict=True):
            predicted[rows] = self.predicted[candidate, weights.strengths[candidate], rows]
        return predicted

    def delivered(self) -> Floats:
        """Return predictions (N,) of the ensemble, selected without the subject of each window."""
        delivered = np.empty(len(self.y))
        for rows, (strengths, shares) in zip(self.rows, self.nested, strict=True):
            predicted = np.stack([of_one[s, rows] for of_one, s in zip(self.predicted, strengths, strict=True)])
            delivered[rows] = self.constant[rows] + shares @ (predicted - self.constant[rows])
        return delivered


def _stored(run: Run, key: str, fold: Fold) -> Floats:
    """Return predictions (S, n) of the test rows of a fold as they were stored."""
    stored = run.weights(key).get(LOG_PROBS)
    if stored is None or stored.shape != (len(fold.test), len(STRENGTHS)) or not bool(stored.isfinite().all()):
        raise UserError(f"the ledger {run.ledger.path} has damaged predictions (key {key!r}); {REMEDY}")
    return stored.T.numpy()


def average_shares(predicted: Floats, target: Floats) -> Floats:
    """Weights (K,) of least squares |predicted (n, K) · w − target (n,)|², not negative, with a sum of at most 1."""
    weights: Floats = nnls(predicted, target)[0]
    if weights.sum() <= 1:
        return weights
    # Where the bound is active, the sum is 1: one more row that outweighs all others.
    heavy = HEAVY * np.sqrt(np.square(predicted).sum())
    weights = nnls(np.vstack([predicted, np.full(len(weights), heavy)]), np.append(target, heavy))[0]
    return np.asarray(weights / weights.sum())


# ---- select, evaluate, diagnose --------------------------------------------------------------------------------------


def choose_numbers(run: Run, candidates: Sequence[NamedSetting]) -> Choice:
    """Select among the candidates, then evaluate and diagnose what was selected."""
    evidence = NumberEvidence.of(run, candidates)
    facts = {name: getattr(run.options, name) for name in ("target", "at_least", "hold_out")}
    selection = select_numbers(run, evidence)
    return Choice.of(selection, evaluate_numbers(run, selection, evidence), diagnose_numbers(run, evidence), **facts)


def select_numbers(run: Run, evidence: NumberEvidence) -> Selection:
    """Select for a new subject, and for each subject from the evidence without them."""
    subjects, candidates = list(map(str, run.recordings.subjects)), evidence.candidates
    everybody, best = evidence.weights(evidence.everybody), evidence.best(evidence.everybody)

    def named(shares: Floats) -> dict[str, float]:
        return {candidates[k].name: float(shares[k]) for k in np.flatnonzero(shares).tolist()}

    shares = named(everybody.shares) or {candidates[best].name: 0.0}
    total = sum(shares.values()) or 1.0
    weights = [
        Weighted(one.name, one.setting.kind, shares[one.name] / total, shares[one.name], STRENGTHS[strength])
        for one, strength in zip(candidates, everybody.strengths, strict=True)
        if one.name in shares
    ]
    scores = {
        one.name: list(_scores(run, evidence, predicted[strength]).values())
        for one, strength, predicted in zip(candidates, everybody.strengths, evidence.predicted, strict=True)
    }
    choices = [candidates[evidence.best(np.delete(evidence.everybody, p))].name for p in evidence.everybody]
    return Selection(
        shortlist=list(candidates),
        chosen=candidates[best],
        best_uncensored=candidates[best],
        paper_network=None,
        adaptation=strongest([one.setting.adaptation for one in candidates if one.name in shares]),
        validation_q25={name: float(np.percentile(values, 25)) for name, values in scores.items()},
        validation_mean={name: float(np.mean(values)) for name, values in scores.items()},
        nested_choices=dict(zip(subjects, choices, strict=True)),
        nested_uncensored_choices={},
        ensemble=Ensemble(
            weights=sorted(weights, key=lambda weighted: -weighted.exponent),
            nested={who: named(own.shares) for who, own in zip(subjects, evidence.nested, strict=True)},
        ),
    )


def evaluate_numbers(run: Run, selection: Selection, evidence: NumberEvidence) -> Evaluation:
    """Score the selection for each subject on the subject, with the alternatives that the run had."""
    options, delivered = run.options, evidence.delivered()
    place = {named.name: k for k, named in enumerate(evidence.candidates)}
    best = np.empty(len(evidence.y))
    for name, rows in zip(selection.nested_choices.values(), evidence.rows, strict=True):
        best[rows] = evidence.alone(place[name])[rows]
    guessing = _scores(run, evidence, evidence.constant)
    return Evaluation(
        test_scores={"chosen": _scores(run, evidence, evidence.alone(place[selection.chosen.name]))},
        nested_test_scores=_scores(run, evidence, delivered),
        alternatives={"best_single": _scores(run, evidence, best)},
        baselines={BASELINE: _scores(run, evidence, evidence.alone(0))},
        metric=options.metric,
        chance=float(np.mean(list(guessing.values()))),
        guessing=guessing,
        other_metrics={
            name: _scores(run, evidence, delivered, name) for name in options.task.metrics if name != options.metric
        },
        not_scored=not_scored(run.recordings),
    )


def diagnose_numbers(run: Run, evidence: NumberEvidence) -> Diagnosis:
    """Describe the errors of predictions by what was selected without the subject."""
    whole, errors = whole_people(run.recordings), np.abs(evidence.y - evidence.delivered())
    residuals = [errors[whole.subject.numpy() == person] for person in range(whole.n_subjects)]
    intervals, held = Intervals.of(residuals), list[float]()
    if intervals is not None and np.isfinite(intervals.radius(REPORTED)):  # fewer people may have finite ones
        held = held_out_coverage(residuals, REPORTED)
    people = {str(name): share for name, share in zip(whole.subjects, held, strict=False)}
    return Diagnosis(intervals=None if intervals is None else IntervalCheck(intervals, people))


def candidate_scores(run: Run, candidates: Sequence[NamedSetting]) -> dict[str, Scores]:
    """Return test scores by candidate and held-out subject, with strengths that the other subjects decided."""
    evidence = NumberEvidence.of(run, candidates)
    return {
        named.name: _scores(run, evidence, evidence.alone(k), whole=False)
        for k, named in enumerate(evidence.candidates)
    }


def _scores(
    run: Run, evidence: NumberEvidence, predicted: Floats, metric: str | None = None, *, whole: bool = True
) -> Scores:
    """Score predictions (N,) of every subject who can be scored. whole: by person, if parts of people are held out."""
    scoring = run.options.task.metric(metric or run.options.metric)
    names, rows = run.recordings.subjects, evidence.rows
    known = scorable(run.recordings)
    scores = {str(names[p]): scoring.score(evidence.y[rows[p]], predicted[rows[p]]) for p in known}
    return run.by_person(scores) if whole else scores


# ---- what is delivered -----------------------------------------------------------------------------------------------


def number_part(run: Run, setting: Setting, strength: float, weight: float) -> Part:
    """Return a candidate of the delivered model, fitted on everybody."""
    fold = Fold(np.arange(run.recordings.n_trials, dtype=np.int64))
    _, head = fit_ridge(run.recordings, setting, fold.train, (strength,))
    weights, bias = torch.from_numpy(head.weight), torch.from_numpy(head.bias)
    zero = torch.zeros(weights.shape[1], dtype=torch.float64)  # the ridge takes codes as they are
    state: dict[str, Tensor] = {
        "encoder.shift": zero, "encoder.inv_std": torch.ones_like(zero),
        "classifier.weight": weights, "classifier.bias": bias,
    }  # fmt: skip
    return Part(setting, [state], [fold], weight)
