"""Score baselines on the folds of a run: simple models that take a few lines of code.

Linear models of this package, in LINEAR_BASELINES, use their stored fits if they are candidates of the run. BASELINES
contains models of other libraries. To add a baseline, write a function that predicts the test windows of a fold.
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
from ..training.train import train_population
from ..training.windows import prepare_windows, release_windows
from .candidates import linear_candidates
from .held_out import read_probabilities, score_subject

LDA = "Features + LDA"  # band power and means of segments
TANGENT = "Tangent space + LDA"
PYRIEMANN = "pyRiemann tangent space + LDA"
RECENTERED = "pyRiemann, re-centered by subject"
LINEAR_BASELINES = {  # by model family
    "features": LDA, "tangent": TANGENT, "tdar": "Time domain, autoregression + LDA",
    "rhythms": "Correlation with sines + LDA", "bands": "Band power + LDA",
    "evoked": "xDAWN covariances + LDA", "beats": "Beat shapes + LDA",
    "statistics": "Statistics + LDA",
}  # fmt: skip
RIDGE = "ridge on features"  # baseline of regressions: the first candidate, whose features exist for any signal
LATER = "it is scored after a later stage"
CHUNK = 10**7  # samples of windows that are multiplied at the same time
FLOOR = 1e-6  # added to the diagonal of covariances of unit variance, because a flat channel makes them singular
COVARIANCES = "covariances of baselines"  # key in `Recordings.derived`

Floats = NDArray[np.float64]
Predict = Callable[[tuple[int, int]], Mapping[int, NDArray[np.floating]]]  # probabilities (n, C) by subject


class Baseline(NamedTuple):
    """Simple model of another library, with which a run is compared."""

    predict: Callable[[Recordings, Fold], Floats]  # probabilities (n, C) of the test windows of a fold
    adaptation: str = "none"  # use of unlabeled windows of a new subject: "none", "online" or "transductive"


class SkippedBaseline(Exception):
    """Raised with the reason why a baseline has no scores."""


def baseline_scores(run: Run, *, fit_missing: bool = True) -> tuple[dict[str, Scores], dict[str, str]]:
    """Return scores by baseline and subject, and the reasons why other baselines have no scores.

    fit_missing: whether baselines without stored predictions are fitted.
    """
    if run.options.task.is_numeric:
        by_candidate = run.database.require_fact("candidate_scores", dict[str, Scores])
        return {RIDGE: next(iter(by_candidate.values()))}, {}
    stored_scores = run.database.load_fact("baselines", dict[str, Scores]) or {}
    statuses, linear = run.database.statuses(), linear_baselines(run).items()
    predictors: dict[str, Predict] = {n: partial(_predict_linear, run, s, statuses, fit_missing) for n, s in linear}
    predictors |= {name: partial(_predict, run, b, fit_missing) for name, b in library_baselines(run).items()}
    scores, skipped = dict[str, Scores](), dict[str, str]()
    for name, predict in predictors.items():
        try:
            scores[name] = stored_scores[name] if name in stored_scores else _score_subjects(run, predict)
        except SkippedBaseline as reason:
            skipped[name] = str(reason)
        except Exception as error:
            skipped[name] = f"it failed: {one_line(error)}"
    run.recordings.derived.pop(COVARIANCES, None)
    run.database.store_facts(baselines=scores)
    return scores, skipped


def library_baselines(run: Run) -> dict[str, Baseline]:
    """Return the entries of BASELINES that do not adapt, or that adapt in the same way as the run."""
    allowed = ("none", max_adaptation(run.options))
    return {name: baseline for name, baseline in BASELINES.items() if baseline.adaptation in allowed}


def max_adaptation(options: RunOptions) -> str:
    """Return the strongest adaptation to a new subject that the candidates of a run may have."""
    requested = (options.adaptation, options.constants.get("standardize"), options.constants.get("align"))
    return next((adaptation for adaptation in ("transductive", "online") if adaptation in requested), "none")


def linear_baselines(run: Run) -> dict[str, Setting]:
    """Return settings of LINEAR_BASELINES: zero-shot and, if the run may adapt, centered by subject."""
    adaptation, baselines = max_adaptation(run.options), dict[str, Setting]()
    for setting in reversed(linear_candidates(adaptation.replace("none", "zero-shot"), run.recordings)):
        if setting.family in LINEAR_BASELINES:
            suffix = "" if setting.adaptation == "none" else f", {adaptation}"
            baselines[LINEAR_BASELINES[setting.family] + suffix] = setting
    return {name: baselines[name] for name in sorted(baselines)}


def _predict_linear(
    run: Run, setting: Setting, statuses: Mapping[str, str], fit_missing: bool, held_out: tuple[int, int]
) -> Mapping[int, NDArray[np.floating]]:
    """Predict with a linear model, by the stored fit if the model is a candidate of the run."""
    entry = Entry.build("baselines", setting, *held_out, run.options.seed)
    if statuses.get(entry.key) == "done":
        return read_probabilities(run, entry)
    if not fit_missing:
        raise SkippedBaseline(LATER)
    job = run.job(entry)
    try:
        windows = prepare_windows(run.recordings, job, device=resolve_device(run.options.device), dtype=DTYPE)
        (outcome,) = train_population(make_population([job], windows))
    finally:
        release_windows(run.recordings)
    return _split_by_subject(run, job.fold, np.exp(outcome.held_out_log_probs.numpy()[len(job.fold.validation) :]))


def _predict(
    run: Run, baseline: Baseline, fit_missing: bool, held_out: tuple[int, int]
) -> Mapping[int, NDArray[np.floating]]:
    """Predict with an entry of BASELINES."""
    if not fit_missing:
        raise SkippedBaseline(LATER)
    fold = make_fold(run.recordings, *(run.groups[group] for group in held_out))
    return _split_by_subject(run, fold, baseline.predict(run.recordings, fold))


def _split_by_subject(run: Run, fold: Fold, probabilities: NDArray[np.floating]) -> dict[int, NDArray[np.floating]]:
    """Return probabilities (n, C) of a fold's test windows by subject."""
    test_subjects = run.recordings.subject.numpy()[fold.test]
    return {int(subject): probabilities[test_subjects == subject] for subject in np.unique(test_subjects)}


