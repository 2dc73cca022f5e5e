"""Whether a ledger's rows agree with each other and with the recordings. Types are checked on reading."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..errors import UserError
from ..jobs import Record
from ..schema import Counts
from ..settings import Setting
from .ledger import FINISHED, REMEDY, STATUSES, Entry, Ledger


def entry_key(setting: Setting, first: int, second: int, seed: int) -> str:
    """One training: the pair that is held out has no order."""
    return f"{setting.key}-{min(first, second)}-{max(first, second)}-{seed}"


def check_entries(
    ledger: Ledger, entries: Iterable[Entry], n_groups: int | None = None, *, scored: bool = True
) -> None:
    """n_groups: of people who are held out together; None where nobody knows. scored: records have scores."""
    for entry in entries:
        fault = _fault(entry, n_groups, scored)
        if fault is not None:
            raise UserError(f"the ledger {ledger.path} has a job with {fault} (key {str(entry.key)[:60]!r}); {REMEDY}")


def check_populations(ledger: Ledger) -> None:
    known = ledger.statuses()
    for number, keys, prune_at in ledger.open_populations():
        at = prune_at is None or (isinstance(prune_at, int) and prune_at >= 0)
        if not set(keys) <= set(known) or not at:
            raise UserError(f"population {number} of the ledger {ledger.path} has jobs that are not listed; {REMEDY}")


def _fault(entry: Entry, n_groups: int | None, scored: bool) -> str | None:
    """What is wrong with a job, in a few words."""
    held_out = (entry.validation, entry.test)
    numbers = all(isinstance(n, int) and 0 <= n < 2**63 for n in (*held_out, entry.seed, entry.starts))
    if not numbers or entry.status not in STATUSES:
        return "an invalid number or status"
    if held_out[0] == held_out[1] or (n_groups is not None and max(held_out) >= n_groups):
        return f"the subjects {held_out[0]} and {held_out[1]}, which the recordings do not have"
    if entry.key != entry_key(entry.setting, *held_out, entry.seed):
        return "a key that does not match its contents"
    if (entry.record is not None) != (entry.status in FINISHED):
        return "a record that does not agree with its status"
    if scored and entry.record is not None and not _complete(entry.record):
        return "an incomplete record"
    return None


def _complete(record: Record) -> bool:
    """In a run somebody always validates and somebody else tests, and the two are exchanged."""
    return record.swapped is not None and all(
        not math.isnan(score) or _one_class(confusion)
        for half in (record, record.swapped)
        for score, confusion in (
            (half.validation_score, half.validation_confusion),
            (half.test_score, half.test_confusion),
        )
    )


def _one_class(confusion: Counts) -> bool:
    """Whether it is of somebody whom no score can be given."""
    return int((confusion.sum(1) > 0).sum()) == 1
