"""Finished jobs of a run, and what of their records may be used to choose."""

from __future__ import annotations

from collections.abc import Sequence

from ..runs.ledger import Entry
from ..runs.run import Run
from ..settings import Setting
from .stages import Score


def seeds_of(run: Run, setting: Setting) -> list[int]:
    """What is solved in closed form is the same for every seed."""
    options = run.options
    return [options.seed] if setting.network.closed_form else list(options.every_seed)


def entries_of(run: Run, settings: Sequence[Setting], folds: Sequence[tuple[int, int]]) -> list[Entry]:
    """Finished jobs of these settings and folds with every seed, whichever stage trained them."""
    wanted = {run.entry("", s, *fold, seed).key for s in settings for fold in folds for seed in seeds_of(run, s)}
    return [entry for entry in run.ledger.entries() if entry.key in wanted]


def honest_scores(entries: Sequence[Entry], *, both: bool = True) -> list[Score]:
    """Each held-out subject by the snapshot that the other one chose, so that best epochs are not flattered beside
    last ones. Failed jobs count as 0. both=False: on the validation subjects alone."""
    scores = []
    for entry in entries:
        if entry.record is None:
            continue
        record, key = entry.record, entry.setting.key
        sides = [(entry.validation, entry.test, record.swapped)] + [(entry.test, entry.validation, record)] * both
        for subject, other, seen in sides:
            if seen is not None:
                scores.append(Score(key, subject, 0.0 if record.failure is not None else seen.test_score, other))
    return scores


def validation_scores(entries: Sequence[Entry], *, twins: bool = True) -> list[Score]:
    """As published: each trajectory as validated by its validation subject and, with twins, as
    validated by the other held-out subject, whose snapshot is another. Failed jobs count as 0."""
    scores = []
    for entry in entries:
        if entry.record is None:
            continue
        record, key = entry.record, entry.setting.key
        scores.append(Score(key, entry.validation, 0.0 if record.failure is not None else record.validation_score))
        if twins and record.swapped is not None:
            twin = record.swapped.validation_score
            scores.append(Score(key, entry.test, 0.0 if record.failure is not None else twin))
    return scores
