"""A continuous target, predicted for people left out by closed forms and their average.

Each candidate is a representation of windows with a ridge regression on it. Groups of people are held out in turn, and
what a candidate says of them decides its strength and its weight in the average

    ŷ = ȳ + Σ_k w_k (f_k − ȳ),    w_k ≥ 0, Σ_k w_k ≤ 1, least squares over the held-out windows, every person alike,

with ȳ the mean of the training targets, which has the rest of the weight: what people do not share is shrunk away. For
a person's own score strengths and weights are found again without them: nobody decides about themselves. What is
delivered is solved once more on everybody.
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
from ..preprocessing import FittedPreprocessing, Preprocessing
from ..recordings import Recordings
from ..recordings.chunks import row_chunks
from ..recordings.targets import Targets
from ..runs.options import RunOptions
from ..runs.regression import CONSTANT, PEER, Part, RegressionChoice
from ..settings import Setting
from ..training.continuous import METRICS, correlation, held_out_coverage, interval_radii, r2, radius_at, rmse
from ..training.packing import resolve_device
from ..training.ridge import Ridge, ridge
from .kinds import closed_forms

Floats = NDArray[np.float64]
Tell = Callable[[str], None]

STRENGTHS = tuple(10.0**power for power in range(-4, 4))
COVERAGE = 0.9  # of the intervals that are reported
AVERAGE = "average"
HEAVY = 1e4  # times all else


@dataclass(frozen=True)
class HeldOut:
    """What one candidate says of every window when its person is held out, with each strength."""

    name: str
    setting: Setting
    predicted: Floats  # (S, N)
    errors: Floats  # (S, P) mean squared, of each person

    def strength(self, people: NDArray[np.int64]) -> int:
        """The place of the one that these people (n,) would choose."""
        return int(self.errors[:, people].mean(1).argmin())


@dataclass(frozen=True)
class Regression:
    """A finished search."""

    choice: RegressionChoice
    model: RegressionModel
    table: pd.DataFrame  # a row for each candidate and person
    predicted: Floats  # (N,) what is delivered, decided again for each person without them


def candidates(options: RunOptions, recordings: Recordings) -> list[Setting]:
    """Linear closed forms that fit the recordings, the simple one first; ridge has its own strengths."""
    forms = closed_forms(replace(options, adaptation=options.adaptation or "zero-shot"), recordings)
    plain = [form.replace(shrinkage="auto") for form in forms if form.encoder == "linear"]
    return list(dict.fromkeys(plain))


def search(targets: Targets, options: RunOptions, tell: Tell | None = None) -> Regression:
    """Everything from the folds to the model that is delivered."""
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
    found = []
    for setting in candidates(resolved, recordings):
        name = setting.name_relative_to(Setting())
        say(f"{name}: {len(folds)} groups of people left out")
        predicted = _held_out(setting, recordings, y, folds)
        squares = np.square(predicted - y)
        errors = np.stack([squares[:, rows].mean(1) for rows in rows_of], axis=1)
        found.append(HeldOut(name, setting, predicted, errors))
    everybody = np.arange(recordings.n_subjects)
    delivered, simple = np.empty(len(y)), np.empty(len(y))
    alone = {one.name: np.empty(len(y)) for one in found}
    for person, rows in enumerate(rows_of):
        others = np.delete(everybody, person)
        strengths, weights = _decide(found, others, y, constant, rows_of)
        said = np.stack([one.predicted[s, rows] for one, s in zip(found, strengths, strict=True)])
        delivered[rows] = constant[rows] + weights @ (said - constant[rows])
        simple[rows] = said[0]
        for one, own in zip(found, said, strict=True):
            alone[one.name][rows] = own
    strengths, weights = _decide(found, everybody, y, constant, rows_of)
    table = _table({AVERAGE: delivered, CONSTANT: constant} | alone, y, recordings, rows_of)
    residuals = [np.abs(y - delivered)[rows] for rows in rows_of]
    radii = interval_radii(residuals)
    kept = [k for k in range(len(found)) if weights[k] > 0]
    parts = [
        Part(found[k].name, STRENGTHS[strengths[k]], float(weights[k]), _mean(alone[found[k].name], y, rows_of))
        for k in kept
    ]
    choice = _choice(targets, resolved, len(folds), parts, delivered, simple, constant, residuals, rows_of, radii)
    card = RegressionCard(
        name=recordings.name, kind=REGRESSION, n_times=recordings.n_times, channels=list(recordings.channels),
        sfreq=recordings.sfreq, subjects=recordings.n_subjects, target=options.target, mean=float(y.mean()),
        parts=[RegressionPart(found[k].setting.to_dict(), STRENGTHS[strengths[k]], float(weights[k])) for k in kept],
        people=len(residuals), radii=radii, scores=_told(choice), scale=scale_of(recordings),
        filter=None if recordings.filter is None else recordings.filter.as_dict(), seen=training_seen(recordings),
    )  # fmt: skip
    everything = np.arange(len(y))
    forms = []
    for k in kept:
        fitted, own = _solve(found[k].setting, recordings, y, everything, (STRENGTHS[strengths[k]],))
        forms.append(Form(fitted, torch.from_numpy(own.weight[0]), torch.tensor(own.bias[0], dtype=torch.float64)))
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
        fitted, own = _solve(setting, recordings, y, np.delete(everything, held_out), STRENGTHS)
        (start, windows), rows = _ready(setting, recordings), torch.from_numpy(held_out)
        predicted[:, held_out] = own.predict(codes_of(fitted, windows[rows], recordings.subject[rows], start).numpy())
    return predicted


def _solve(
    setting: Setting, recordings: Recordings, y: Floats, train: NDArray[np.int64], strengths: Sequence[float]
) -> tuple[FittedPreprocessing, Ridge]:
    """Prepared and solved by training rows (n,)."""
    ready = _ready(setting, recordings)
    fitted = setting.preprocessing.fit(
        recordings.X, recordings.subject, [train], recordings.derived, ring=recordings.ring, ready=ready
    )
    return fitted, ridge(_codes(fitted, *ready, recordings.subject, train), y[train], strengths)


def _ready(setting: Setting, recordings: Recordings) -> tuple[int, Tensor]:
    """How many of its transforms neither people nor folds change, and all windows as they leave them, made once."""
    start = setting.preprocessing.represented
    if start == 0:
        return 0, recordings.X
    spec = Preprocessing(setting.preprocessing.transforms[:start])
    if ("ready", spec) not in recordings.derived:
        fitted = spec.fit(recordings.X, recordings.subject, [np.arange(recordings.n_trials)], recordings.derived)
        recordings.derived["ready", spec] = torch.cat(
            [
                fitted(recordings.X[rows][None].to(torch.float32))[0]
                for rows in row_chunks(recordings.n_trials, recordings.n_channels * recordings.n_times)
            ]
        )
    windows: Tensor = recordings.derived["ready", spec]
    return start, windows


@torch.no_grad()
def _codes(
    fitted: FittedPreprocessing, start: int, windows: Tensor, subject: Tensor, rows: NDArray[np.int64]
) -> Floats:
    """Of training people's windows (n,), which have been through the first transforms: (n, D)."""
    parts = []
    for piece in row_chunks(len(rows), windows[0].numel()):
        own = torch.from_numpy(rows[piece])
        prepared = fitted(windows[own][None].to(torch.float32), subject[own][None], start=start)
        parts.append(prepared[0].flatten(1).double())
    return torch.cat(parts).numpy()