def _score_subjects(run: Run, predict: Predict) -> Scores:
    """Return the scores of all subjects that can be scored."""
    recordings, scores = run.recordings, Scores()
    y, subject_of_window, scorable = recordings.y.numpy(), recordings.subject.numpy(), scorable_subjects(recordings)
    for held_out in run.folds():
        probabilities = predict(held_out)
        for subject in run.groups[held_out[1]]:
            if subject in scorable:
                value = score_subject(run.options.scoring, y[subject_of_window == subject], probabilities[subject])
                scores[str(recordings.subjects[subject])] = value
    return scores


def tangent_space(recordings: Recordings, fold: Fold, *, is_recentered: bool = False) -> Floats:
    """Predict by the pipeline of pyRiemann: covariances, the tangent space at their mean, and shrinkage LDA.

    is_recentered: whether the mean covariance of each subject is whitened (Zanini et al. 2018)
    """
    from pyriemann.geometry.base import invsqrtm
    from pyriemann.geometry.mean import mean_riemann
    from pyriemann.tangentspace import TangentSpace
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.pipeline import make_pipeline

    C, subject_of_window = _scale_covariances(recordings, fold), recordings.subject.numpy()
    for subject in np.unique(subject_of_window) if is_recentered else ():
        rows = subject_of_window == subject
        W = invsqrtm(mean_riemann(C[rows]))
        C[rows] = W @ C[rows] @ W
    y = recordings.y.numpy()[fold.train]
    classes = np.unique(y)
    model = make_pipeline(
        TangentSpace(metric="riemann"),
        LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto", priors=np.full(len(classes), 1 / len(classes))),
    )
    model.fit(C[fold.train], y)
    probability = np.zeros((len(fold.test), recordings.n_classes))
    probability[:, classes] = model.predict_proba(C[fold.test])
    return probability


def _scale_covariances(recordings: Recordings, fold: Fold) -> Floats:
    """Return shrunk covariances (N, d, d) of channels, scaled to unit variance in training subjects."""
    if COVARIANCES not in recordings.derived:
        tangent = [s for s in linear_candidates("zero-shot", recordings) if s.family == "tangent"]
        if not tangent:
            raise SkippedBaseline(f"{recordings.n_channels} channels have too many covariances")
        delays = [step for step in tangent[0].preprocessing.transforms if isinstance(step, Delays)]
        copies, lag = (delays[0].copies, delays[0].lag) if delays else (1, 1)
        recordings.derived[COVARIANCES] = _compute_covariances(recordings.X, copies, lag)
    C: Floats = recordings.derived[COVARIANCES]
    unit = np.sqrt(np.median(C[fold.train].diagonal(axis1=1, axis2=2), 0))
    unit[unit == 0] = 1.0
    return oas_covariances(C / (unit[:, None] * unit), recordings.n_times) + FLOOR * np.eye(len(unit))


def _compute_covariances(X: Tensor, copies: int, lag: int) -> Floats:
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
    divisor = (length + 1) * (mean_square - level**2 / d)
    ratio = (mean_square + level**2) / np.where(divisor > 0, divisor, 1.0)
    shrinkage = np.where(divisor > 0, np.minimum(ratio, 1.0), 1.0)
    return np.asarray((1 - shrinkage)[:, None, None] * C + (shrinkage * level)[:, None, None] * np.eye(d))


BASELINES: dict[str, Baseline] = {
    PYRIEMANN: Baseline(tangent_space),
    RECENTERED: Baseline(partial(tangent_space, is_recentered=True), adaptation="transductive"),
}
