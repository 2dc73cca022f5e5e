"""Compute errors and confidence of the delivered model on held-out subjects, for the report."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..folds import use_whole_subjects
from ..recordings import Recordings
from ..runs.choice import (
    Calibration,
    Diagnosis,
    EnsembleWeights,
    IntervalCheck,
    PredictionSetScores,
    Reliability,
    Scores,
    Selection,
)
from ..runs.run import Run
from ..training.conformal import (
    REPORTED_COVERAGE,
    Intervals,
    Thresholds,
    confidence_threshold,
    coverage_curves,
    find_thresholds,
    held_out_coverage,
    make_sets,
)
from .evaluation import Predictions, delivered_predictions, nested_weights
from .evidence import ClassificationEvidence, Evidence, RegressionEvidence
from .weights import Floats, balanced_sample_weight, combine_log_probs

BINS = 10  # number of bins of confidence
COVERAGES = (0.8, 0.9, 0.95)  # requested coverages of prediction sets
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)  # requested shares of windows without a prediction
LabeledPredictions = tuple[NDArray[np.int64], NDArray[np.float64]]  # classes (n,), probabilities (n, C)


def diagnose(run: Run, selection: Selection, evidence: Evidence) -> Diagnosis:
    """Describe the predictions for each subject by the model that was selected without the subject."""
    predictions, ensemble = delivered_predictions(selection, evidence), selection.ensemble
    recordings, merged = use_whole_subjects(run.recordings), merge_units(run.recordings, predictions)
    if isinstance(evidence, RegressionEvidence):
        return Diagnosis(intervals=check_intervals(recordings, merged))
    subject_of_window, y = recordings.subject.numpy(), recordings.y.numpy()
    pairs = {str(recordings.subjects[s]): (y[subject_of_window == s], log_p) for s, log_p in merged.items()}
    return Diagnosis(
        confusions={name: confusion(*y_and_log_p) for name, y_and_log_p in pairs.items()},
        reliability={name: reliability(*y_and_log_p) for name, y_and_log_p in pairs.items()},
        prediction_sets=score_prediction_sets({name: (y, np.exp(log_p)) for name, (y, log_p) in pairs.items()}),
        calibration=None if ensemble is None else calibration(ensemble, evidence, predictions),
    )


def check_intervals(recordings: Recordings, predictions: Predictions) -> IntervalCheck | None:
    """Return intervals around predictions (n,) of a continuous target; None if there are too few subjects."""
    subject_of_window, y = recordings.subject.numpy(), recordings.truth.numpy()
    residuals = [np.abs(y[subject_of_window == subject] - values) for subject, values in predictions.items()]
    intervals, coverage = Intervals.fit(residuals), list[float]()
    # An infinite delivered interval is not checked, although held-out intervals may be finite.
    if intervals is not None and np.isfinite(intervals.radius(REPORTED_COVERAGE)):
        coverage = held_out_coverage(residuals, REPORTED_COVERAGE)
    by_subject = {str(recordings.subjects[s]): share for s, share in zip(predictions, coverage, strict=False)}
    return None if intervals is None else IntervalCheck(intervals, by_subject)


def merge_units(recordings: Recordings, predictions: Predictions) -> dict[int, NDArray[np.floating]]:
    """Merge predictions (n, ...) of held-out units by subject. Subjects with unscored units are left out."""
    if recordings.units is None:
        return dict(predictions)
    units, subjects = recordings.subject.numpy(), use_whole_subjects(recordings).subject.numpy()
    is_predicted = np.isin(units, list(predictions))
    by_subject: dict[int, NDArray[np.floating]] = {}
    for subject in np.unique(subjects):
        rows = np.flatnonzero(subjects == subject)
        if is_predicted[rows].all():
            first = predictions[int(units[rows[0]])]
            merged = np.empty((len(rows), *first.shape[1:]))
            for unit in np.unique(units[rows]):
                merged[units[rows] == unit] = predictions[unit]
            by_subject[int(subject)] = merged
    return by_subject


def calibration(ensemble: EnsembleWeights, evidence: ClassificationEvidence, log_probs: Predictions) -> Calibration:
    """Compare confidence with accuracy, with the same weight for every subject and class."""
    confidences, confidences_before, hits, sample_weights = [], [], [], []
    for subject, log_p in log_probs.items():
        y, weights = evidence.y[subject], nested_weights(ensemble, evidence, subject)
        log_p_before = combine_log_probs(weights / weights.sum(), evidence.pool(subject))  # without the temperature
        confidences.append(np.exp(log_p.max(1)))
        confidences_before.append(np.exp(log_p_before.max(1)))
        hits.append(log_p.argmax(1) == y)
        sample_weights.append(balanced_sample_weight(y) / len(log_probs))
    is_correct, sample_weight = np.concatenate(hits), np.concatenate(sample_weights)
    bins = _fill_bins(np.concatenate(confidences), is_correct, sample_weight)
    return Calibration(
        confidence=bins[0].tolist(),
        accuracy=bins[1].tolist(),
        share=bins[2].tolist(),
        error=_measure_error(*bins),
        error_before=_measure_error(*_fill_bins(np.concatenate(confidences_before), is_correct, sample_weight)),
    )


def reliability(y: NDArray[np.int64], log_p: NDArray[np.floating]) -> Reliability:
    """Compare confidence with accuracy for one subject with classes (n,) and log-probabilities (n, C)."""
    confidence, is_correct, weights = np.exp(log_p.max(1)), log_p.argmax(1) == y, balanced_sample_weight(y)
    error = _measure_error(*_fill_bins(confidence, is_correct, weights))
    mean_confidence, accuracy = (float(np.average(x, weights=weights)) for x in (confidence, is_correct))
    return Reliability(mean_confidence, accuracy, error)


def confusion(y: NDArray[np.int64], log_p: NDArray[np.floating]) -> list[list[int]]:
    """Return counts of true class × predicted class (C, C) of one subject."""
    size = log_p.shape[1]
    counts: list[list[int]] = np.bincount(y * size + log_p.argmax(1), minlength=size**2).reshape(size, size).tolist()
    return counts


def _fill_bins(confidence: Floats, is_correct: NDArray[np.bool_], sample_weight: Floats) -> list[Floats]:
    """Return mean confidence, accuracy and share of windows of each bin of confidence that is not empty."""
    index = np.minimum((confidence * BINS).astype(int), BINS - 1)
    columns = (sample_weight, sample_weight * confidence, sample_weight * is_correct)
    sums = np.stack([np.bincount(index, weights=column, minlength=BINS) for column in columns])
    share, confidence_sum, accuracy_sum = sums[:, sums[0] > 0]
    return [confidence_sum / share, accuracy_sum / share, np.asarray(share, dtype=np.float64)]


def _measure_error(confidence: Floats, accuracy: Floats, share: Floats) -> float:
    """Return the expected calibration error."""
    return float((share * np.abs(confidence - accuracy)).sum() / share.sum())


def score_prediction_sets(subjects: Mapping[str, LabeledPredictions]) -> PredictionSetScores | None:
    """Score prediction sets and abstention on held-out subjects, by name; None if there are too few subjects."""
    y, probability = [labels for labels, _ in subjects.values()], [p for _, p in subjects.values()]
    thresholds = Thresholds.fit(y, probability)
    if thresholds is None:
        return None
    set_thresholds, curves = coverage_curves(y, probability)
    tables: dict[str, dict[str, Scores]] = {
        name: {} for name in ("coverage", "set_size", "answered_share", "answered_accuracy")
    }

    def add_score(table: str, level: float, name: str, value: float) -> None:
        tables[table].setdefault(f"{level:g}", {})[name] = value

    for k, (name, (labels, p)) in enumerate(subjects.items()):
        rows, is_correct = np.arange(len(labels)), p.argmax(1) == labels
        for level, index in zip(COVERAGES, find_thresholds(np.delete(curves, k, 0), np.array(COVERAGES)), strict=True):
            sets = make_sets(p, set_thresholds[index])
            add_score("coverage", level, name, float(sets[rows, labels].mean()))
            add_score("set_size", level, name, float(sets.sum(1).mean()))
        others = probability[:k] + probability[k + 1 :]
        for share, threshold in zip(SHARES, confidence_threshold(others, np.array(SHARES)), strict=True):
            is_answered = p.max(1) >= threshold
            add_score("answered_share", share, name, float(is_answered.mean()))
            if is_answered.any():
                add_score("answered_accuracy", share, name, float(is_correct[is_answered].mean()))
    return PredictionSetScores(thresholds=thresholds, **tables)