def _decide(
    found: Sequence[HeldOut],
    people: NDArray[np.int64],
    y: Floats,
    constant: Floats,
    rows_of: Sequence[NDArray[np.int64]],
) -> tuple[list[int], Floats]:
    """Places of strengths and weights (K,) that these people would choose, of whom every one counts the same."""
    strengths = [one.strength(people) for one in found]
    rows = np.concatenate([rows_of[person] for person in people])
    count = np.concatenate([np.full(len(rows_of[person]), len(rows_of[person])) for person in people])
    said = np.stack([one.predicted[s, rows] - constant[rows] for one, s in zip(found, strengths, strict=True)], axis=1)
    root = 1 / np.sqrt(count)
    return strengths, shares(said * root[:, None], (y[rows] - constant[rows]) * root)


def shares(said: Floats, target: Floats) -> Floats:
    """Weights (K,) of least squares |said (n, K) · w − target (n,)|², none of them negative, at most 1 together."""
    weights: Floats = nnls(said, target)[0]
    if weights.sum() <= 1:
        return weights
    # Where the bound holds back, they sum to 1: one more row, so heavy that nothing else counts beside it.
    heavy = HEAVY * np.sqrt(np.square(said).sum())
    weights = nnls(np.vstack([said, np.full(len(weights), heavy)]), np.append(target, heavy))[0]
    total: Floats = weights / weights.sum()
    return total


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
            | {metric: score(y[rows], own[rows]) for metric, score in METRICS.items()}
            for name, own in predicted.items()
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
        return {str(recordings.subjects[one]): score(y[rows_of[one]], predicted[rows_of[one]]) for one in varies}

    own, peer = by_person(r2, delivered), by_person(r2, simple)
    radius = None if radii is None else radius_at(radii, COVERAGE)
    return RegressionChoice(
        target=options.target, name=recordings.name, adaptation=options.adaptation or "zero-shot", folds=folds,
        chosen=parts, baseline=PEER, baseline_won=bool(np.mean(list(peer.values())) > np.mean(list(own.values()))),
        nested_test_scores=own, correlations=by_person(_known_correlation, delivered),
        errors=by_person(rmse, delivered),
        test_scores={PEER: peer, CONSTANT: by_person(r2, constant)},
        coverage={str(recordings.subjects[k]): one for k, one in enumerate(held_out_coverage(residuals, COVERAGE))},
        radius=radius if radius is not None and np.isfinite(radius) else None,
        not_scored=[str(recordings.subjects[k]) for k in range(len(rows_of)) if k not in varies],
        at_least=options.at_least,
    )  # fmt: skip


def _known_correlation(y: Floats, predicted: Floats) -> float:
    """0 where a prediction never changes: it tells nothing."""
    found = correlation(y, predicted)
    return found if np.isfinite(found) else 0.0


def _told(choice: RegressionChoice) -> dict[str, Any]:
    """What the model's card says of how good it is."""
    values = list(choice.nested_test_scores.values())
    correlations = list(choice.correlations.values())
    return {
        "metric": "r2", "nested_test_mean": float(np.mean(values)), "correlation": float(np.mean(correlations)),
        "subjects": len(values), "better_than_guessing": not choice.guesses, "verdict": choice.verdict,
    }  # fmt: skip
