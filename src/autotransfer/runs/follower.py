"""A run looked at again and again while it may be at work: what is finished is read once."""

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
from .progress import JobNumbers, Standing
from .results import Trained, trained


@dataclass(frozen=True)
class Seen:
    """A run at one moment. No recordings, weights or code of the user's are needed for it."""

    standing: Standing
    options: RunOptions
    data: Data
    trainings: list[Trained]  # the finished ones, in their order
    names: dict[str, str]  # of every setting, by key


class RunFollower:
    """`look` reads what is new; several of them may read one run, and another process may write it."""

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
                raise UserError(f"{self.folder} was begun by an earlier version; start a new run")
            options = RunOptions.from_dict(stored)
            groups = held_out_groups(len(data.subjects), data.units, options.n_folds)
            check_entries(ledger, entries, len(groups))
            return Seen(
                standing=Standing.of(self.folder, ledger, [JobNumbers.of(entry) for entry in entries]),
                options=options,
                data=data,
                trainings=trained(entries, data.subjects, options.name_of, groups),
                names={entry.setting.key: options.name_of(entry.setting) for entry in entries},
            )
