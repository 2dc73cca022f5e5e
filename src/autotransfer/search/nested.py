"""`--nested full`: for every subject a choice by models that never saw that subject.

Every pair of subjects is left out once; one trajectory serves both orders. For test subject t the shortlist comes from
models trained without t and v = the subject before, scored on v, and the choice from models trained without t and each
other subject v, scored on v.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..folds import scorable
from ..runs.ledger import Entry
from ..runs.run import Run, Tell
from ..settings import Setting
from .stages import Score, choose, shortlist


@dataclass(frozen=True)
class FullyNested:
    choices: dict[str, str]  # subject -> name of the setting
    test_scores: dict[str, float]


def full_nesting(run: Run, tell: Tell, *, shown: bool | None) -> FullyNested:
    """Train the models that are missing. Returns choices and scores by subject."""
    settings, folds, seed = run.options.settings(), _splits(run), run.options.seed
    scored = scorable(run.recordings)
    run.add(run.entry("nested", setting, *fold, seed) for setting in settings for fold in folds)
    tell(f"nested full: {len(settings)} settings × {len(folds)} splits for the shortlists")
    run.work(shown=shown)

    methods = {setting.key: setting.method for setting in settings}
    known = _by_key(run)
    lists = {}
    for validation, test in folds:
        scores = [_seen_without(known, run, setting, validation, test, seed) for setting in settings]
        lists[test] = shortlist(scores, methods)
    pairs = [(v, t) for t in scored for v in scored if v < t]
    needed = [(s, v, t) for s in settings for v, t in pairs if s.key in lists[t] or s.key in lists[v]]
    run.add(run.entry("nested", setting, v, t, seed) for setting, v, t in needed)
    tell(f"nested full: {len(needed)} trainings with a pair of subjects left out")
    run.work(shown=shown)

    known = _by_key(run)
    by_key = {setting.key: setting for setting in settings}
    names, values = {}, {}
    for validation, test in folds:
        candidates = [by_key[key] for key in lists[test]]
        scores = [
            _seen_without(known, run, setting, v, test, seed) for setting in candidates for v in scored if v != test
        ]
        chosen = by_key[choose(scores, lists[test])]
        # The test score is read only here: of the model validated by the subject before, as in stage two.
        entry = known[run.entry("", chosen, validation, test, seed).key]
        assert entry.record is not None
        record = entry.record if entry.test == test else entry.record.swapped
        assert record is not None
        subject = str(run.recordings.subjects[test])
        names[subject], values[subject] = run.options.name_of(chosen), record.test_score
    return FullyNested(names, values)


def _splits(run: Run) -> list[tuple[int, int]]:
    """(validation, test) of everybody who can be scored: the one before them among these validates."""
    scored = scorable(run.recordings)
    return [(scored[place - 1], test) for place, test in enumerate(scored)]


def _by_key(run: Run) -> dict[str, Entry]:
    return {entry.key: entry for entry in run.ledger.entries()}


def _seen_without(known: dict[str, Entry], run: Run, setting: Setting, validation: int, test: int, seed: int) -> Score:
    """The score on `validation` of the setting trained without it and without `test`."""
    entry = known[run.entry("", setting, validation, test, seed).key]
    assert entry.record is not None
    record = entry.record if entry.validation == validation else entry.record.swapped
    assert record is not None
    return Score(setting.key, validation, 0.0 if record.failure is not None else record.validation_score)
