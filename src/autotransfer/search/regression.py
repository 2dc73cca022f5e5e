"""A continuous target, predicted for people left out by linear models and their average.

Each candidate is a representation of windows with a ridge regression on it. Groups of people are held out in turn, and
a candidate's predictions for them decide its strength and its weight in the average

    ŷ = ȳ + Σ_k w_k (f_k − ȳ),    w_k ≥ 0, Σ_k w_k ≤ 1, least squares over the held-out windows, every person alike,

with ȳ the mean of the training targets, which has the rest of the weight: what people do not share is shrunk away. For
a person's own score strengths and weights are chosen again without them: nobody decides about themselves. Delivered
linear models are fitted once more on everybody.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from scipy.optimize import nnls
from torch import Tensor

from ..errors import UserError
from ..folds import Fold
from ..jobs import HISTORY, Record
from ..models.assembly import Part, assemble
from ..models.model import Model
from ..models.seen import training_seen
from ..preprocessing import FittedPreprocessing
from ..recordings import Recordings
from ..recordings.chunks import row_chunks
from ..runs.executor import LOG_PROBS
from ..runs.ledger import FINISHED, REMEDY, Entry
from ..runs.regression import CONSTANT, PEER, DeliveredPart, RegressionChoice
from ..runs.run import Run, Tell
from ..settings import Setting
from ..tasks.regression import METRICS, correlation, negative_rmse, r2
from ..training.conformal import Intervals, held_out_coverage
from ..training.represented import represented
from ..training.ridge import Ridge, ridge
from ..versions import versions
from .kinds import candidates_of

Floats = NDArray[np.float64]

STRENGTHS = tuple(10.0**power for power in range(-4, 4))
COVERAGE = 0.9  # of the intervals that are reported
AVERAGE = "average"
HEAVY = 1e4  # times all else


@dataclass(frozen=True)
class CandidatePredictions:
    """Predictions of one candidate for every window, by a training without its person, with each strength."""

    name: str
    setting: Setting
    predicted: Floats  # (S, N)
    errors: Floats  # (S, P) mean squared, of each person

    def strength(self, people: NDArray[np.int64]) -> int:
        """The index of the strength that is best for these people (n,)."""
        return int(self.errors[:, people].mean(1).argmin())


@dataclass(frozen=True)
class Regression:
    """A finished search."""

    choice: RegressionChoice
    model: Model
    table: pd.DataFrame  # a row for each candidate and person
    predicted: Floats  # (N,) by the average, weighed again for each person without them


def candidate_name(setting: Setting) -> str:
    """Return the name of a linear model in tables, such as 'tangent'."""
    return setting.name_relative_to(Setting())


def conduct_regression(
    run: Run, tell: Tell | None = None, *, answered: Callable[[Regression], object] | None = None
) -> Regression:
    """Perform what is left of a run; predictions that are in its database are not made again. answered: is called with
    the result, to write it."""
    say = (lambda _: None) if tell is None else tell
    search = _Search(run)
    for setting in candidates_of(run.prepared).linear:
        say(f"{candidate_name(setting)}: {len(run.groups)} groups of people left out")
        search.add(setting, held_out_numbers(run, setting, partial(search.solve_fold, setting)))
    regression = search.answer()
    if answered is not None:
        answered(regression)
    run.ledger.remember(complete=True)
    return regression


def held_out_numbers(run: Run, setting: Setting, solve: Callable[[Fold], Floats]) -> Floats:
    """Return predictions (S, N) of a linear model with each strength, every window by a fit without its person. They
    are kept fold by fold; solve: what a fold gives for its test rows (S, n), if it is not there yet."""
    entries = [run.entry("folds", setting, *fold, run.options.seed) for fold in run.folds()]
    run.add(entries)
    statuses, predicted = run.ledger.statuses(), np.empty((len(STRENGTHS), run.recordings.n_trials))
    for entry in entries:
        fold = run.job(entry).fold
        if statuses[entry.key] in FINISHED:
            predicted[:, fold.test] = _stored(run, entry, fold)
            continue
        start = time.perf_counter()
        predicted[:, fold.test] = solve(fold)
        tensor = torch.from_numpy(np.ascontiguousarray(predicted[:, fold.test].T))
        run.ledger.finish(entry.key, _record(time.perf_counter() - start), save({LOG_PROBS: tensor}))
    return predicted


def _stored(run: Run, entry: Entry, fold: Fold) -> Floats:
    """Return predictions (S, n) of the test rows as they were stored."""
    stored = run.weights(entry.key).get(LOG_PROBS)
    if stored is None or stored.shape != (len(fold.test), len(STRENGTHS)) or not bool(stored.isfinite().all()):
        raise UserError(f"the ledger {run.ledger.path} has damaged predictions (key {entry.key!r}); {REMEDY}")
    return stored.T.numpy()


def _record(seconds: float) -> Record:
    """Make the record of a linear model that predicts numbers; it has neither scores of classes nor epochs."""
    nothing = np.zeros((1, 1), dtype=np.int64)
    return Record(
        best_epoch=1, epochs=1, validation_score=math.nan, test_score=math.nan, validation_confusion=nothing,
        test_confusion=nothing, history={name: [] for name in HISTORY}, seconds=seconds, population=1,
    )  # fmt: skip


class _Search:
    """What has been tried so far, and the answer that follows from it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.recordings = run.recordings
        self.y = run.recordings.truth.numpy()
        subject = self.recordings.subject.numpy()
        self.rows_of = [np.flatnonzero(subject == person) for person in range(self.recordings.n_subjects)]
        self.constant = np.empty(len(self.y))
        for fold in [run.job(run.entry("folds", Setting(), *fold, 0)).fold for fold in run.folds()]:
            self.constant[fold.test] = self.y[fold.train].mean()
        self.tried: list[CandidatePredictions] = []

    def solve_fold(self, setting: Setting, fold: Fold) -> Floats:
        """(S, n): a closed form's predictions for the test rows of a fold."""
        fitted, head = _solve(setting, self.recordings, self.y, fold.train, STRENGTHS)
        (start, windows), rows = _ready(setting, self.recordings), torch.from_numpy(fold.test)
        return head.predict(_new_codes(fitted, windows[rows], self.recordings.subject[rows], start).numpy())

    def add(self, setting: Setting, predicted: Floats) -> None:
        """predicted (S, N): with each strength, every window by a training without its person."""
        squares = np.square(predicted - self.y)
        errors = np.stack([squares[:, rows].mean(1) for rows in self.rows_of], axis=1)
        self.tried.append(CandidatePredictions(candidate_name(setting), setting, predicted, errors))

    def answer(self) -> Regression:
        """Return the model, the choice and the table that follow from all candidates."""
        tried, y, constant, rows_of = self.tried, self.y, self.constant, self.rows_of
        recordings, options = self.recordings, self.run.options
        everybody = np.arange(recordings.n_subjects)
        delivered = np.empty(len(y))
        alone = {candidate.name: np.empty(len(y)) for candidate in tried}
        for person, rows in enumerate(rows_of):
            others = np.delete(everybody, person)
            strengths, weights = _decide(tried, others, y, constant, rows_of)
            predicted = np.stack([candidate.predicted[s, rows] for candidate, s in zip(tried, strengths, strict=True)])
            delivered[rows] = constant[rows] + weights @ (predicted - constant[rows])
            for candidate, of_person in zip(tried, predicted, strict=True):
                alone[candidate.name][rows] = of_person
        strengths, weights = _decide(tried, everybody, y, constant, rows_of)
        table = self._table({AVERAGE: delivered, CONSTANT: constant} | alone)
        intervals = Intervals.of(self._residuals(delivered))
        kept = [
            (candidate, STRENGTHS[s], float(weight))
            for candidate, s, weight in zip(tried, strengths, weights, strict=True)
            if weight > 0
        ]
        parts = [
            DeliveredPart(candidate.name, strength, weight, self._mean_r2(alone[candidate.name]))
            for candidate, strength, weight in kept
        ]
        choice = self._choice(parts, delivered, alone[tried[0].name], intervals)
        made = [self._part(candidate.setting, strength, weight) for candidate, strength, weight in kept]
        made = made or [self._part(tried[0].setting, STRENGTHS[strengths[0]], 0.0)]
        model = assemble(recordings, made, scores=_card_scores(choice), target=options.target)
        model.card = replace(model.card, intervals=intervals, seen=training_seen(recordings), made_with=versions())
        return Regression(choice, model, table, delivered)

    def _mean_r2(self, predicted: Floats) -> float | None:
        """Over people whose target changes, of predictions (N,)."""
        values = [METRICS["r2"].score(self.y[rows], predicted[rows]) for rows in self.rows_of]
        known = [value for value in values if np.isfinite(value)]
        return float(np.mean(known)) if known else None

    def _table(self, predicted: dict[str, Floats]) -> pd.DataFrame:
        return pd.DataFrame(
            [
                {"candidate": name, "test_subject": self.recordings.subjects[person], "windows": len(rows)}
                | {name: metric.score(self.y[rows], values[rows]) for name, metric in METRICS.items()}
                for name, values in predicted.items()
                for person, rows in enumerate(self.rows_of)
            ]
        )

    def _choice(
        self, parts: list[DeliveredPart], delivered: Floats, simple: Floats, intervals: Intervals | None
    ) -> RegressionChoice:
        """delivered, simple: predictions (N,) of the average and of the simple model."""
        options, y, rows_of = self.run.options, self.y, self.rows_of
        names = [str(subject) for subject in self.recordings.subjects]
        varies = [person for person, rows in enumerate(rows_of) if y[rows].min() < y[rows].max()]
        if len(varies) < 2:
            raise UserError(f"the target changes within {len(varies)} of {len(rows_of)} people; at least 2 are needed")

        def by_person(score: Callable[[Floats, Floats], float], predicted: Floats) -> dict[str, float]:
            return {names[p]: score(y[rows_of[p]], predicted[rows_of[p]]) for p in varies}

        nested, peer = by_person(r2, delivered), by_person(r2, simple)
        radius = None if intervals is None else intervals.radius(COVERAGE)
        covered = held_out_coverage(self._residuals(delivered), COVERAGE)
        return RegressionChoice(
            target=options.target, name=self.recordings.name, adaptation=options.adaptation or "zero-shot",
            folds=len(self.run.groups), chosen=parts, baseline=PEER,
            baseline_won=bool(np.mean(list(peer.values())) > np.mean(list(nested.values()))),
            nested_test_scores=nested, correlations=by_person(correlation, delivered),
            errors=by_person(lambda y, predicted: -negative_rmse(y, predicted), delivered),
            test_scores={PEER: peer, CONSTANT: by_person(r2, self.constant)},
            coverage={names[k]: hit for k, hit in enumerate(covered)},
            radius=radius if radius is not None and np.isfinite(radius) else None,
            not_scored=[name for k, name in enumerate(names) if k not in varies], at_least=options.at_least,
        )  # fmt: skip

    def _residuals(self, predicted: Floats) -> list[Floats]:
        """Absolute errors of predictions (N,), of each person."""
        return [np.abs(self.y - predicted)[rows] for rows in self.rows_of]

    def _part(self, setting: Setting, strength: float, weight: float) -> Part:
        """Return a part of the delivered model, fitted on everybody."""
        fold = Fold(np.arange(len(self.y)))
        _, head = _solve(setting, self.recordings, self.y, fold.train, (strength,))
        weights, bias = torch.from_numpy(head.weight), torch.from_numpy(head.bias)
        zero = torch.zeros(weights.shape[1], dtype=torch.float64)  # the ridge takes codes as they are
        state = {
            "encoder.shift": zero, "encoder.inv_std": torch.ones_like(zero),
            "classifier.weight": weights, "classifier.bias": bias,
        }  # fmt: skip
        return Part(setting, [state], [fold], weight)


