"""What a few lines of code give on the same folds: shrinkage LDA, and a tangent space, by pyRiemann if it is installed.

They cost seconds, and whoever reads a report can see whether a network was worth its time. Shrinkage LDA and, without
pyRiemann, the tangent space are the closed forms that runs have among their candidates: what is trained is not trained
again.
"""

from __future__ import annotations

import time
from dataclasses import replace
from importlib import import_module

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..folds import Fold, Rows, scorable
from ..jobs import Job, Record
from ..preprocessing.delays import Delays
from ..runs.choice import Scores
from ..runs.executor import DTYPE
from ..runs.run import Run
from ..settings import Setting
from ..training.closed_form import population_of
from ..training.metrics import balanced_accuracy_of
from ..training.packing import resolve_device
from ..training.train import run as train_population
from ..training.windows import release, windows_for
from .kinds import closed_forms

LDA = "Shrinkage LDA"
TANGENT = "Tangent space, LDA"
PYRIEMANN = "pyRiemann, tangent space, LDA"
PART = 10**7  # values of windows that are multiplied at a time
FLOOR = 1e-6  # of a covariance with unit variances: a flat channel keeps it invertible

Floats = NDArray[np.float64]


def peer_scores(run: Run, until: float | None = None) -> dict[str, Scores]:
    """By name and subject. What is not done at a moment of the monotonic clock is left out."""
    known = run.ledger.recall("peers", dict[str, Scores])
    if known is not None:
        return known
    found = {name: _solved(run, setting) for name, setting in closed_peers(run).items()}
    if TANGENT in found and _imports("pyriemann.tangentspace"):
        own = _pyriemann(run, closed_peers(run)[TANGENT], until)
        if own is not None:
            del found[TANGENT]
            found[PYRIEMANN] = own
    if until is None or time.monotonic() < until:  # otherwise there may be time later
        run.ledger.remember(peers=found)
    return found


def _imports(module: str) -> bool:
    """Whether it is there and works: a run that is done must not end because a peer lacks a package of its own."""
    try:
        import_module(module)
    except ImportError:
        return False
    return True


def closed_peers(run: Run) -> dict[str, Setting]:
    """Those of our closed forms that are what everybody would try; zero-shot, with the shrinkage that is estimated."""
    options = replace(run.options, preprocessing="zero-shot", standardise=None, align=None, rule="average",
                      search="grid", nested="fast", grid="quick")  # fmt: skip
    kinds = {"features": LDA, "tangent": TANGENT}
    found: dict[str, Setting] = {}
    for setting in closed_forms(options, run.recordings):
        if setting.kind in kinds:
            found.setdefault(kinds[setting.kind], setting)
    return found


def _solved(run: Run, setting: Setting) -> Scores:
    """From the ledger, where it is a candidate."""
    seed, folds = run.options.seed, run.folds()
    known = {entry.key: entry.record for entry in run.ledger.entries()}
    entries = [run.entry("peers", setting, *fold, seed) for fold in folds]
    records = [known.get(entry.key) for entry in entries]
    missing = [place for place, record in enumerate(records) if record is None]
    for place in missing:
        records[place] = _record(run, Job(setting, run.job(entries[place]).fold, seed))
    scored, names = set(scorable(run.recordings)), run.recordings.subjects
    return {
        str(names[person]): record.score_on(person)
        for record, (_, test) in zip(records, folds, strict=True)
        for person in run.groups[test]
        if record is not None and person in scored
    }


def _record(run: Run, job: Job) -> Record:
    """Of a model that is solved for the report alone: no training of the run, and no line of its log."""
    device = resolve_device(run.options.device)
    try:
        windows = windows_for(run.recordings, job, device=device, dtype=DTYPE)
        (outcome,) = train_population(population_of(run.recordings, [job], windows, DTYPE))
    finally:
        release(run.recordings)
    return outcome.record()


def _pyriemann(run: Run, setting: Setting, until: float | None) -> Scores | None:
    """Covariances with the delays of our own tangent space, the tangent space at their mean, and shrinkage LDA."""
    recordings = run.recordings
    y, who, scored = recordings.y.numpy(), recordings.subject.numpy(), set(scorable(recordings))
    C = _covariances(recordings.X, setting)
    found: Scores = {}
    for entry in (run.entry("peers", setting, *fold, 0) for fold in run.folds()):
        if until is not None and time.monotonic() > until:
            return None
        fold = run.job(entry).fold
        predicted = _predicted(C, y, fold, recordings.n_times)
        for person in run.groups[entry.test]:
            own = who[fold.test] == person
            if person in scored:
                score = balanced_accuracy_of(predicted[own], y[fold.test][own], recordings.n_classes)
                found[str(recordings.subjects[person])] = score
    return found


def _predicted(C: Floats, y: NDArray[np.int64], fold: Fold, length: int) -> NDArray[np.int64]:
    from pyriemann.tangentspace import TangentSpace
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.pipeline import make_pipeline

    # Volts and degrees must not meet in one shrinkage: units are those of the training people.
    unit = np.sqrt(np.median(C[fold.train].diagonal(axis1=1, axis2=2), 0))
    unit[unit == 0] = 1.0
    present = len(np.unique(y[fold.train]))
    model = make_pipeline(
        TangentSpace(metric="riemann"),
        LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto", priors=np.full(present, 1 / present)),
    )

    def scaled(rows: Rows) -> Floats:
        return shrunk(C[rows] / (unit[:, None] * unit), length) + FLOOR * np.eye(len(unit))

    model.fit(scaled(fold.train), y[fold.train])
    return np.asarray(model.predict(scaled(fold.test)), dtype=np.int64)


def _covariances(X: Tensor, setting: Setting) -> Floats:
    """(N, C, T) -> (N, C · copies, C · copies) with the delays of our own tangent space. In parts, because windows may
    be larger than memory."""
    delays = [one for one in setting.preprocessing.transforms if isinstance(one, Delays)]
    copies, lag = (delays[0].copies, delays[0].lag) if delays else (1, 1)
    length = X.shape[2] - (copies - 1) * lag
    found = []
    for rows in np.array_split(np.arange(len(X)), max(1, X.numel() * copies // PART)):
        own = X[torch.from_numpy(rows)].double().numpy()
        delayed = np.concatenate([own[:, :, n * lag : n * lag + length] for n in range(copies)], 1)
        centred = delayed - delayed.mean(2, keepdims=True)
        found.append(centred @ centred.transpose(0, 2, 1) / length)
    return np.concatenate(found)


def shrunk(C: Floats, length: int) -> Floats:
    """Covariances (N, d, d) of so many samples with the oracle approximating shrinkage of each, "oas" in pyRiemann."""
    d = C.shape[1]
    mean_square, level = (C**2).mean((1, 2)), np.trace(C, axis1=1, axis2=2) / d
    below = (length + 1) * (mean_square - level**2 / d)
    share = np.where(below > 0, np.minimum((mean_square + level**2) / np.where(below > 0, below, 1.0), 1.0), 1.0)
    return np.asarray((1 - share)[:, None, None] * C + (share * level)[:, None, None] * np.eye(d))
