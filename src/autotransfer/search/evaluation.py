"""Score a selection on test subjects. Nothing that is found here is used to select."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..folds import unscored_subjects
from ..runs.choice import Ensemble, Evaluation, Scores, Selection
from ..runs.database import Entry
from ..runs.run import Run
from ..tasks import Metric
from ..tasks.classification import BALANCED_ACCURACY
from .evidence import Evidence, RegressionEvidence
from .held_out import held_out_scores
from .weights import Floats

Predictions = Mapping[int, NDArray[np.floating]]  # by subject: log-probabilities (n, classes), or numbers (n,)


def evaluate(run: Run, selection: Selection, evidence: Evidence, entries: Sequence[Entry]) -> Evaluation:
    """Score the selection that was made without each subject on the subject, and its alternatives."""
    options, metric, delivered = run.options, run.options.scoring, delivered_predictions(selection, evidence)

    def scored(predictions: Predictions, by: Metric = metric) -> Scores:
        return run.by_person(evidence.score(by, predictions))

    guessing = Scores()
    if isinstance(evidence, RegressionEvidence):
        single, guessing = evidence.candidate_scores, run.by_person(evidence.constant_scores)
        chance = float(np.mean(list(guessing.values())))
    else:
        single = scores_on_test(run, entries)
        chance = metric.chance([evidence.y[who] for who in delivered], run.recordings.n_classes)

    def single_scores(names: Mapping[str, str]) -> Scores:
        """Return mean scores of single fits. names: the candidate of each subject."""
        return run.by_person({who: single[name][who] for who, name in names.items() if who in single[name]})

    nested, subjects = selection.nested_choices, list(selection.nested_choices)
    roles = {"chosen": selection.chosen, "best_uncensored": selection.best_uncensored}
    alternatives = {"uncensored": single_scores(selection.nested_uncensored_choices)}
    if (ensemble := selection.ensemble) is not None:
        alternatives = {
            "best_single": scored(_by_candidate(evidence, nested)),
            "equal_weights": scored({who: evidence.pool(who).mean(0) for who in delivered}),
            "uncensored": scored(delivered_predictions(selection, evidence, uncensored=True)),
        }
    if selection.paper_network is not None:
        roles["paper_network"] = selection.paper_network
        paper = dict.fromkeys(subjects, selection.paper_network.name)
        alternatives["paper_network"] = scored(_by_candidate(evidence, paper))
    return Evaluation(
        test_scores={role: single_scores(dict.fromkeys(subjects, named.name)) for role, named in roles.items()},
        nested_test_scores=single_scores(nested) if ensemble is None else scored(delivered),
        alternatives=alternatives,
        metric=options.metric,
        chance=chance,
        guessing=guessing,
        other_metrics={
            name: scored(delivered, other)
            for name, other in options.task.metrics.items()
            if other is not metric and name != "accuracy"
        },
        unscored_subjects=unscored_subjects(run.recordings),
    )


def delivered_predictions(selection: Selection, evidence: Evidence, *, uncensored: bool = False) -> Predictions:
    """Return predictions of each subject by the model that was selected without the subject."""
    if (ensemble := selection.ensemble) is None:
        return _by_candidate(evidence, selection.nested_choices)
    return {
        who: evidence.combine(nested_weights(ensemble, evidence, who, uncensored), who)
        for who in evidence.held_out_subjects
    }


def nested_weights(ensemble: Ensemble, evidence: Evidence, who: int, uncensored: bool = False) -> Floats:
    """Return the weights (K,) of all candidates that were fitted without a subject."""
    nested = (ensemble.nested_uncensored if uncensored else {}) or ensemble.nested
    weights = nested[evidence.subjects[who]]
    return np.array([weights.get(named.name, 0.0) for named in evidence.candidates])


def _by_candidate(evidence: Evidence, names: Mapping[str, str]) -> Predictions:
    """Return predictions of each subject by one candidate. names: of the candidate of each subject."""
    place = {named.name: k for k, named in enumerate(evidence.candidates)}
    return {who: evidence.pool(who)[place[names[evidence.subjects[who]]]] for who in evidence.held_out_subjects}


def scores_on_test(run: Run, entries: Sequence[Entry]) -> dict[str, Scores]:
    """Return the mean test score over seeds, by name of a setting and subject."""
    values: dict[str, dict[str, list[float]]] = {}
    subjects, in_records = run.recordings.subjects, run.options.metric == BALANCED_ACCURACY
    for entry in entries:
        tests = run.groups[entry.test]
        if entry.record is None:
            continue
        if in_records:
            scores = {person: entry.record.score_on(person) for person in tests}
        elif entry.status == "done":
            scores = {score.subject: score.value for score in held_out_scores(run, [entry]) if score.subject in tests}
        else:
            scores = dict.fromkeys(tests, math.nan)
        by_subject = values.setdefault(run.options.name_of(entry.setting), {})
        for person, value in scores.items():
            by_subject.setdefault(str(subjects[person]), []).append(value)
    return {name: {who: _mean(scores) for who, scores in found.items()} for name, found in values.items()}


def _mean(scores: Sequence[float]) -> float:
    """Return the mean over seeds with a score; a fit that failed at once has none."""
    measured = [score for score in scores if math.isfinite(score)]
    return float(np.mean(measured)) if measured else math.nan
