"""Score baselines on the folds of a run: simple models that take a few lines of code.

If a linear model of this package is a candidate of the run, its fits are used. Other libraries'
models are in BASELINES. To add one, write a function that predicts the test windows of a fold, and add a line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import one_line
from ..folds import Fold, make_fold, scorable_subjects
from ..preprocessing.delays import Delays
from ..recordings import Recordings
from ..runs.choice import Scores
from ..runs.database import Entry
from ..runs.executor import DTYPE
from ..runs.options import RunOptions
from ..runs.run import Run
from ..settings import Setting
from ..training.closed_form import make_population
from ..training.packing import resolve_device
from ..training.train import run as train_population
from ..training.windows import prepare_windows, release_windows
from .candidates import linear_candidates
from .held_out import read_probabilities, score_subject

LDA = "Features + LDA"  # band power and means of stretches
TANGENT = "Tangent space + LDA"
PYRIEMANN = "pyRiemann tangent space + LDA"
RECENTERED = "pyRiemann, re-centered by person"
LINEAR_BASELINES = {  # by model family
    "features": LDA, "tangent": TANGENT, "tdar": "Time domain, autoregression + LDA",
    "rhythms": "Correlation with sines + LDA", "bands": "Band power + LDA",
    "evoked": "xDAWN covariances + LDA", "beats": "Beat shapes + LDA",
    "statistics": "Statistics + LDA",
}  # fmt: skip
RIDGE = "ridge on features"  # of a regression: the first candidate, on features that any signal has
LATER = "a later stage scores it"
CHUNK = 10**7  # samples of windows that are multiplied at a time
FLOOR = 1e-6  # added to covariances of unit variance, which a flat channel would make singular
COVARIANCES = "covariances of baselines"  # key of what recordings keep for the folds

Floats = NDArray[np.float64]
Predict = Callable[[tuple[int, int]], Mapping[int, NDArray[np.floating]]]  # a fold's probabilities (n, C) by subject


class Baseline(NamedTuple):
    """Simple model that the run is compared with."""

    predict: Callable[[Recordings, Fold], Floats]  # probabilities (n, C) of the test windows of a fold
    adaptation: str = "none"  # what it uses of a new subject


class SkippedBaseline(Exception):
    """Exception that says why a baseline has no scores."""


def baseline_scores(run: Run, *, every: bool = True) -> tuple[dict[str, Scores], dict[str, str]]:
    """Return the scores of baselines by name and subject, and by name why a baseline has none.

    every: fit baselines that are not fitted yet
    """
    if run.options.task.is_numeric:
        by_candidate = run.database.require("candidate_scores", dict[str, Scores])
        return {RIDGE: next(iter(by_candidate.values()))}, {}
    known = run.database.recall("baselines", dict[str, Scores]) or {}
    statuses = run.database.statuses()
    predictors: dict[str, Predict] = {
        name: partial(_predict_linear, run, setting, statuses, every) for name, setting in linear_baselines(run).items()
    }
    predictors |= {name: partial(_predict, run, one, every) for name, one in library_baselines(run).items()}
    scores, skipped = dict[str, Scores](), dict[str, str]()
    for name, predict in predictors.items():
        try:
            scores[name] = known[name] if name in known else _score(run, predict)
        except SkippedBaseline as reason:
            skipped[name] = str(reason)
        except Exception as error:
            skipped[name] = f"it failed: {one_line(error)}"
    run.recordings.derived.pop(COVARIANCES, None)
    run.database.remember(baselines=scores)
    return scores, skipped


def library_baselines(run: Run) -> dict[str, Baseline]:
    """Return the entries of BASELINES that use no more of a new subject than the run may."""
    usable = ("none", max_adaptation(run.options))
    return {name: baseline for name, baseline in BASELINES.items() if baseline.adaptation in usable}


def max_adaptation(options: RunOptions) -> str:
    """Return the most that a run's candidates may use of a new subject's unlabeled windows."""
    requested = (options.adaptation, options.constants.get("standardize"), options.constants.get("align"))
    return next((adaptation for adaptation in ("transductive", "online") if adaptation in requested), "none")


def linear_baselines(run: Run) -> dict[str, Setting]:
    """Return LINEAR_BASELINES with estimated shrinkage: zero-shot and, if the run may adapt, centered by subject."""
    adaptation, baselines = max_adaptation(run.options), dict[str, Setting]()
    for setting in reversed(linear_candidates(adaptation.replace("none", "zero-shot"), run.recordings)):
        if setting.family in LINEAR_BASELINES:
            suffix = "" if setting.adaptation == "none" else f", {adaptation}"
            baselines[LINEAR_BASELINES[setting.family] + suffix] = setting
    return {name: baselines[name] for name in sorted(baselines)}


def _predict_linear(
    run: Run, setting: Setting, statuses: Mapping[str, str], every: bool, held_out: tuple[int, int]
) -> Mapping[int, NDArray[np.floating]]:
    """Predict with a linear model, by its fit if it is a candidate of the run."""
    entry = Entry.build("baselines", setting, *held_out, run.options.seed)
    if statuses.get(entry.key) == "done":
        return read_probabilities(run, entry)
    if not every:
        raise SkippedBaseline(LATER)
    job = run.job(entry)
    try:
        windows = prepare_windows(run.recordings, job, device=resolve_device(run.options.device), dtype=DTYPE)
        (outcome,) = train_population(make_population([job], windows))
    finally:
        release_windows(run.recordings)
    return _by_subject(run, job.fold, np.exp(outcome.held_out_log_probs.numpy()[len(job.fold.validation) :]))


def _predict(
    run: Run, baseline: Baseline, every: bool, held_out: tuple[int, int]
) -> Mapping[int, NDArray[np.floating]]:
    """Predict with an entry of BASELINES."""
    if not every:
        raise SkippedBaseline(LATER)
    fold = make_fold(run.recordings, *(run.groups[place] for place in held_out))
    return _by_subject(run, fold, baseline.predict(run.recordings, fold))


def _by_subject(run: Run, fold: Fold, probabilities: NDArray[np.floating]) -> dict[int, NDArray[np.floating]]:
    """Return probabilities (n, C) of a fold's test windows by subject."""
    who = run.recordings.subject.numpy()[fold.test]
    return {int(subject): probabilities[who == subject] for subject in np.unique(who)}


