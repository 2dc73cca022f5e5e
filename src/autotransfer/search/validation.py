"""Finished jobs of a run, and what of their records may be used to choose."""

from __future__ import annotations

from collections.abc import Sequence

from ..runs.ledger import Entry
from ..runs.run import Run
from ..settings import Setting
from ..tasks.classification import BALANCED_ACCURACY, METRICS
from .held_out import person_score, probabilities_of
from .stages import Score


def finished_entries(run: Run, settings: Sequence[Setting], folds: Sequence[tuple[int, int]]) -> list[Entry]:
    """Finished jobs of these settings and folds with every seed, whichever stage trained them."""
    keys = {run.entry("", s, *fold, seed).key for s in settings for fold in folds for seed in run.options.every_seed}
    return [entry for entry in run.ledger.entries() if entry.key in keys]


Groups = Sequence[Sequence[int]]  # who are held out together


def honest_scores(entries: Sequence[Entry], groups: Groups, *, both: bool = True) -> list[Score]:
    """Scores of each held-out subject by the snapshot that the other subject, or group, chose: best epochs are not
    flattered in comparison with last ones. Failed jobs count as 0. both=False: on the validation subjects alone."""
    scores = []
    for entry in entries:
        if entry.record is None:
            continue
        record, key = entry.record, entry.setting.key
        held_out = frozenset((*groups[entry.validation], *groups[entry.test]))
        for group, tested in [(entry.validation, record.swapped)] + [(entry.test, record)] * both:
            for person in groups[group] if tested is not None else ():
                value = 0.0 if record.failure is not None or tested is None else tested.score_on(person)
                scores.append(Score(key, person, value, held_out - {person}))
    return scores


def measured_scores(run: Run, entries: Sequence[Entry], *, both: bool = True) -> list[Score]:
    """`honest_scores` by the run's metric. Records hold balanced accuracies only."""
    metric = run.options.scoring
    if metric is METRICS[BALANCED_ACCURACY]:
        return honest_scores(entries, run.groups, both=both)
    scores, rec = [], run.recordings
    y = {person: rec.y.numpy()[rec.subject.numpy() == person] for person in range(rec.n_subjects)}
    for entry in entries:
        if entry.record is None:
            continue
        tests = set() if both else set(run.groups[entry.test])
        held_out = frozenset((*run.groups[entry.validation], *run.groups[entry.test]))
        probabilities = probabilities_of(run, entry) if entry.status == "done" else {}
        for person in sorted(held_out - tests):
            value = person_score(metric, y[person], probabilities[person]) if person in probabilities else metric.lowest
            scores.append(Score(entry.setting.key, person, value, held_out - {person}))
    return scores


def validation_scores(entries: Sequence[Entry], groups: Groups | None = None, *, twins: bool = True) -> list[Score]:
    """As published, where everybody is held out alone (groups=None): the validation score of each training and, with
    twins, of its twin, the snapshot that the test subject validates. Failed jobs count as 0."""
    scores = []
    for entry in entries:
        if entry.record is None:
            continue
        record, key = entry.record, entry.setting.key
        validates, tests = (place if groups is None else groups[place][0] for place in (entry.validation, entry.test))
        scores.append(Score(key, validates, 0.0 if record.failure is not None else record.validation_score))
        if twins and record.swapped is not None:
            twin = record.swapped.validation_score
            scores.append(Score(key, tests, 0.0 if record.failure is not None else twin))
    return scores
