"""Compute the test scores of a selection. The selection does not depend on test scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..folds import unscored_subjects
from ..runs.choice import EnsembleWeights, Evaluation, Scores, Selection
from ..runs.database import Entry
from ..runs.run import Run
from ..tasks import Metric
from ..tasks.classification import BALANCED_ACCURACY
from .evidence import Evidence, RegressionEvidence
from .held_out import held_out_scores
from .weights import Floats

Predictions = Mapping[int, NDArray[np.floating]]  # by subject: log-probabilities (n, classes), or target values (n,)


def evaluate(run: Run, selection: Selection, evidence: Evidence, entries: Sequence[Entry]) -> Evaluation:
    """Score each subject by the model that was selected without the subject, and by alternative models."""
    options, metric, delivered = run.options, run.options.scoring, delivered_predictions(selection, evidence)

    def score(predictions: Predictions, metric: Metric = metric) -> Scores:
        return run.average_units(evidence.score(metric, predictions))

    guessing = Scores()
    if isinstance(evidence, RegressionEvidence):
        candidate_scores = evidence.candidate_scores
        guessing = score({subject: evidence.target_mean[rows] for subject, rows in enumerate(evidence.rows)})
        chance = float(np.mean(list(guessing.values())))
    else:
        candidate_scores = scores_on_test(run, entries)
        chance = metric.chance([evidence.y[subject] for subject in delivered], run.recordings.n_classes)

    def score_singly(names: Mapping[str, str]) -> Scores:
        """Return the score of one candidate for each subject. names: name of the candidate by subject."""
        scores = {subject: candidate_scores[name].get(subject) for subject, name in names.items()}
        return run.average_units({subject: value for subject, value in scores.items() if value is not None})

    nested, subjects = selection.nested_choices, list(selection.nested_choices)
    roles = {"chosen": selection.chosen, "best_uncensored": selection.best_uncensored}
    alternatives = {"uncensored": score_singly(selection.nested_uncensored_choices)}
    if (ensemble := selection.ensemble) is not None:
        alternatives = {
            "best_single": score(_predict_singly(evidence, nested)),
            "equal_weights": score({subject: evidence.pool(subject).mean(0) for subject in delivered}),
            "uncensored": score(delivered_predictions(selection, evidence, uncensored=True)),
        }
    if selection.paper_network is not None:
        roles["paper_network"] = selection.paper_network
        paper = dict.fromkeys(subjects, selection.paper_network.name)
        alternatives["paper_network"] = score(_predict_singly(evidence, paper))
    return Evaluation(
        test_scores={role: score_singly(dict.fromkeys(subjects, candidate.name)) for role, candidate in roles.items()},
        nested_test_scores=score_singly(nested) if ensemble is None else score(delivered),
        alternatives=alternatives,
        metric=options.metric,
        chance=chance,
        guessing=guessing,
        other_metrics={
            name: score(delivered, other)
            for name, other in options.task.metrics.items()
            if other is not metric and name != "accuracy"
        },
        unscored_subjects=unscored_subjects(run.recordings),
    )


def delivered_predictions(selection: Selection, evidence: Evidence, *, uncensored: bool = False) -> Predictions:
    """Return predictions for each subject by the model that was selected without the subject."""
    if (ensemble := selection.ensemble) is None:
        return _predict_singly(evidence, selection.nested_choices)
    weights = {s: nested_weights(ensemble, evidence, s, uncensored) for s in evidence.held_out_subjects}
    return {subject: evidence.combine(beta, subject) for subject, beta in weights.items()}


def nested_weights(ensemble: EnsembleWeights, evidence: Evidence, subject: int, uncensored: bool = False) -> Floats:
    """Return the weights (K,) of all candidates in the ensemble that was fitted without a subject."""
    nested = (ensemble.nested_uncensored if uncensored else {}) or ensemble.nested
    weights = nested[evidence.subjects[subject]]
    return np.array([weights.get(candidate.name, 0.0) for candidate in evidence.candidates])


def _predict_singly(evidence: Evidence, names: Mapping[str, str]) -> Predictions:
    """Return predictions for each subject by one candidate. names: name of the candidate by subject."""
    index = {candidate.name: k for k, candidate in enumerate(evidence.candidates)}
    chosen = {subject: index[names[evidence.subjects[subject]]] for subject in evidence.held_out_subjects}
    return {subject: evidence.pool(subject)[k] for subject, k in chosen.items()}


def scores_on_test(run: Run, entries: Sequence[Entry]) -> dict[str, Scores]:
    """Return mean test scores over seeds, by name of a setting and subject."""
    values: dict[str, dict[str, list[float]]] = {}
    names, has_stored_scores = run.recordings.subjects, run.options.metric == BALANCED_ACCURACY
    for entry in entries:
        subjects = run.groups[entry.test]
        if entry.record is None:
            continue
        if has_stored_scores:
            scores = {subject: entry.record.score_on(subject) for subject in subjects}
        elif entry.status == "done":
            scores = {s.subject: s.value for s in held_out_scores(run, [entry]) if s.subject in subjects}
        else:
            scores = dict.fromkeys(subjects, math.nan)
        by_subject = values.setdefault(run.options.name_of(entry.setting), {})
        for subject, value in scores.items():
            by_subject.setdefault(str(names[subject]), []).append(value)
    return {name: {subject: _average(scores) for subject, scores in table.items()} for name, table in values.items()}


def _average(scores: Sequence[float]) -> float:
    """Return the mean of the finite scores; NaN if there are none, because every fit failed."""
    finite = [score for score in scores if math.isfinite(score)]
    return float(np.mean(finite)) if finite else math.nan
