"""Whether a ledger's rows agree with each other and with the recordings. Types are checked on reading."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..errors import UserError
from ..jobs import Record
from ..schema import Counts
from ..settings import Setting
from .ledger import FINISHED, REMEDY, Entry, Ledger

STATUSES = ("waiting", "running", *FINISHED)


def entry_key(setting: Setting, first: int, second: int, seed: int) -> str:
    """One training: the pair of held-out subjects has no order."""
    return f"{setting.key}-{min(first, second)}-{max(first, second)}-{seed}"


def check_entries(ledger: Ledger, entries: Iterable[Entry], n_subjects: int | None = None) -> None:
    """n_subjects: None where the recordings are not at hand."""
    for entry in entries:
        fault = _fault(entry, n_subjects)
        if fault is not None:
            raise UserError(f"the ledger {ledger.path} has a job with {fault} (key {str(entry.key)[:60]!r}); {REMEDY}")


def check_populations(ledger: Ledger) -> None:
    known = ledger.statuses()
    for number, keys, prune_at in ledger.open_populations():
        at = prune_at is None or (isinstance(prune_at, int) and prune_at >= 0)
        if not set(keys) <= set(known) or not at:
            raise UserError(f"population {number} of the ledger {ledger.path} has jobs that are not listed; {REMEDY}")


def _fault(entry: Entry, n_subjects: int | None) -> str | None:
    """What is wrong with a job, in a few words."""
    subjects = (entry.validation, entry.test)
    numbers = all(isinstance(n, int) and 0 <= n < 2**63 for n in (*subjects, entry.seed, entry.starts))
    if not numbers or entry.status not in STATUSES:
        return "an invalid number or status"
    if subjects[0] == subjects[1] or (n_subjects is not None and max(subjects) >= n_subjects):
        return f"the subjects {subjects[0]} and {subjects[1]}, which the recordings do not have"
    if entry.key != entry_key(entry.setting, *subjects, entry.seed):
        return "a key that does not match its contents"
    if (entry.record is not None) != (entry.status in FINISHED):
        return "a record that does not agree with its status"
    if entry.record is not None and not _complete(entry.record):
        return "an incomplete record"
    return None


def _complete(record: Record) -> bool:
    """In a run somebody always validates and somebody else tests, and the two are exchanged."""
    return record.swapped is not None and all(
        not math.isnan(score) or _one_class(confusion)
        for own in (record, record.swapped)
        for score, confusion in (
            (own.validation_score, own.validation_confusion),
            (own.test_score, own.test_confusion),
        )
    )


def _one_class(confusion: Counts) -> bool:
    """Whether it is of somebody whom no score can be given."""
    return int((confusion.sum(1) > 0).sum()) == 1