def _solve(
    setting: Setting, recordings: Recordings, y: Floats, train: NDArray[np.int64], strengths: Sequence[float]
) -> tuple[FittedPreprocessing, Ridge]:
    """Preprocessing and ridge regressions with each strength, fitted on training rows (n,)."""
    ready = _ready(setting, recordings)
    fitted = setting.preprocessing.fit(recordings.X, recordings.subject, [train], recordings.derived, ready=ready)
    return fitted, ridge(_codes(fitted, *ready, recordings.subject, train), y[train], strengths)


def _ready(setting: Setting, recordings: Recordings) -> tuple[int, Tensor]:
    """How many transforms are the same for all people and folds, and all windows after these."""
    return represented(recordings, setting.preprocessing) or (0, recordings.X)


@torch.no_grad()
def _codes(
    fitted: FittedPreprocessing, start: int, windows: Tensor, subject: Tensor, rows: NDArray[np.int64]
) -> Floats:
    """(n, D) of training people's windows (n,), which have been through the first transforms."""
    parts = []
    for chunk in row_chunks(len(rows), windows[0].numel()):
        places = torch.from_numpy(rows[chunk])
        prepared = fitted(windows[places][None].to(torch.float32), subject[places][None], start=start)
        parts.append(prepared[0].flatten(1).double())
    return torch.cat(parts).numpy()


