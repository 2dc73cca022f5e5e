"""Probabilities and scores of held-out subjects, from finished jobs and from snapshots that they did not pick."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..runs.database import Entry
from ..runs.run import Run
from ..settings import Setting
from ..tasks import Metric
from ..tasks.classification import BALANCED_ACCURACY, METRICS
from ..training.metrics import balanced_accuracy_of
from .stages import Score

FitKey = tuple[tuple[int, ...], int]  # the subjects that a fit holds out, and one of them
Array = NDArray[np.float32]
Groups = Sequence[Sequence[int]]  # who are held out together


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


def score_subject(metric: Metric, y: NDArray[np.int64], probability: NDArray[np.floating]) -> float:
    """Score probabilities (n, C) of one subject with classes y (n,)."""
    if metric is METRICS[BALANCED_ACCURACY]:  # scikit-learn's takes much longer
        return balanced_accuracy_of(probability.argmax(1), y, probability.shape[1])
    return metric.score(y, np.asarray(probability, dtype=np.float64))


def logarithm(p: Array) -> Array:
    """Return log p, which is finite also where a probability is 0."""
    return np.log(np.maximum(p, np.finfo(np.float32).tiny))


def finished_entries(run: Run, settings: Sequence[Setting], folds: Sequence[tuple[int, int]]) -> list[Entry]:
    """Return the finished jobs of these settings and folds with every seed, whichever stage trained them."""
    keys = {Entry.build("", s, *fold, seed).key for s in settings for fold in folds for seed in run.options.all_seeds}
    return [entry for entry in run.database.entries() if entry.key in keys]


def measured_scores(run: Run, entries: Sequence[Entry], *, both: bool = True) -> list[Score]:
    """Return scores of each held-out subject by the snapshot that the other subject, or group, picked: best epochs are
    not flattered in comparison with last ones. Failed jobs have the lowest score. both=False: validation subjects."""
    metric, scores, rec = run.options.scoring, list[Score](), run.recordings
    usual = metric is METRICS[BALANCED_ACCURACY]  # which records hold
    y = {person: rec.y.numpy()[rec.subject.numpy() == person] for person in range(rec.n_subjects)}
    for entry in entries:
        if entry.record is None:
            continue
        validates, tests = run.groups[entry.validation], run.groups[entry.test]
        held_out, is_done = frozenset((*validates, *tests)), entry.status == "done"
        probabilities = probabilities_of(run, entry) if is_done and not usual else {}
        for person in (*validates, *(tests if both else ())):
            tested, value = entry.record if person in tests else entry.record.swapped, metric.lowest
            if usual and tested is None:
                continue
            if person in probabilities:
                value = score_subject(metric, y[person], probabilities[person])
            elif is_done and tested is not None:
                value = tested.score_on(person)
            scores.append(Score(entry.setting.key, person, value, held_out - {person}))
    return scores


def validation_scores(entries: Sequence[Entry], groups: Groups | None = None, *, twins: bool = True) -> list[Score]:
    """Return validation scores as published, where each subject is held out alone (groups=None): of each fit and, with
    twins, of its twin, the snapshot that the test subject validates. Failed jobs count as 0."""
    scores = []
    for entry in entries:
        if entry.record is None:
            continue
        record, key = entry.record, entry.setting.key
        validates, tests = (place if groups is None else groups[place][0] for place in (entry.validation, entry.test))
        scores.append(Score(key, validates, 0.0 if record.failure is not None else record.validation_score))
        if twins and record.swapped is not None:
            twin = record.swapped.validation_score
            scores.append(Score(key, tests, 0.0 if record.failure is not None else twin))
    return scores
