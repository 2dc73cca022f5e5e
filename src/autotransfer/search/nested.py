"""`--nested full`: for every subject a choice by models that never saw that subject.

Every pair of subjects is left out once; one trajectory serves both orders. For test subject t the shortlist comes from
models trained without t and v = the subject before, scored on v, and the choice from models trained without t and each
other subject v, scored on v.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..folds import scorable
from ..jobs import Record
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
    settings, seed, scored = run.options.settings(), run.options.seed, scorable(run.recordings)
    folds = [(scored[place - 1], test) for place, test in enumerate(scored)]  # the one before validates
    run.add(run.entry("nested", setting, *fold, seed) for setting in settings for fold in folds)
    tell(f"nested full: {len(settings)} settings × {len(folds)} splits for the shortlists")
    run.work(shown=shown)

    methods = {setting.key: setting.method for setting in settings}
    known = _by_key(run)
    lists = {}
    for validation, test in folds:
        scores = [_score(run, known, setting, validation, test) for setting in settings]
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
        scores = [_score(run, known, setting, v, test) for setting in candidates for v in scored if v != test]
        chosen = by_key[choose(scores, lists[test])]
        # The test score is read only here: of the model validated by the subject before, as in stage two.
        subject = str(run.recordings.subjects[test])
        names[subject] = run.options.name_of(chosen)
        values[subject] = _record(run, known, chosen, validation, test).test_score
    return FullyNested(names, values)


def _by_key(run: Run) -> dict[str, Entry]:
    return {entry.key: entry for entry in run.ledger.entries()}


def _record(run: Run, known: dict[str, Entry], setting: Setting, validation: int, test: int) -> Record:
    """Of the setting trained without both subjects."""
    entry = known[run.entry("", setting, validation, test, run.options.seed).key]
    assert entry.record is not None
    record = entry.record if entry.validation == validation else entry.record.swapped
    assert record is not None
    return record


def _score(run: Run, known: dict[str, Entry], setting: Setting, validation: int, test: int) -> Score:
    """The score on `validation` of the setting trained without it and without `test`."""
    record = _record(run, known, setting, validation, test)
    return Score(setting.key, validation, 0.0 if record.failure is not None else record.validation_score)
