"""A continuous target, predicted for people left out by closed forms and their average.

Each candidate is a representation of windows with a ridge regression on it. Groups of people are held out in turn, and
a candidate's predictions for them decide its strength and its weight in the average

    ŷ = ȳ + Σ_k w_k (f_k − ȳ),    w_k ≥ 0, Σ_k w_k ≤ 1, least squares over the held-out windows, every person alike,

with ȳ the mean of the training targets, which has the rest of the weight: what people do not share is shrunk away. For
a person's own score strengths and weights are chosen again without them: nobody decides about themselves. The delivered
model is solved once more on everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from torch import Tensor

from ..errors import UserError
from ..folds import groups_of
from ..models.assembly import scale_of
from ..models.regression import Form, RegressionModel, codes_of
from ..models.regression_card import REGRESSION, RegressionCard, RegressionPart
from ..models.seen import training_seen
from ..preprocessing import FittedPreprocessing
from ..recordings import Recordings
from ..recordings.chunks import row_chunks
from ..recordings.targets import Targets
from ..runs.options import RunOptions
from ..runs.regression import CONSTANT, PEER, Part, RegressionChoice
from ..settings import Setting
from ..training.continuous import METRICS, correlation, held_out_coverage, interval_radii, r2, radius_at, rmse
from ..training.packing import resolve_device
from ..training.ridge import Ridge, ridge
from ..training.windows import represented
from .kinds import closed_forms

Floats = NDArray[np.float64]
Tell = Callable[[str], None]

STRENGTHS = tuple(10.0**power for power in range(-4, 4))
COVERAGE = 0.9  # of the intervals that are reported
AVERAGE = "average"
HEAVY = 1e4  # times all else


@dataclass(frozen=True)
class HeldOut:
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
    model: RegressionModel
    table: pd.DataFrame  # a row for each candidate and person
    predicted: Floats  # (N,) by the average, weighed again for each person without them


def candidates(options: RunOptions, recordings: Recordings) -> list[Setting]:
    """Linear closed forms that fit the recordings, the simple one first; ridge has its own strengths."""
    forms = closed_forms(replace(options, adaptation=options.adaptation or "zero-shot"), recordings)
    plain = [form.replace(shrinkage="auto") for form in forms if form.encoder == "linear"]
    return list(dict.fromkeys(plain))


def search(targets: Targets, options: RunOptions, tell: Tell | None = None) -> Regression:
    """From the folds to the delivered model."""
    say = (lambda _: None) if tell is None else tell
    check_device(options)
    recordings, y = targets
    resolved = options.for_data(recordings)
    subject = recordings.subject.numpy()
    rows_of = [np.flatnonzero(subject == person) for person in range(recordings.n_subjects)]
    groups = groups_of(recordings, resolved.n_folds)
    folds = [np.flatnonzero(np.isin(subject, group)) for group in groups]
    constant = np.empty(len(y))
    for held_out in folds:
        constant[held_out] = np.delete(y, held_out).mean()
    tried = []
    for setting in candidates(resolved, recordings):
        name = setting.name_relative_to(Setting())
        say(f"{name}: {len(folds)} groups of people left out")
        predicted = _held_out(setting, recordings, y, folds)
        squares = np.square(predicted - y)
        errors = np.stack([squares[:, rows].mean(1) for rows in rows_of], axis=1)
        tried.append(HeldOut(name, setting, predicted, errors))
    everybody = np.arange(recordings.n_subjects)
    delivered, simple = np.empty(len(y)), np.empty(len(y))
    alone = {candidate.name: np.empty(len(y)) for candidate in tried}
    for person, rows in enumerate(rows_of):
        others = np.delete(everybody, person)
        strengths, weights = _decide(tried, others, y, constant, rows_of)
        predicted = np.stack([candidate.predicted[s, rows] for candidate, s in zip(tried, strengths, strict=True)])
        delivered[rows] = constant[rows] + weights @ (predicted - constant[rows])
        simple[rows] = predicted[0]
        for candidate, of_person in zip(tried, predicted, strict=True):
            alone[candidate.name][rows] = of_person
    strengths, weights = _decide(tried, everybody, y, constant, rows_of)
    table = _table({AVERAGE: delivered, CONSTANT: constant} | alone, y, recordings, rows_of)
    residuals = [np.abs(y - delivered)[rows] for rows in rows_of]
    radii = interval_radii(residuals)
    kept = [
        (candidate, STRENGTHS[s], float(weight))
        for candidate, s, weight in zip(tried, strengths, weights, strict=True)
        if weight > 0
    ]
    parts = [
        Part(candidate.name, strength, weight, _mean(alone[candidate.name], y, rows_of))
        for candidate, strength, weight in kept
    ]
    choice = _choice(targets, resolved, len(folds), parts, delivered, simple, constant, residuals, rows_of, radii)
    card = RegressionCard(
        name=recordings.name, kind=REGRESSION, n_times=recordings.n_times, channels=list(recordings.channels),
        sfreq=recordings.sfreq, subjects=recordings.n_subjects, target=options.target, mean=float(y.mean()),
        parts=[RegressionPart(candidate.setting.to_dict(), *numbers) for candidate, *numbers in kept],
        people=len(residuals), radii=radii, scores=_card_scores(choice), scale=scale_of(recordings),
        filter=None if recordings.filter is None else recordings.filter.as_dict(), seen=training_seen(recordings),
    )  # fmt: skip
    everything = np.arange(len(y))
    forms = []
    for candidate, strength, _ in kept:
        fitted, head = _solve(candidate.setting, recordings, y, everything, (strength,))
        forms.append(Form(fitted, torch.from_numpy(head.weight[0]), torch.tensor(head.bias[0], dtype=torch.float64)))
    return Regression(choice, RegressionModel(card, forms), table, delivered)


def check_device(options: RunOptions) -> None:
    resolve_device(options.device)
    if options.device == "cuda":
        raise UserError("closed forms of a continuous target are solved on the CPU; leave out device cuda")


def _held_out(setting: Setting, recordings: Recordings, y: Floats, folds: Sequence[NDArray[np.int64]]) -> Floats:
    """(S, N): every window by a training without its person."""
    predicted = np.empty((len(STRENGTHS), len(y)))
    everything = np.arange(len(y))
    for held_out in folds:
        fitted, head = _solve(setting, recordings, y, np.delete(everything, held_out), STRENGTHS)
        (start, windows), rows = _ready(setting, recordings), torch.from_numpy(held_out)
        predicted[:, held_out] = head.predict(codes_of(fitted, windows[rows], recordings.subject[rows], start).numpy())
    return predicted


def _solve(
    setting: Setting, recordings: Recordings, y: Floats, train: NDArray[np.int64], strengths: Sequence[float]
) -> tuple[FittedPreprocessing, Ridge]:
    """Preprocessing and ridge regressions with each strength, fitted on training rows (n,)."""
    ready = _ready(setting, recordings)
    fitted = setting.preprocessing.fit(
        recordings.X, recordings.subject, [train], recordings.derived, ring=recordings.ring, ready=ready
    )
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


def _decide(
    tried: Sequence[HeldOut],
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
    return strengths, shares((predicted - constant[rows, None]) * root[:, None], (y[rows] - constant[rows]) * root)


def shares(predicted: Floats, target: Floats) -> Floats:
    """Weights (K,) of least squares |predicted (n, K) · w − target (n,)|², not negative, with a sum of at most 1."""
    weights: Floats = nnls(predicted, target)[0]
    if weights.sum() <= 1:
        return weights
    # Where the bound is active, the sum is 1: one more row that outweighs all others.
    heavy = HEAVY * np.sqrt(np.square(predicted).sum())
    weights = nnls(np.vstack([predicted, np.full(len(weights), heavy)]), np.append(target, heavy))[0]
    return np.asarray(weights / weights.sum())


def _mean(predicted: Floats, y: Floats, rows_of: Sequence[NDArray[np.int64]]) -> float | None:
    values = [r2(y[rows], predicted[rows]) for rows in rows_of]
    known = [value for value in values if np.isfinite(value)]
    return float(np.mean(known)) if known else None


def _table(
    predicted: dict[str, Floats], y: Floats, recordings: Recordings, rows_of: Sequence[NDArray[np.int64]]
) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"candidate": name, "test_subject": recordings.subjects[person], "windows": len(rows)}
            | {metric: score(y[rows], values[rows]) for metric, score in METRICS.items()}
            for name, values in predicted.items()
            for person, rows in enumerate(rows_of)
        ]
    )


def _choice(
    targets: Targets, options: RunOptions, folds: int, parts: list[Part], delivered: Floats, simple: Floats,
    constant: Floats, residuals: list[Floats], rows_of: Sequence[NDArray[np.int64]], radii: list[float | None] | None,
) -> RegressionChoice:  # fmt: skip
    recordings, y = targets
    varies = [person for person, rows in enumerate(rows_of) if y[rows].min() < y[rows].max()]
    if len(varies) < 2:
        raise UserError(f"the target changes within {len(varies)} of {len(rows_of)} people; at least 2 are needed")

    def by_person(score: Callable[[Floats, Floats], float], predicted: Floats) -> dict[str, float]:
        return {str(recordings.subjects[p]): score(y[rows_of[p]], predicted[rows_of[p]]) for p in varies}

    def known_correlation(y: Floats, predicted: Floats) -> float:
        return float(np.nan_to_num(correlation(y, predicted)))  # 0 for predictions that never change

    nested, peer = by_person(r2, delivered), by_person(r2, simple)
    radius = None if radii is None else radius_at(radii, COVERAGE)
    return RegressionChoice(
        target=options.target, name=recordings.name, adaptation=options.adaptation or "zero-shot", folds=folds,
        chosen=parts, baseline=PEER, baseline_won=bool(np.mean(list(peer.values())) > np.mean(list(nested.values()))),
        nested_test_scores=nested, correlations=by_person(known_correlation, delivered),
        errors=by_person(rmse, delivered),
        test_scores={PEER: peer, CONSTANT: by_person(r2, constant)},
        coverage={str(recordings.subjects[k]): hit for k, hit in enumerate(held_out_coverage(residuals, COVERAGE))},
        radius=radius if radius is not None and np.isfinite(radius) else None,
        not_scored=[str(recordings.subjects[k]) for k in range(len(rows_of)) if k not in varies],
        at_least=options.at_least,
    )  # fmt: skip


def _card_scores(choice: RegressionChoice) -> dict[str, Any]:
    """Scores in the model's card."""
    values = list(choice.nested_test_scores.values())
    correlations = list(choice.correlations.values())
    return {
        "metric": "r2", "nested_test_mean": float(np.mean(values)), "correlation": float(np.mean(correlations)),
        "subjects": len(values), "better_than_guessing": not choice.guesses, "verdict": choice.verdict,
    }  # fmt: skip