def _score(run: Run, predict: Predict) -> Scores:
    """Score all subjects who can be scored."""
    recordings, scores = run.recordings, Scores()
    y, who, known = recordings.y.numpy(), recordings.subject.numpy(), set(scorable_subjects(recordings))
    for held_out in run.folds():
        probabilities = predict(held_out)
        for subject in run.groups[held_out[1]]:
            if subject in known:
                value = score_subject(run.options.scoring, y[who == subject], probabilities[subject])
                scores[str(recordings.subjects[subject])] = value
    return scores


def tangent_space(recordings: Recordings, fold: Fold) -> Floats:
    """Predict by pyRiemann's pipeline: covariances, the tangent space at their mean, and shrinkage LDA."""
    return _in_tangent_space(_scaled(recordings, fold), recordings, fold)


def recentered(recordings: Recordings, fold: Fold) -> Floats:
    """Predict by pyRiemann's pipeline after each subject's mean covariance is whitened (Zanini et al. 2018)."""
    from pyriemann.geometry.base import invsqrtm
    from pyriemann.geometry.mean import mean_riemann

    C, who = _scaled(recordings, fold), recordings.subject.numpy()
    for subject in np.unique(who):
        W = invsqrtm(mean_riemann(C[who == subject]))
        C[who == subject] = W @ C[who == subject] @ W
    return _in_tangent_space(C, recordings, fold)


def _in_tangent_space(C: Floats, recordings: Recordings, fold: Fold) -> Floats:
    from pyriemann.tangentspace import TangentSpace
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.pipeline import make_pipeline

    y = recordings.y.numpy()[fold.train]
    present = np.unique(y)
    model = make_pipeline(
        TangentSpace(metric="riemann"),
        LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto", priors=np.full(len(present), 1 / len(present))),
    )
    model.fit(C[fold.train], y)
    probability = np.zeros((len(fold.test), recordings.n_classes))
    probability[:, present] = model.predict_proba(C[fold.test])
    return probability


def _scaled(recordings: Recordings, fold: Fold) -> Floats:
    """Return shrunk covariances (N, d, d) of channels that are scaled by the training subjects."""
    if COVARIANCES not in recordings.derived:
        tangent = [s for s in linear_candidates("zero-shot", recordings) if s.family == "tangent"]
        if not tangent:
            raise SkippedBaseline(f"{recordings.n_channels} channels have too many covariances")
        delays = [step for step in tangent[0].preprocessing.transforms if isinstance(step, Delays)]
        copies, lag = (delays[0].copies, delays[0].lag) if delays else (1, 1)
        recordings.derived[COVARIANCES] = _covariances(recordings.X, copies, lag)
    C: Floats = recordings.derived[COVARIANCES]
    unit = np.sqrt(np.median(C[fold.train].diagonal(axis1=1, axis2=2), 0))
    unit[unit == 0] = 1.0
    return oas_covariances(C / (unit[:, None] * unit), recordings.n_times) + FLOOR * np.eye(len(unit))


def _covariances(X: Tensor, copies: int, lag: int) -> Floats:
    """Return covariances (N, C · copies, C · copies) of windows (N, C, T), which may be larger than memory."""
    length = X.shape[2] - (copies - 1) * lag
    parts = []
    for rows in np.array_split(np.arange(len(X)), max(1, X.numel() * copies // CHUNK)):
        x = X[torch.from_numpy(rows)].double().numpy()
        delayed = np.concatenate([x[:, :, n * lag : n * lag + length] for n in range(copies)], 1)
        centered = delayed - delayed.mean(2, keepdims=True)
        parts.append(centered @ centered.transpose(0, 2, 1) / length)
    return np.concatenate(parts)


def oas_covariances(C: Floats, length: int) -> Floats:
    """Shrink covariances (N, d, d) of `length` samples by oracle approximating shrinkage, "oas" in pyRiemann."""
    d = C.shape[1]
    mean_square, level = (C**2).mean((1, 2)), np.trace(C, axis1=1, axis2=2) / d
    below = (length + 1) * (mean_square - level**2 / d)
    share = np.where(below > 0, np.minimum((mean_square + level**2) / np.where(below > 0, below, 1.0), 1.0), 1.0)
    return np.asarray((1 - share)[:, None, None] * C + (share * level)[:, None, None] * np.eye(d))


BASELINES: dict[str, Baseline] = {
    PYRIEMANN: Baseline(tangent_space),
    RECENTERED: Baseline(recentered, adaptation="transductive"),
}
