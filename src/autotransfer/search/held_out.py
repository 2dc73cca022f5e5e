"""Read probabilities and scores of held-out subjects from finished jobs, by checkpoints selected on other subjects."""

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

FitKey = tuple[tuple[int, ...], int]  # held-out subjects of a fit, and one of these subjects
Array = NDArray[np.float32]
SHORTLIST_PER_METHOD = 3  # settings of each method on a shortlist
NEAR = 0.005  # difference of balanced accuracy; smaller differences between settings are noise


class Score(NamedTuple):
    """Validation score of a setting on one subject."""

    setting: str  # Setting.key
    subject: int
    value: float
    held_out_with: frozenset[int] = frozenset()  # other held-out subjects; the checkpoint was selected on some of them


def held_out_log_probs(run: Run, candidates: Sequence[Setting], entries: Sequence[Entry]) -> dict[FitKey, Array]:
    """Return log-probabilities (K, n, C) of K candidates for each fit and held-out subject, averaged over seeds.

    If all fits of a candidate failed, all classes have the same probability.
    """
    index = {setting: k for k, setting in enumerate(candidates)}
    n_windows = np.bincount(run.recordings.subject.numpy(), minlength=run.recordings.n_subjects)
    sums: dict[FitKey, Array] = {}
    n_seeds: dict[tuple[int, tuple[int, ...]], int] = {}
    for entry in entries:
        fold = (*run.groups[entry.validation], *run.groups[entry.test])
        for subject in fold:
            shape = (len(candidates), int(n_windows[subject]), run.recordings.n_classes)
            sums.setdefault((fold, subject), np.zeros(shape, dtype=np.float32))
        if entry.status != "done" or entry.setting not in index:
            continue
        k = index[entry.setting]
        for subject, probability in read_probabilities(run, entry).items():
            sums[fold, subject][k] += probability
        n_seeds[k, fold] = n_seeds.get((k, fold), 0) + 1
    for (fold, _), probability in sums.items():
        for k in range(len(candidates)):
            probability[k] = probability[k] / n_seeds[k, fold] if (k, fold) in n_seeds else 1 / run.recordings.n_classes
        probability[:] = finite_log(probability)
    return sums


def read_probabilities(run: Run, entry: Entry) -> dict[int, Array]:
    """Return probabilities (n, C) for each held-out subject by the checkpoint that was selected on other subjects."""
    subject_of_window = run.recordings.subject.numpy()
    groups = run.groups[entry.validation], run.groups[entry.test]
    # Windows of validation subjects precede windows of test subjects. Both are in the order of the recordings.
    rows = np.concatenate([subject_of_window[np.isin(subject_of_window, group)] for group in groups])
    probability = np.exp(run.held_out_log_probs(entry).numpy())
    return {subject: probability[rows == subject] for group in groups for subject in group}


def score_subject(metric: Metric, y: NDArray[np.int64], probability: NDArray[np.floating]) -> float:
    """Score probabilities (n, C) of one subject with classes y (n,)."""
    if metric is METRICS[BALANCED_ACCURACY]:  # scikit-learn's function takes much longer
        return balanced_accuracy_of(probability.argmax(1), y, probability.shape[1])
    return metric.score(y, np.asarray(probability, dtype=np.float64))


def finite_log(p: Array) -> Array:
    """Return log p, with a finite value for probability 0."""
    return np.log(np.maximum(p, np.finfo(np.float32).tiny))


def find_entries(run: Run, settings: Sequence[Setting], folds: Sequence[tuple[int, int]]) -> list[Entry]:
    """Return the database entries of these settings and folds with every seed."""
    keys = {Entry.build("", s, *fold, seed).key for s in settings for fold in folds for seed in run.options.all_seeds}
    return [entry for entry in run.database.entries() if entry.key in keys]


def held_out_scores(run: Run, entries: Sequence[Entry], *, validation_only: bool = False) -> list[Score]:
    """Return scores of each held-out subject by the checkpoint that was selected on the other subject or group.

    The choice of the best epoch therefore does not bias the scores. Failed jobs have the lowest score.
    """
    metric, scores, rec = run.options.scoring, list[Score](), run.recordings
    has_stored_scores = metric is METRICS[BALANCED_ACCURACY]
    y = {subject: rec.y.numpy()[rec.subject.numpy() == subject] for subject in range(rec.n_subjects)}
    for entry in entries:
        if entry.record is None:
            continue
        validation, test = run.groups[entry.validation], run.groups[entry.test]
        held_out, is_done = frozenset((*validation, *test)), entry.status == "done"
        probabilities = read_probabilities(run, entry) if is_done and not has_stored_scores else {}
        for subject in (*validation, *(() if validation_only else test)):
            record, value = entry.record if subject in test else entry.record.swapped, metric.lowest
            if has_stored_scores and record is None:
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
    """Return validation scores of subjects that are held out alone, as in the paper. Failed jobs have score 0.

    swapped: also return scores with exchanged validation and test subjects.
    """
    scores = []
    for entry in entries:
        if entry.record is None:
            continue
        records = {entry.validation: entry.record} | ({entry.test: entry.record.swapped} if swapped else {})
        for group, record in records.items():
            if record is not None:
                value = 0.0 if entry.record.failure is not None else record.validation_score
                scores.append(Score(entry.setting.key, groups[group][0], value))
    return scores


def scores_by_subject(scores: Iterable[Score], setting: str) -> Floats:
    """Return the mean validation score of a setting over seeds and fits, for each subject (S,)."""
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
    """Return the best three settings of each method and the first setting without a penalty.

    methods: method of each setting, None without a penalty. The shortlist keeps the order of settings.
    """
    means = {setting: mean_score(scores_by_subject(scores, setting)) for setting in methods}
    selected = set([setting for setting, method in methods.items() if method is None][:1])
    for method in set(methods.values()):
        ranked = sorted((s for s in methods if methods[s] == method), key=lambda setting: -means[setting])
        selected.update(setting for setting in ranked[:SHORTLIST_PER_METHOD] if means[setting] > float("-inf"))
    return [setting for setting in methods if setting in selected]
