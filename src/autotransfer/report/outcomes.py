"""Which trainings count in which stage, and the scores of each setting by subject."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from ..runs.results import Trained
from .summary import Summary

Scores = dict[str, dict[str, float]]  # name of a setting -> subject -> mean score


def shortlist(summary: Summary) -> set[str]:
    """Names of the settings that went on to stage two."""
    if summary.choice is not None:
        return {one.name for one in summary.choice.shortlist}
    return {one.name for one in summary.trainings if one.stage == "folds"}


def tried_everywhere(summary: Summary) -> list[Trained]:
    """Trainings of stage two, failed ones too. A finished job is not trained again, so the first fold of a candidate
    may stand under "search"."""
    listed = shortlist(summary)
    return [one for one in summary.trainings if one.name in listed]


def tried_once(summary: Summary) -> list[Trained]:
    """Trainings of stage one that ended well. Without a stage one, those of the first split."""
    scored = [one for one in summary.trainings if _scored(one)]
    if has_stage_one(summary):
        return [one for one in scored if one.stage == "search"]
    first = next(((one.fold, one.seed) for one in scored if one.stage == "folds"), None)
    return [one for one in scored if (one.fold, one.seed) == first]


def has_stage_one(summary: Summary) -> bool:
    """Whether settings were tried on one split before some of them went on."""
    return any(one.stage == "search" for one in summary.trainings)


def _scored(one: Trained) -> bool:
    return not one.failed and math.isfinite(one.record.validation_score)


def scores_on_test(summary: Summary) -> Scores:
    """Score on every test subject, mean over seeds."""
    done = [one for one in tried_everywhere(summary) if not one.failed]
    return _of_people(summary, _means((one.name, who, score) for one in done for who, score in one.scores.items()))


def scores_on_validation(summary: Summary) -> Scores:
    """What the choice rests on: the score on every subject that validated, in its own fold or, because both held-out
    subjects are absent from training, as the exchanged twin. A failed job counts as 0. Where groups are held out, each
    of them by the snapshot that the other group chose."""
    rows = []
    for one in tried_everywhere(summary):
        twin = one.record.swapped
        if len(one.scores) > 1 or len(one.swapped_scores) > 1:
            both = one.scores | one.swapped_scores
            rows += [(one.name, subject, 0.0 if one.failed else score) for subject, score in both.items()]
            continue
        rows.append((one.name, str(one.validation_subject), 0.0 if one.failed else one.record.validation_score))
        if twin is not None:
            rows.append((one.name, str(one.test_subject), 0.0 if one.failed else twin.validation_score))
    return _of_people(summary, _means(rows))


def _of_people(summary: Summary, scores: Scores) -> Scores:
    """Where parts of people are held out, the mean over a person's."""
    units = summary.data.units
    return scores if units is None else {name: units.by_person(own) for name, own in scores.items()}


def _means(rows: Iterable[tuple[str, str, float]]) -> Scores:
    """Mean by setting and subject, without what is missing."""
    values: dict[str, dict[str, list[float]]] = {}
    for name, subject, value in rows:
        if math.isfinite(value):
            values.setdefault(name, {}).setdefault(subject, []).append(value)
    return {name: {s: float(np.mean(v)) for s, v in own.items()} for name, own in values.items()}


def finite(scores: Mapping[str, float]) -> dict[str, float]:
    """Without what is missing: a training that failed early has no test score."""
    return {key: value for key, value in scores.items() if math.isfinite(value)}
