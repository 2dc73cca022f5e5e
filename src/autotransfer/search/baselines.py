"""Simple models on the same folds, for comparison: what a few lines of code give.

Some are closed forms ("built in"), two for any signal and those that the signal's field would try first. Where they are
candidates of the run, their fits are used. The others are entries of BASELINES. To add one, write a function that
predicts the test rows of a fold from its training rows, and add a line. Where a run may use unlabeled windows of a new
person, so may the baselines that know how to.
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
from ..folds import Fold, scorable_subjects
from ..jobs import Job, Outcome
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

LDA = "Features + LDA (built in)"  # band power and means of stretches
TANGENT = "Tangent space + LDA (built in)"
PYRIEMANN = "pyRiemann tangent space + LDA"
RECENTERED = "pyRiemann, re-centered by person"
CLOSED = {  # by the kind of a setting
    "features": LDA, "tangent": TANGENT, "tdar": "Time domain, autoregression + LDA (built in)",
    "rhythms": "Correlation with sines + LDA (built in)", "bands": "Band power + LDA (built in)",
    "evoked": "xDAWN covariances + LDA (built in)", "beats": "Beat shapes + LDA (built in)",
    "statistics": "Statistics + LDA (built in)",
}  # fmt: skip
RIDGE = "ridge on features"  # of a regression: the first candidate, on features that any signal has
LATER = "it is scored with a later result"
PART = 10**7  # values of windows that are multiplied at a time
FLOOR = 1e-6  # of a covariance with unit variances: a flat channel keeps it invertible
COVARIANCES = "covariances of baselines"  # where recordings keep them

Floats = NDArray[np.float64]


class Baseline(NamedTuple):
    """Simple model that the run is compared with."""

    predict: Callable[[Recordings, Fold], Floats]  # probabilities (n, C) of the test rows, from the training rows
    refuses: Callable[[Recordings], str | None] = lambda _: None  # why it cannot be used on such recordings
    uses: str = "none"  # what it uses of a new person: none, or the adaptation of the runs it is a baseline of


class Skipped(Exception):
    """Exception that says why a baseline has no scores."""


def baseline_scores(run: Run, *, every: bool = True) -> tuple[dict[str, Scores], dict[str, str]]:
    """Return the scores of all baselines by name and subject, and why there are none by name of those that are skipped
    or failed.

    every: fit those that are no candidates of the run, or are not fitted yet
    """
    if run.options.task.is_numeric:
        by_candidate = run.database.require("candidate_scores", dict[str, Scores])
        return {RIDGE: next(iter(by_candidate.values()))}, {}
    known = run.database.recall("baselines", dict[str, Scores]) or {}
    compute: dict[str, Callable[[], Scores]] = {}
    compute |= {name: partial(_solved, run, setting, every) for name, setting in closed_baselines(run).items()}
    compute |= {name: partial(_predicted, run, baseline, every) for name, baseline in _others(run).items()}
    scores, skipped = dict[str, Scores](), dict[str, str]()
    for name in compute:
        try:
            scores[name] = known[name] if name in known else compute[name]()
        except Skipped as reason:
            skipped[name] = str(reason)
        except Exception as error:
            skipped[name] = f"it failed: {one_line(error)}"
    run.recordings.derived.pop(COVARIANCES, None)
    run.database.remember(baselines=scores)
    return scores, skipped


def _others(run: Run) -> dict[str, Baseline]:
    """Return the entries of BASELINES that use no more of a new person than the run may."""
    used = ("none", adaptation_of(run.options))
    return {name: baseline for name, baseline in BASELINES.items() if baseline.uses in used}


def adaptation_of(options: RunOptions) -> str:
    """Return the most that a run's candidates may use of a new person's unlabeled windows."""
    asked = (options.adaptation, options.constants.get("standardize"), options.constants.get("align"))
    return next((kind for kind in ("transductive", "online") if kind in asked), "none")


def closed_baselines(run: Run) -> dict[str, Setting]:
    """Return linear models of the kinds in CLOSED, with estimated shrinkage: zero-shot and, if the run may use windows
    of a new person, centered by person."""
    forms = reversed(linear_candidates("zero-shot", run.recordings))
    baselines = {CLOSED[form.family]: form for form in forms if form.family in CLOSED}
    if (used := adaptation_of(run.options)) != "none":
        for form in reversed(linear_candidates(used, run.recordings)):
            if form.family in CLOSED and form.adaptation == used:
                baselines[CLOSED[form.family].replace(" (", f", {used} (")] = form
    return {name: baselines[name] for name in sorted(baselines)}


def _solved(run: Run, setting: Setting, every: bool) -> Scores:
    """Return the scores of a linear model, from its fits if it is a candidate of the run."""
    done = {entry.key: entry for entry in run.database.entries(records=False) if entry.status == "done"}
    if not every and any(Entry.build("", setting, *fold, run.options.seed).key not in done for fold in run.folds()):
        raise Skipped(LATER)

    def predict(entry: Entry) -> Mapping[int, NDArray[np.floating]]:
        if entry.key in done:
            return read_probabilities(run, done[entry.key])
        job = run.job(entry)
        tested = np.exp(_outcome(run, job).held_out_log_probs.numpy())[len(job.fold.validation) :]
        return _by_person(run, job.fold, tested)

    return _scored(run, setting, predict)


def _by_person(run: Run, fold: Fold, tested: NDArray[np.floating]) -> dict[int, NDArray[np.floating]]:
    """Return probabilities (n, C) of the test rows of a fold by person."""
    who = run.recordings.subject.numpy()[fold.test]
    return {int(person): tested[who == person] for person in np.unique(who)}


def _scored(run: Run, setting: Setting, predict: Callable[[Entry], Mapping[int, NDArray[np.floating]]]) -> Scores:
    """Return the scores of everybody who can be scored. predict: probabilities (n, C) of test subjects of a fold."""
    recordings, metric, known, scores = (
        run.recordings,
        run.options.scoring,
        set(scorable_subjects(run.recordings)),
        Scores(),
    )
    y, who = recordings.y.numpy(), recordings.subject.numpy()
    for fold in run.folds():
        probabilities = predict(Entry.build("baselines", setting, *fold, run.options.seed))
        for person in run.groups[fold[1]]:
            if person in known:
                value = score_subject(metric, y[who == person], probabilities[person])
                scores[str(recordings.subjects[person])] = value
    return scores


def _outcome(run: Run, job: Job) -> Outcome:
    """Solve a model only for the report: it is no training of the run, and has no line in its log."""
    device = resolve_device(run.options.device)
    try:
        windows = prepare_windows(run.recordings, job, device=device, dtype=DTYPE)
        (outcome,) = train_population(make_population([job], windows))
    finally:
        release_windows(run.recordings)
    return outcome


def _predicted(run: Run, baseline: Baseline, every: bool) -> Scores:
    """Return the scores of everybody; raise `Skipped` if the baseline cannot be used or is left to a later stage."""
    if (reason := baseline.refuses(run.recordings)) is not None:
        raise Skipped(reason)
    if not every:
        raise Skipped(LATER)

    def predict(entry: Entry) -> Mapping[int, NDArray[np.floating]]:
        fold = run.job(entry).fold
        return _by_person(run, fold, baseline.predict(run.recordings, fold))

    return _scored(run, run.options.settings()[0], predict)


def tangent_space(recordings: Recordings, fold: Fold) -> Floats:
    """Predict by pyRiemann's pipeline: covariances, the tangent space at their mean, and shrinkage LDA."""
    return _in_tangent_space(_scaled(recordings, fold), recordings, fold)


