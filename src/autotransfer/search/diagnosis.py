"""Compute mistakes and confidence of the delivered model on held-out subjects, for the report."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..folds import use_whole_subjects
from ..recordings import Recordings
from ..runs.choice import (
    Calibration,
    Diagnosis,
    Ensemble,
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

BINS = 10  # of confidence
COVERAGES = (0.8, 0.9, 0.95)
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)  # of windows without a prediction
Subject = tuple[NDArray[np.int64], NDArray[np.float64]]  # classes (n,), probabilities (n, C)


def diagnose(run: Run, selection: Selection, evidence: Evidence) -> Diagnosis:
    """Describe the predictions for each subject by the model that was selected without the subject."""
    predictions, ensemble = delivered_predictions(selection, evidence), selection.ensemble
    whole, of_people = use_whole_subjects(run.recordings), merge_units(run.recordings, predictions)
    if isinstance(evidence, RegressionEvidence):
        return Diagnosis(intervals=check_intervals(whole, of_people))
    who, y = whole.subject.numpy(), whole.y.numpy()
    people = {str(whole.subjects[person]): (y[who == person], log_p) for person, log_p in of_people.items()}
    return Diagnosis(
        confusions={name: confusion(*y_and_log_p) for name, y_and_log_p in people.items()},
        reliability={name: reliability(*y_and_log_p) for name, y_and_log_p in people.items()},
        prediction_sets=score_prediction_sets({name: (y, np.exp(log_p)) for name, (y, log_p) in people.items()}),
        calibration=None if ensemble is None else calibration(ensemble, evidence, predictions),
    )


def check_intervals(whole: Recordings, predicted: Predictions) -> IntervalCheck | None:
    """Return intervals around predictions (n,) of a continuous target; None if there are too few people."""
    who, y = whole.subject.numpy(), whole.truth.numpy()
    residuals = [np.abs(y[who == person] - numbers) for person, numbers in predicted.items()]
    intervals, held = Intervals.fit(residuals), list[float]()
    if intervals is not None and np.isfinite(intervals.radius(REPORTED_COVERAGE)):  # fewer people may have finite ones
        held = held_out_coverage(residuals, REPORTED_COVERAGE)
    shares = {str(whole.subjects[person]): share for person, share in zip(predicted, held, strict=False)}
    return None if intervals is None else IntervalCheck(intervals, shares)


def merge_units(recordings: Recordings, predictions: Predictions) -> dict[int, NDArray[np.floating]]:
    """Return predictions (n, ...) of each person from those of held-out units; all units of a person must be scored."""
    if recordings.units is None:
        return dict(predictions)
    units, people = recordings.subject.numpy(), use_whole_subjects(recordings).subject.numpy()
    known = np.isin(units, list(predictions))
    whole: dict[int, NDArray[np.floating]] = {}
    for person in np.unique(people):
        rows = np.flatnonzero(people == person)
        if known[rows].all():
            first = predictions[int(units[rows[0]])]
            merged = np.empty((len(rows), *first.shape[1:]))
            for unit in np.unique(units[rows]):
                merged[units[rows] == unit] = predictions[unit]
            whole[int(person)] = merged
    return whole


def calibration(ensemble: Ensemble, evidence: ClassificationEvidence, log_probs: Predictions) -> Calibration:
    """Compare confidence with accuracy, with the same weight for every subject and class."""
    confidence, right, weight, before = [], [], [], []
    for person, log_p in log_probs.items():
        y, weights = evidence.y[person], nested_weights(ensemble, evidence, person)
        plain = combine_log_probs(weights / weights.sum(), evidence.pool(person))
        confidence.append(np.exp(log_p.max(1)))
        before.append(np.exp(plain.max(1)))
        right.append(log_p.argmax(1) == y)
        weight.append(balanced_sample_weight(y) / len(log_probs))
    hits, weights = np.concatenate(right), np.concatenate(weight)
    bins = _bins(np.concatenate(confidence), hits, weights)
    return Calibration(
        confidence=bins[0].tolist(),
        accuracy=bins[1].tolist(),
        share=bins[2].tolist(),
        error=_error(*bins),
        error_before=_error(*_bins(np.concatenate(before), hits, weights)),
    )


def reliability(y: NDArray[np.int64], log_p: NDArray[np.floating]) -> Reliability:
    """Compare confidence with accuracy for one subject with classes (n,) and log-probabilities (n, C)."""
    confidence, right, weight = np.exp(log_p.max(1)), log_p.argmax(1) == y, balanced_sample_weight(y)
    error = _error(*_bins(confidence, right, weight))
    return Reliability(float(np.average(confidence, weights=weight)), float(np.average(right, weights=weight)), error)


def confusion(y: NDArray[np.int64], log_p: NDArray[np.floating]) -> list[list[int]]:
    """Return counts of true class × predicted class (C, C) of one subject."""
    size = log_p.shape[1]
    counts: list[list[int]] = np.bincount(y * size + log_p.argmax(1), minlength=size**2).reshape(size, size).tolist()
    return counts


def _bins(confidence: Floats, right: NDArray[np.bool_], weight: Floats) -> tuple[Floats, Floats, Floats]:
    """Return mean confidence, accuracy and share of each bin that has a window."""
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    share, sure, hit = (
        np.bincount(place, weights=summed, minlength=BINS) for summed in (weight, weight * confidence, weight * right)
    )
    full = share > 0
    return sure[full] / share[full], hit[full] / share[full], np.asarray(share[full], dtype=np.float64)


def _error(confidence: Floats, accuracy: Floats, share: Floats) -> float:
    """Return the expected calibration error."""
    return float((share * np.abs(confidence - accuracy)).sum() / share.sum())


def score_prediction_sets(people: Mapping[str, Subject]) -> PredictionSetScores | None:
    """Score prediction sets and abstention on held-out subjects, by name; None if there are too few."""
    y, probability = [labels for labels, _ in people.values()], [p for _, p in people.values()]
    thresholds = Thresholds.fit(y, probability)
    if thresholds is None:
        return None
    tried, covered = coverage_curves(y, probability)
    tables: dict[str, dict[str, Scores]] = {
        name: {} for name in ("coverage", "set_size", "answered_share", "answered_accuracy")
    }

    def note(table: str, level: float, name: str, value: float) -> None:
        tables[table].setdefault(f"{level:g}", {})[name] = value

    for k, (name, (labels, p)) in enumerate(people.items()):
        rows, right = np.arange(len(labels)), p.argmax(1) == labels
        for level, place in zip(COVERAGES, find_thresholds(np.delete(covered, k, 0), np.array(COVERAGES)), strict=True):
            sets = make_sets(p, tried[place])
            note("coverage", level, name, float(sets[rows, labels].mean()))
            note("set_size", level, name, float(sets.sum(1).mean()))
        others = probability[:k] + probability[k + 1 :]
        for share, least in zip(SHARES, confidence_threshold(others, np.array(SHARES)), strict=True):
            answered = p.max(1) >= least
            note("answered_share", share, name, float(answered.mean()))
            if answered.any():
                note("answered_accuracy", share, name, float(right[answered].mean()))
    return PredictionSetScores(thresholds=thresholds, **tables)
