"""Evaluation: test scores of what was selected. Nothing that is found here selects anything."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..folds import not_scored
from ..runs.choice import Ensemble, Evaluation, Scores, Selection
from ..runs.ledger import Entry
from ..runs.run import Run
from ..tasks.classification import BALANCED_ACCURACY
from .evidence import Evidence
from .held_out import person_score
from .validation import measured_scores
from .weights import Floats, combine_log_probs

LogProbs = Mapping[int, NDArray[np.floating]]  # by subject: (n, classes)


def evaluate(run: Run, selection: Selection, evidence: Evidence, entries: Sequence[Entry]) -> Evaluation:
    """Score the selection for each subject on the subject, with the alternatives that the run had."""
    options, metric, log_probs = run.options, run.options.scoring, delivered_log_probs(selection, evidence)

    def scored(log_p: LogProbs) -> Scores:
        return run.by_person(scores_of(run, evidence, log_p))

    roles = {"chosen": selection.chosen, "best_uncensored": selection.best_uncensored}
    if selection.paper_network is not None:
        roles["paper_network"] = selection.paper_network
    single = scores_on_test(run, entries)

    def alone(names: Mapping[str, str]) -> Scores:
        """Mean scores of single networks, by the candidate that each subject has."""
        return run.by_person({subject: single[name, subject] for subject, name in names.items()})

    nested, subjects = selection.nested_choices, list(selection.nested_choices)
    alternatives = {"uncensored": alone(selection.nested_uncensored_choices)}
    if (ensemble := selection.ensemble) is not None:
        free = delivered_log_probs(selection, evidence, uncensored=True)
        alternatives = {
            "best_single": scored(_by_candidate(evidence, nested)),
            "equal_weights": scored({who: evidence.pool(who).mean(0) for who in log_probs}),
            "uncensored": scored(free),
        }
    if selection.paper_network is not None:
        paper = dict.fromkeys(subjects, selection.paper_network.name)
        alternatives["paper_network"] = scored(_by_candidate(evidence, paper))
    return Evaluation(
        test_scores={role: alone(dict.fromkeys(subjects, named.name)) for role, named in roles.items()},
        nested_test_scores=alone(nested) if ensemble is None else scored(log_probs),
        alternatives=alternatives,
        metric=options.metric,
        chance=metric.chance([evidence.y[who] for who in log_probs], run.recordings.n_classes),
        other_metrics={
            name: run.by_person(
                {evidence.subjects[w]: other.score(evidence.y[w], np.exp(log_p)) for w, log_p in log_probs.items()}
            )
            for name, other in options.task.metrics.items()
            if other is not metric and name != "accuracy"
        },
        not_scored=not_scored(run.recordings),
    )


def delivered_log_probs(selection: Selection, evidence: Evidence, *, uncensored: bool = False) -> LogProbs:
    """Return log-probabilities of each subject by what was selected without them."""
    if (ensemble := selection.ensemble) is None:
        return _by_candidate(evidence, selection.nested_choices)
    return {
        who: combine_log_probs(nested_exponents(ensemble, evidence, who, uncensored), evidence.pool(who))
        for who in evidence.people
    }


def nested_exponents(ensemble: Ensemble, evidence: Evidence, who: int, uncensored: bool = False) -> Floats:
    """Return exponents (K,) of all candidates that were found without a subject."""
    nested = (ensemble.nested_uncensored if uncensored else {}) or ensemble.nested
    weights = nested[evidence.subjects[who]]
    return np.array([weights.get(named.name, 0.0) for named in evidence.candidates])


def scores_of(run: Run, evidence: Evidence, log_probs: LogProbs) -> Scores:
    """Score log-probabilities by the run's metric."""
    metric = run.options.scoring
    return {
        evidence.subjects[who]: person_score(metric, evidence.y[who], np.exp(log_p)) for who, log_p in log_probs.items()
    }


def _by_candidate(evidence: Evidence, names: Mapping[str, str]) -> LogProbs:
    """Return log-probabilities of each subject by the candidate of that name."""
    place = {named.name: k for k, named in enumerate(evidence.candidates)}
    return {who: evidence.pool(who)[place[names[evidence.subjects[who]]]] for who in evidence.people}


def scores_on_test(run: Run, entries: Sequence[Entry]) -> dict[tuple[str, str], float]:
    """Return the mean test score over seeds, by name of a setting and subject."""
    values: dict[tuple[str, str], list[float]] = {}
    subjects, usual = run.recordings.subjects, run.options.metric == BALANCED_ACCURACY
    for entry in entries:
        tests = run.groups[entry.test]
        if entry.record is None:
            continue
        if usual:
            scores = {person: entry.record.score_on(person) for person in tests}
        elif entry.status == "done":
            scores = {score.subject: score.value for score in measured_scores(run, [entry]) if score.subject in tests}
        else:
            scores = dict.fromkeys(tests, math.nan)
        name = run.options.name_of(entry.setting)
        for person, value in scores.items():
            values.setdefault((name, str(subjects[person])), []).append(value)
    return {key: _mean(scores) for key, scores in values.items()}


def _mean(scores: Sequence[float]) -> float:
    """Return the mean over seeds with a score: a fit that failed at once has none."""
    measured = [score for score in scores if math.isfinite(score)]
    return float(np.mean(measured)) if measured else math.nan
