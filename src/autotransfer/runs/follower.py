"""Finished trainings of a run that may be at work, read again and again: each record is read once."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from ..folds import held_out_groups
from ..jobs import Record
from .data_facts import Data
from .ledger import FINISHED, Ledger, check_entries
from .options import RunOptions
from .results import Trained, trained
from .run import stored_options


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
        self._records: dict[str, Record | None] = {}

    def look(self) -> Seen:
        with closing(Ledger(self.folder / "ledger.sqlite", read_only=True)) as ledger:
            entries = ledger.entries(records=False)
            for entry in entries:
                if entry.status in FINISHED and entry.key not in self._records:
                    self._records[entry.key] = ledger.record(entry.key)
            entries = [replace(entry, record=self._records.get(entry.key)) for entry in entries]
            options, data = stored_options(ledger), ledger.require("data", Data)
            groups = held_out_groups(len(data.subjects), data.units, options.n_folds)
            check_entries(ledger, entries, len(groups))
            return Seen(
                complete=bool(ledger.recall("complete", bool)),
                options=options,
                data=data,
                trainings=trained(entries, data.subjects, options.name_of, groups),
            )
