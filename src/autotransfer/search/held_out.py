"""Probabilities and scores of held-out subjects from finished jobs, by snapshots that other subjects selected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..runs.database import Entry
from ..runs.run import Run
from ..settings import Setting
from ..tasks import Metric
from ..tasks.classification import BALANCED_ACCURACY, METRICS
from ..training.metrics import balanced_accuracy_of
from .weights import Floats

FitKey = tuple[tuple[int, ...], int]  # subjects that a fit holds out, and one of them
Array = NDArray[np.float32]
SHORTLIST_PER_METHOD = 3
NEAR = 0.005  # of balanced accuracy: smaller differences between settings are noise


class Score(NamedTuple):
    """Validation score of a setting on one subject."""

    setting: str  # Setting.key
    subject: int
    value: float
    others: frozenset[int] = frozenset()  # other held-out subjects, one of whom selected the snapshot


def held_out_log_probs(run: Run, candidates: Sequence[Setting], entries: Sequence[Entry]) -> dict[FitKey, Array]:
    """Return log-probabilities (K, n, C) of K candidates, from the mean probability over seeds.

    A candidate whose fits all failed has the same probability for every class.
    """
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
        for subject, probability in read_probabilities(run, entry).items():
            total[fold, subject][k] += probability
        seeds[k, fold] = seeds.get((k, fold), 0) + 1
    for (fold, _), probability in total.items():
        for k in range(len(candidates)):
            probability[k] = probability[k] / seeds[k, fold] if (k, fold) in seeds else 1 / run.recordings.n_classes
        probability[:] = finite_log(probability)
    return total


def read_probabilities(run: Run, entry: Entry) -> dict[int, Array]:
    """Return probabilities (n, C) of each held-out subject by the snapshot that the other subjects selected."""
    who = run.recordings.subject.numpy()
    groups = run.groups[entry.validation], run.groups[entry.test]
    # Windows of validation subjects come first, then those of test subjects, each in the order of the recordings.
    rows = np.concatenate([who[np.isin(who, group)] for group in groups])
    probability = np.exp(run.held_out_log_probs(entry).numpy())
    return {subject: probability[rows == subject] for group in groups for subject in group}


def score_subject(metric: Metric, y: NDArray[np.int64], probability: NDArray[np.floating]) -> float:
    """Score probabilities (n, C) of one subject with classes y (n,)."""
    if metric is METRICS[BALANCED_ACCURACY]:  # scikit-learn takes much longer
        return balanced_accuracy_of(probability.argmax(1), y, probability.shape[1])
    return metric.score(y, np.asarray(probability, dtype=np.float64))


def finite_log(p: Array) -> Array:
    """Return log p, finite also if a probability is 0."""
    return np.log(np.maximum(p, np.finfo(np.float32).tiny))


def finished_entries(run: Run, settings: Sequence[Setting], folds: Sequence[tuple[int, int]]) -> list[Entry]:
    """Return the finished jobs of these settings and folds with every seed."""
    keys = {Entry.build("", s, *fold, seed).key for s in settings for fold in folds for seed in run.options.all_seeds}
    return [entry for entry in run.database.entries() if entry.key in keys]


def held_out_scores(run: Run, entries: Sequence[Entry], *, validation_only: bool = False) -> list[Score]:
    """Return scores of each held-out subject by the snapshot that the other subject, or group, selected.

    This keeps scores of best epochs as honest as scores of last epochs. Failed jobs have the lowest score.
    """
    metric, scores, rec = run.options.scoring, list[Score](), run.recordings
    in_records = metric is METRICS[BALANCED_ACCURACY]
    y = {subject: rec.y.numpy()[rec.subject.numpy() == subject] for subject in range(rec.n_subjects)}
    for entry in entries:
        if entry.record is None:
            continue
        validates, tests = run.groups[entry.validation], run.groups[entry.test]
        held_out, is_done = frozenset((*validates, *tests)), entry.status == "done"
        probabilities = read_probabilities(run, entry) if is_done and not in_records else {}
        for subject in (*validates, *(() if validation_only else tests)):
            record, value = entry.record if subject in tests else entry.record.swapped, metric.lowest
            if in_records and record is None:
                continue
            if subject in probabilities:
                value = score_subject(metric, y[subject], probabilities[subject])
            elif is_done and record is not None:
                value = record.score_on(subject)
            scores.append(Score(entry.setting.key, subject, value, held_out - {subject}))
    return scores


def validation_scores(
    entries: Sequence[Entry], groups: Sequence[Sequence[int]], *, swapped: bool = True
) -> list[Score]:
    """Return validation scores of subjects who are held out alone, as published. Failed jobs count as 0.

    swapped: also scores of the snapshot that the test subject selected, on the test subject
    """
    scores = []
    for entry in entries:
        if entry.record is None:
            continue
        records = {entry.validation: entry.record} | ({entry.test: entry.record.swapped} if swapped else {})
        for place, record in records.items():
            if record is not None:
                value = 0.0 if entry.record.failure is not None else record.validation_score
                scores.append(Score(entry.setting.key, groups[place][0], value))
    return scores


def scores_by_subject(scores: Iterable[Score], setting: str) -> Floats:
    """Return a setting's mean validation score on each subject (S,), over seeds and fits."""
    values: dict[int, list[float]] = {}
    for score in scores:
        if score.setting == setting:
            values.setdefault(score.subject, []).append(score.value)
    return np.array([np.mean(values[subject]) for subject in sorted(values)])


def lower_quartile(values: Floats) -> float:
    """Return the 25th percentile over subjects; -inf without scores."""
    return float(np.percentile(values, 25)) if len(values) else float("-inf")


def mean_score(values: Floats) -> float:
    """Return the mean over subjects; -inf without scores."""
    return float(values.mean()) if len(values) else float("-inf")


def shortlist(scores: Sequence[Score], methods: Mapping[str, str | None]) -> list[str]:
    """Return the best three settings of each method, in the order of `methods` (None: without a penalty).

    The first setting without a penalty is on the shortlist in any case.
    """
    means = {setting: mean_score(scores_by_subject(scores, setting)) for setting in methods}
    kept = set([setting for setting, method in methods.items() if method is None][:1])
    for method in set(methods.values()):
        ranked = sorted((s for s in methods if methods[s] == method), key=lambda setting: -means[setting])
        kept.update(setting for setting in ranked[:SHORTLIST_PER_METHOD] if means[setting] > float("-inf"))
    return [setting for setting in methods if setting in kept]
