"""Finished jobs of a run, and what of their records may be used to choose."""

from __future__ import annotations

from collections.abc import Sequence

from ..runs.ledger import Entry
from ..runs.run import Run
from ..settings import Setting
from .stages import Score


def entries_of(
    run: Run, settings: Sequence[Setting], folds: Sequence[tuple[int, int]], seeds: Sequence[int]
) -> list[Entry]:
    """Finished jobs of these settings, folds and seeds, whichever stage trained them."""
    wanted = {run.entry("", s, *fold, seed).key for s in settings for fold in folds for seed in seeds}
    return [entry for entry in run.ledger.entries() if entry.key in wanted]


def validation_scores(entries: Sequence[Entry], *, twins: bool = True) -> list[Score]:
    """What may be used to choose: each trajectory as validated by its validation subject and, with twins, as
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
