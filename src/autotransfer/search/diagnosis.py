"""Diagnosis: what the report draws of the delivered model: its mistakes, its confidence, and what each kind adds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..folds import whole_people
from ..recordings import Recordings
from ..runs.choice import Calibration, Diagnosis, Ensemble, Reliability, Scores, Selection
from ..runs.run import Run
from .answering import answering
from .evaluation import LogProbs, delivered_log_probs, nested_exponents, scores_of
from .evidence import Evidence
from .weights import Floats, combine_log_probs, equal_classes

BINS = 10  # of confidence


def diagnose(run: Run, selection: Selection, evidence: Evidence) -> Diagnosis:
    """Describe predictions of each subject by what was selected without them."""
    log_probs, ensemble = delivered_log_probs(selection, evidence), selection.ensemble
    whole, of_people = whole_people(run.recordings), of_whole_people(run.recordings, log_probs)
    who, y = whole.subject.numpy(), whole.y.numpy()
    people = {str(whole.subjects[person]): (y[who == person], log_p) for person, log_p in of_people.items()}
    return Diagnosis(
        confusions={name: confusion(*y_and_log_p) for name, y_and_log_p in people.items()},
        reliability={name: reliability(*y_and_log_p) for name, y_and_log_p in people.items()},
        answering=answering({name: (y, np.exp(log_p)) for name, (y, log_p) in people.items()}),
        calibration=None if ensemble is None else calibration(ensemble, evidence, log_probs),
        without_kind={} if ensemble is None else without_kinds(run, ensemble, evidence),
    )


def of_whole_people(recordings: Recordings, log_probs: LogProbs) -> dict[int, NDArray[np.floating]]:
    """Return log-probabilities (n, C) of all windows of each person, in their order, from those of the units that were
    held out. People with a unit that was not scored are left out."""
    if recordings.units is None:
        return dict(log_probs)
    units, people = recordings.subject.numpy(), whole_people(recordings).subject.numpy()
    known = np.isin(units, list(log_probs))
    whole: dict[int, NDArray[np.floating]] = {}
    for person in np.unique(people):
        rows = np.flatnonzero(people == person)
        if known[rows].all():
            log_p = np.empty((len(rows), recordings.n_classes))
            for unit in np.unique(units[rows]):
                log_p[units[rows] == unit] = log_probs[unit]
            whole[int(person)] = log_p
    return whole


def without_kinds(run: Run, ensemble: Ensemble, evidence: Evidence) -> dict[str, Scores]:
    """Score the ensemble without the candidates of a kind, by kind, where the others keep their weights."""
    scores: dict[str, Scores] = {}
    for kind in dict.fromkeys(named.setting.kind for named in evidence.candidates):
        stay = np.array([named.setting.kind != kind for named in evidence.candidates])
        log_probs = {
            who: combine_log_probs(stay * nested_exponents(ensemble, evidence, who), evidence.pool(who))
            for who in evidence.people
        }
        scores[kind] = run.by_person(scores_of(run, evidence, log_probs))
    return scores


def calibration(ensemble: Ensemble, evidence: Evidence, log_probs: LogProbs) -> Calibration:
    """Compare confidence with accuracy, with the same weight for every person and class."""
    confidence, right, weight, before = [], [], [], []
    for person, log_p in log_probs.items():
        y, exponents = evidence.y[person], nested_exponents(ensemble, evidence, person)
        plain = combine_log_probs(exponents / exponents.sum(), evidence.pool(person))
        confidence.append(np.exp(log_p.max(1)))
        before.append(np.exp(plain.max(1)))
        right.append(log_p.argmax(1) == y)
        weight.append(equal_classes(y) / len(log_probs))
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
    """Compare confidence with accuracy for one person with classes (n,) and log-probabilities (n, C)."""
    confidence, right, weight = np.exp(log_p.max(1)), log_p.argmax(1) == y, equal_classes(y)
    error = _error(*_bins(confidence, right, weight))
    return Reliability(float(np.average(confidence, weights=weight)), float(np.average(right, weights=weight)), error)


def confusion(y: NDArray[np.int64], log_p: NDArray[np.floating]) -> list[list[int]]:
    """Count true class × predicted class (C, C) of one person."""
    size = log_p.shape[1]
    counts: list[list[int]] = np.bincount(y * size + log_p.argmax(1), minlength=size**2).reshape(size, size).tolist()
    return counts


def _bins(confidence: Floats, right: NDArray[np.bool_], weight: Floats) -> tuple[Floats, Floats, Floats]:
    """Return mean confidence, accuracy and share of each bin that holds a window."""
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    share, sure, hit = (
        np.bincount(place, weights=summed, minlength=BINS) for summed in (weight, weight * confidence, weight * right)
    )
    full = share > 0
    return sure[full] / share[full], hit[full] / share[full], np.asarray(share[full], dtype=np.float64)


def _error(confidence: Floats, accuracy: Floats, share: Floats) -> float:
    """Return the expected calibration error."""
    return float((share * np.abs(confidence - accuracy)).sum() / share.sum())