def recentered(recordings: Recordings, fold: Fold) -> Floats:
    """Predict by pyRiemann's pipeline after each person's mean covariance is brought to the identity, from all of their
    windows without labels (Zanini et al. 2018)."""
    from pyriemann.geometry.base import invsqrtm
    from pyriemann.geometry.mean import mean_riemann

    C, who = _scaled(recordings, fold), recordings.subject.numpy()
    for person in np.unique(who):
        W = invsqrtm(mean_riemann(C[who == person]))
        C[who == person] = W @ C[who == person] @ W
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
    """Return shrunk covariances (N, d, d), channels scaled by the training people: shrinkage mixes units otherwise."""
    if COVARIANCES not in recordings.derived:
        recordings.derived[COVARIANCES] = _covariances(recordings.X, *_delays(recordings))
    C: Floats = recordings.derived[COVARIANCES]
    unit = np.sqrt(np.median(C[fold.train].diagonal(axis1=1, axis2=2), 0))
    unit[unit == 0] = 1.0
    return oas_covariances(C / (unit[:, None] * unit), recordings.n_times) + FLOOR * np.eye(len(unit))


def _delays(recordings: Recordings) -> tuple[int, int]:
    """Return the copies and the lag of our own tangent space: few channels have few covariances."""
    forms = [form for form in linear_candidates("zero-shot", recordings) if form.family == "tangent"]
    delays = [step for form in forms for step in form.preprocessing.transforms if isinstance(step, Delays)]
    return (delays[0].copies, delays[0].lag) if delays else (1, 1)


def _covariances(X: Tensor, copies: int, lag: int) -> Floats:
    """Return covariances (N, C · copies, C · copies) of windows (N, C, T), in parts because windows may be larger than
    memory."""
    length = X.shape[2] - (copies - 1) * lag
    parts = []
    for rows in np.array_split(np.arange(len(X)), max(1, X.numel() * copies // PART)):
        x = X[torch.from_numpy(rows)].double().numpy()
        delayed = np.concatenate([x[:, :, n * lag : n * lag + length] for n in range(copies)], 1)
        centered = delayed - delayed.mean(2, keepdims=True)
        parts.append(centered @ centered.transpose(0, 2, 1) / length)
    return np.concatenate(parts)


def oas_covariances(C: Floats, length: int) -> Floats:
    """Return covariances (N, d, d) of `length` samples after the oracle approximating shrinkage of each, "oas" in
    pyRiemann."""
    d = C.shape[1]
    mean_square, level = (C**2).mean((1, 2)), np.trace(C, axis1=1, axis2=2) / d
    below = (length + 1) * (mean_square - level**2 / d)
    share = np.where(below > 0, np.minimum((mean_square + level**2) / np.where(below > 0, below, 1.0), 1.0), 1.0)
    return np.asarray((1 - share)[:, None, None] * C + (share * level)[:, None, None] * np.eye(d))


def _too_wide(recordings: Recordings) -> str | None:
    if any(form.family == "tangent" for form in linear_candidates("zero-shot", recordings)):
        return None
    return f"{recordings.n_channels} channels have too many covariances"


BASELINES: dict[str, Baseline] = {
    PYRIEMANN: Baseline(tangent_space, _too_wide),
    RECENTERED: Baseline(recentered, _too_wide, uses="transductive"),
}
