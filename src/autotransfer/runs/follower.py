"""Finished trainings of a run that may be at work, read again and again: each record is read once."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..folds import held_out_groups
from ..jobs import Record
from .checks import check_entries
from .data_facts import Data
from .ledger import FINISHED, Ledger
from .options import RunOptions
from .results import Trained, trained


@dataclass(frozen=True)
class Seen:
    """A run at one moment, read without its recordings or weights."""

    complete: bool
    options: RunOptions
    data: Data
    trainings: list[Trained]  # the finished ones, in their order


class RunFollower:
    """`look` reads what is new, while another process may write the run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._records: dict[str, Record] = {}

    def look(self) -> Seen:
        with closing(Ledger(self.folder / "ledger.sqlite", read_only=True)) as ledger:
            entries = ledger.entries(records=False)
            over = [entry.key for entry in entries if entry.status in FINISHED]
            self._records |= ledger.records(key for key in over if key not in self._records)
            entries = [replace(entry, record=self._records.get(entry.key)) for entry in entries]
            stored, data = ledger.recall("options", dict[str, Any]), ledger.recall("data", Data)
            if data is None:
                raise UserError(f"{self.folder} does not say what it was begun with; start a new run")
            options = RunOptions.from_dict(stored)
            groups = held_out_groups(len(data.subjects), data.units, options.n_folds)
            check_entries(ledger, entries, len(groups))
            return Seen(
                complete=bool(ledger.recall("complete", bool)),
                options=options,
                data=data,
                trainings=trained(entries, data.subjects, options.name_of, groups),
            )
