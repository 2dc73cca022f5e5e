"""Which trainings count in which stage, and the scores of each setting by subject."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from ..runs.results import Trained
from .summary import Summary

Scores = dict[str, dict[str, float]]  # name of a setting -> subject -> mean score


def shortlist_names(summary: Summary) -> set[str]:
    """Names of the settings that went on to stage two."""
    if summary.choice is not None:
        return {named.name for named in summary.choice.shortlist}
    return {training.name for training in summary.trainings if training.stage == "folds"}


def stage_two_trainings(summary: Summary) -> list[Trained]:
    """Trainings of stage two, failed ones too. A finished job is not trained again, so the first fold of a candidate
    may stand under "search"."""
    listed = shortlist_names(summary)
    return [training for training in summary.trainings if training.name in listed]


def one_split_trainings(summary: Summary) -> list[Trained]:
    """Trainings of stage one that ended well. Without a stage one, those of the first split."""
    scored = [
        training
        for training in summary.trainings
        if not training.failed and math.isfinite(training.record.validation_score)
    ]
    if has_stage_one(summary):
        return [training for training in scored if training.stage == "search"]
    first = next(((training.fold, training.seed) for training in scored if training.stage == "folds"), None)
    return [training for training in scored if (training.fold, training.seed) == first]


def has_stage_one(summary: Summary) -> bool:
    """Whether settings were tried on one split before some of them went on."""
    return any(training.stage == "search" for training in summary.trainings)


def scores_on_test(summary: Summary) -> Scores:
    """Score on every test subject, mean over seeds."""
    done = [training for training in stage_two_trainings(summary) if not training.failed]
    rows = ((training.name, who, score) for training in done for who, score in training.scores.items())
    return _of_people(summary, mean_scores(rows))


def scores_on_validation(summary: Summary) -> Scores:
    """Scores that decide the choice, by validation subject. Both held-out subjects are absent from training, so each
    fold gives two: the second with validation and test exchanged. A failed job counts as 0. Where groups are held out,
    each is scored by the snapshot that the other chose."""
    rows = []
    for training in stage_two_trainings(summary):
        twin = training.record.swapped
        if len(training.scores) > 1 or len(training.swapped_scores) > 1:
            scores = training.scores | training.swapped_scores
        else:
            scores = {str(training.validation_subject): training.record.validation_score}
            scores |= {} if twin is None else {str(training.test_subject): twin.validation_score}
        rows += [(training.name, who, 0.0 if training.failed else score) for who, score in scores.items()]
    return _of_people(summary, mean_scores(rows))


def _of_people(summary: Summary, scores: Scores) -> Scores:
    """Scores by person: where parts of people are held out, the mean over each person's parts."""
    units = summary.data.units
    return scores if units is None else {name: units.by_person(by_unit) for name, by_unit in scores.items()}


def mean_scores(rows: Iterable[tuple[str, str, float]]) -> Scores:
    """Mean by setting and subject, over finite scores."""
    values: dict[str, dict[str, list[float]]] = {}
    for name, subject, value in rows:
        if math.isfinite(value):
            values.setdefault(name, {}).setdefault(subject, []).append(value)
    return {name: {s: float(np.mean(v)) for s, v in by_subject.items()} for name, by_subject in values.items()}


def finite_scores(scores: Mapping[str, float]) -> dict[str, float]:
    """The finite scores: a training that failed early has no test score."""
    return {key: value for key, value in scores.items() if math.isfinite(value)}
