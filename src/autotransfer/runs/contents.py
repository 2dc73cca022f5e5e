"""What a ledger may say. Its rows are read as a stranger's: what makes no sense is refused in one line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..settings import Setting
from .ledger import FINISHED, Entry, Ledger

REMEDY = "restore the run's folder from a copy, or start a new run"
STATUSES = ("waiting", "running", *FINISHED)
Pattern = type | Callable[[Any], bool] | list[Any] | dict[Any, Any] | tuple[Any, ...]


def entry_key(setting: Setting, first: int, second: int, seed: int) -> str:
    """One training: the pair of held-out subjects has no order."""
    return f"{setting.key}-{min(first, second)}-{max(first, second)}-{seed}"


def _share(value: Any) -> bool:
    return _matches(value, float) and 0 <= value <= 1


def _count(value: Any) -> bool:
    return _matches(value, int) and 0 <= value < 2**63


def _seconds(value: Any) -> bool:
    return _matches(value, float) and math.isfinite(value) and value >= 0


def _setting(value: Any) -> bool:
    try:
        Setting.from_json(value)
    except UserError:
        return False
    return True


def _moment(value: Any) -> bool:
    try:
        datetime.fromisoformat(value)
    except (ValueError, TypeError):
        return False
    return True


def _row(value: Any) -> bool:
    """A setting as results and choice tell it: its name, and a number or a word for each field."""
    return _matches(value, {"name": str}) and _matches(value, {str: (None, str, int, float, bool)})


RECORD: dict[Any, Any] = {
    "best_epoch": _count, "epochs": _count, "validation_score": _share, "test_score": _share,
    "validation_confusion": [[_count]], "test_confusion": [[_count]], "seconds": _seconds, "population": _count,
    "failure": (None, str),
    "history": {"train_loss": [float], "penalty": [float], "validation_loss": [float], "validation_score": [float]},
}  # fmt: skip
FACTS: dict[str, Pattern] = {
    "options": {str: (None, str, int, float, bool)},
    "fingerprint": str,
    "versions": {str: str},
    "started": _moment,
    "command": (None, str),
    "complete": bool,
    "tpe_batches": [[lambda pair: len(pair) == 2 and _count(pair[0]) and _setting(pair[1])]],
    "weights story": {"leakage": {str: [{str: float}]}, "latent": {str: {str: list}}},
}
CHOICE: dict[Any, Any] = {  # of choice.json
    "chosen": _row, "baseline": _row, "baseline_won": bool, "shortlist": [str], "transductive": bool,
    "validation_q25": {str: _share}, "validation_mean": {str: _share},
    "test_scores": {"chosen": {str: _share}, "baseline": {str: _share}},
    "nested_test_scores": {str: _share}, "nested_choices": {str: str},
}  # fmt: skip


def _scores(value: Any) -> bool:
    return bool(value) and _matches(value, {str: _share})


OF_SOME_CHOICES: dict[str, Pattern] = {  # earlier versions and other options leave these out
    "nested_full_test_scores": {str: _share}, "nested_full_choices": {str: str}, "careful": _row,
    "nested_uncensored_test_scores": _scores, "nested_careful_test_scores": _scores,
    "delivered_test_scores": {str: _scores}, "lead": float,
}  # fmt: skip


def _matches(value: Any, pattern: Any) -> bool:
    """pattern: a type, a test, [pattern], {str: pattern}, {name: pattern, ...} or (alternatives)."""
    if pattern is None:
        return value is None
    if pattern is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if isinstance(pattern, type):
        return isinstance(value, pattern) and (pattern is bool or not isinstance(value, bool))
    if isinstance(pattern, tuple):
        return any(_matches(value, one) for one in pattern)
    if isinstance(pattern, list):
        return isinstance(value, list) and all(_matches(one, pattern[0]) for one in value)
    if isinstance(pattern, dict):
        if not isinstance(value, dict):
            return False
        if str in pattern:
            return all(_matches(one, pattern[str]) for one in value.values())
        return all(name in value and _matches(value[name], own) for name, own in pattern.items())
    try:
        return bool(pattern(value))
    except (TypeError, ValueError, KeyError, IndexError):
        return False


def read_choice(folder: Path) -> dict[str, Any]:
    """choice.json of a finished run, which lies in the open and may have been edited."""
    path = folder / "choice.json"
    try:
        choice: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        choice = None
    full = choice if isinstance(choice, dict) else {}
    sound = all(_matches(full[name], pattern) for name, pattern in OF_SOME_CHOICES.items() if name in full)
    if not sound or not _matches(choice, CHOICE):
        raise UserError(f"{path} is damaged; remove it, then make it again with: autotransfer resume {folder}")
    return full


def check_facts(ledger: Ledger) -> None:
    for name, value in ledger.facts().items():
        pattern = [str] if name.startswith("pruned ") else FACTS.get(name)
        if pattern is not None and not _matches(value, pattern):
            raise UserError(f"the ledger {ledger.path} says nonsense about {name!r}; {REMEDY}")


def check_entries(ledger: Ledger, entries: Iterable[Entry], n_subjects: int | None = None) -> None:
    """n_subjects: None where the recordings are not at hand."""
    for entry in entries:
        fault = _fault(entry, n_subjects)
        if fault is not None:
            raise UserError(f"the ledger {ledger.path} has a job with {fault} (key {str(entry.key)[:60]!r}); {REMEDY}")


def check_populations(ledger: Ledger) -> None:
    known = ledger.statuses()
    for number, keys, prune_at in ledger.open_populations():
        if not _matches(keys, [str]) or not set(keys) <= set(known) or not _matches(prune_at, (None, _count)):
            raise UserError(f"population {number} of the ledger {ledger.path} has jobs that are not listed; {REMEDY}")


def _fault(entry: Entry, n_subjects: int | None) -> str | None:
    """What is wrong with a job, in a few words."""
    if not _setting(entry.setting):
        return "a setting that this version does not know"
    subjects = (entry.validation, entry.test)
    if not all(map(_count, (*subjects, entry.seed, entry.starts))) or entry.status not in STATUSES:
        return "numbers or a status that cannot be"
    if subjects[0] == subjects[1] or (n_subjects is not None and max(subjects) >= n_subjects):
        return f"the subjects {subjects[0]} and {subjects[1]}, which the recordings do not have"
    if entry.key != entry_key(Setting.from_json(entry.setting), *subjects, entry.seed) or not _matches(
        entry.stage, str
    ):
        return "a key that is not its own"
    if (entry.record is not None) != (entry.status in FINISHED):
        return "a record that does not agree with its status"
    record = entry.record
    if record is not None and not (_matches(record, RECORD) and _matches(record.get("swapped"), RECORD)):
        return "a record that is incomplete or out of range"
    return None