def _new_codes(fitted: FittedPreprocessing, X: Tensor, subject: Tensor, start: int) -> Tensor:
    """(N, D) float64 of windows (N, channels, times) of people (N,) whom the preprocessing was not fitted on."""
    X = X.to(torch.float32)
    if fitted.spec.adaptation == "none":
        return fitted.follow(start).feed(X)[0].flatten(1).double()
    people = [(subject == person).nonzero()[:, 0] for person in subject.unique()]  # type: ignore[no-untyped-call]  # torch's
    found = torch.cat([fitted.follow(start).feed(X[rows])[0].flatten(1) for rows in people])
    codes = torch.empty_like(found, dtype=torch.float64)
    codes[torch.cat(people)] = found.double()
    return codes


def _decide(
    tried: Sequence[CandidatePredictions],
    people: NDArray[np.int64],
    y: Floats,
    constant: Floats,
    rows_of: Sequence[NDArray[np.int64]],
) -> tuple[list[int], Floats]:
    """Indices of strengths, and weights (K,), that are best for these people, of whom each counts the same."""
    strengths = [candidate.strength(people) for candidate in tried]
    rows = np.concatenate([rows_of[person] for person in people])
    count = np.concatenate([np.full(len(rows_of[person]), len(rows_of[person])) for person in people])
    predicted = np.stack([candidate.predicted[s, rows] for candidate, s in zip(tried, strengths, strict=True)], axis=1)
    root = 1 / np.sqrt(count)
    return strengths, average_shares(
        (predicted - constant[rows, None]) * root[:, None], (y[rows] - constant[rows]) * root
    )


def average_shares(predicted: Floats, target: Floats) -> Floats:
    """Weights (K,) of least squares |predicted (n, K) · w − target (n,)|², not negative, with a sum of at most 1."""
    weights: Floats = nnls(predicted, target)[0]
    if weights.sum() <= 1:
        return weights
    # Where the bound is active, the sum is 1: one more row that outweighs all others.
    heavy = HEAVY * np.sqrt(np.square(predicted).sum())
    weights = nnls(np.vstack([predicted, np.full(len(weights), heavy)]), np.append(target, heavy))[0]
    return np.asarray(weights / weights.sum())


def _card_scores(choice: RegressionChoice) -> dict[str, Any]:
    """Scores in the model's card."""
    values = list(choice.nested_test_scores.values())
    correlations = list(choice.correlations.values())
    return {
        "metric": "r2", "nested_test_mean": float(np.mean(values)), "correlation": float(np.mean(correlations)),
        "subjects": len(values), "better_than_guessing": not choice.guesses, "verdict": choice.verdict,
    }  # fmt: skip
