"""Probabilities of held-out subjects by every candidate, from snapshots that these subjects did not pick."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..runs.ledger import Entry
from ..runs.run import Run
from ..settings import Setting
from ..tasks import Metric
from ..tasks.classification import BALANCED_ACCURACY, METRICS
from ..training.metrics import balanced_accuracy_of

FitKey = tuple[tuple[int, ...], int]  # the subjects that a fit holds out, and one of them
Array = NDArray[np.float32]


def held_out_log_probs(run: Run, candidates: Sequence[Setting], entries: Sequence[Entry]) -> dict[FitKey, Array]:
    """Return log-probabilities (K, n, C) of K candidates, from the mean probability over seeds. A candidate whose fits
    all failed gives every class the same probability."""
    who, place = run.recordings.subject.numpy(), {setting: k for k, setting in enumerate(candidates)}
    windows = np.bincount(who, minlength=run.recordings.n_subjects)
    total: dict[FitKey, Array] = {}
    seeds: dict[tuple[int, tuple[int, ...]], int] = {}
    for entry in entries:
        fold = (*run.groups[entry.validation], *run.groups[entry.test])
        for subject in fold:
            shape = (len(candidates), int(windows[subject]), run.recordings.n_classes)
            total.setdefault((fold, subject), np.zeros(shape, dtype=np.float32))
        if entry.status != "done" or entry.setting not in place:
            continue
        k = place[entry.setting]
        for subject, probability in probabilities_of(run, entry).items():
            total[fold, subject][k] += probability
        seeds[k, fold] = seeds.get((k, fold), 0) + 1
    for (fold, _), probability in total.items():
        for k in range(len(candidates)):
            probability[k] = probability[k] / seeds[k, fold] if (k, fold) in seeds else 1 / run.recordings.n_classes
        probability[:] = logarithm(probability)
    return total


def probabilities_of(run: Run, entry: Entry) -> dict[int, Array]:
    """Return probabilities (n, C) by held-out subject of a finished fit, by the snapshot that the others picked."""
    who = run.recordings.subject.numpy()
    groups = run.groups[entry.validation], run.groups[entry.test]
    # Rows of those who validate, then of those who test, each in the order of the recordings.
    rows = np.concatenate([who[np.isin(who, group)] for group in groups])
    probability = np.exp(run.held_out_log_probs(entry).numpy())
    return {subject: probability[rows == subject] for group in groups for subject in group}


def person_score(metric: Metric, y: NDArray[np.int64], probability: NDArray[np.floating]) -> float:
    """Score probabilities (n, C) of one subject with classes y (n,)."""
    if metric is METRICS[BALANCED_ACCURACY]:  # scikit-learn's takes much longer
        return balanced_accuracy_of(probability.argmax(1), y, probability.shape[1])
    return metric.score(y, np.asarray(probability, dtype=np.float64))


def logarithm(p: Array) -> Array:
    """Return log p, which is finite also where a probability is 0."""
    return np.log(np.maximum(p, np.finfo(np.float32).tiny))
