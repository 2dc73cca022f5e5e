"""Going on with a run whose ledger is damaged: what can be read goes into a fresh one, the rest is trained again.

A row is taken only if its seal holds, so nothing damaged can get into the fresh ledger. The damaged file is kept
beside it. The fresh one is complete under another name before it takes the old one's place, so that a kill at any
moment leaves either the old ledger or the new one.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..model.encoders import Encoders
from .files import companions, sync_folder
from .ledger import FINISHED, Ledger
from .pages import Value, read_rows
from .run import Run, Tell
from .seals import seal_of
from .sqlite_errors import DamagedLedger

NEEDED = ("options", "fingerprint")  # facts without which there is no run
RENEWED = ("complete", "weights story")  # facts that the procedure states again


@dataclass
class Saved:
    """Rows whose seals hold, as they stand in the tables."""

    facts: dict[str, str] = field(default_factory=dict)  # name -> JSON
    jobs: dict[str, list[Any]] = field(default_factory=dict)  # key -> columns without the seal
    populations: dict[int, list[Any]] = field(default_factory=dict)  # number -> [keys, prune_at, status]
    known: set[str] = field(default_factory=set)  # keys of all jobs that are mentioned anywhere

    @property
    def finished(self) -> int:
        return sum(row[7] in FINISHED for row in self.jobs.values())


def check_is_run(folder: Path) -> None:
    """Before anything is written there."""
    if folder.is_file():
        raise UserError(f"{folder} is a file; give the folder of a run")
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; start a run with: autotransfer run DATA --out {folder}")
    path = folder / "ledger.sqlite"
    if not path.exists() and not _ready(path).exists():
        raise UserError(f"{folder} is not a run: it has no {path.name}; start one with autotransfer run")


def reopen(folder: Path, encoders: Encoders | None, tell: Tell) -> Run:
    """The run in a folder, to go on with it; its lock must be held. A damaged ledger is replaced first."""
    path = folder / "ledger.sqlite"
    _put_in_place(path)
    try:
        ledger = Ledger(path, read_only=True)  # a damaged file is kept as it was found
        try:
            ledger.check()
        finally:
            ledger.close()
    except DamagedLedger:
        tell(salvage(path))
    return Run.open(folder, encoders)


def salvage(path: Path) -> str:
    """Replace a damaged ledger by a fresh one with all that can be read; says how much that is."""
    saved = read(path)
    if not all(name in saved.facts for name in NEEDED):
        raise UserError(
            f"the ledger {path} is damaged, and what the run was asked to do cannot be read from it; "
            "restore it from a copy, or start a new run with: autotransfer run DATA --out FOLDER"
        )
    kept = _keep(path)
    write(saved, _ready(path))
    _put_in_place(path)
    left = len(saved.known) - saved.finished
    return (
        f"the ledger was damaged and is kept as {kept.name}: {saved.finished} finished jobs were saved, "
        f"{left} known jobs have to be trained, or trained again"
    )


def read(path: Path) -> Saved:
    """Every row of a damaged ledger whose seal holds; of several versions the latest."""
    saved = Saved()
    for row_id, columns in read_rows(path):
        try:
            if len(columns) == 3:
                _take_fact(saved, columns)
            elif len(columns) == 5:
                _take_population(saved, row_id, columns)
            elif len(columns) == 12:
                _take_job(saved, columns)
        except (ValueError, TypeError, AttributeError, RecursionError):
            continue  # sealed, but nothing that we would have written
    saved.known |= set(saved.jobs)
    for row in saved.populations.values():
        saved.known |= set(row[0])
        # A job whose row is lost is noted again by the procedure, and gets another population.
        row[0] = [key for key in row[0] if key in saved.jobs]
    for name in list(saved.facts):
        stale = name.startswith("pruned ") and name.split()[1:2] not in [[str(number)] for number in saved.populations]
        if name in RENEWED or stale:
            del saved.facts[name]
    return saved


def _take_fact(saved: Saved, columns: list[Value]) -> None:
    name, value, seal = columns
    # Facts that change only grow.
    if seal == seal_of(name, value) and len(str(value)) >= len(saved.facts.get(str(name), "")):
        saved.facts[str(name)] = str(value)


def _take_population(saved: Saved, number: int, columns: list[Value]) -> None:
    _, keys, prune_at, status, seal = columns
    ended = number in saved.populations and saved.populations[number][2] == "done"
    if seal == seal_of(keys, prune_at) and not ended:
        names = [str(key) for key in json.loads(str(keys))]
        saved.populations[number] = [names, prune_at, "done" if status == "done" else "waiting"]


def _take_job(saved: Saved, columns: list[Value]) -> None:
    *fixed, _, starts, record, tensors, seal = columns
    if seal != seal_of(*fixed, record, tensors):
        return
    key = str(fixed[0])
    status = "waiting"
    if record is not None:
        status = "done" if json.loads(str(record)).get("failure") is None else "failed"
    if key not in saved.jobs or status in FINISHED:  # an unfinished row is an older version
        starts = starts if isinstance(starts, int) else 0
        saved.jobs[key] = [*fixed, status, starts, record, tensors]


def write(saved: Saved, path: Path) -> None:
    """A fresh ledger of these rows, at `path` only when it is complete."""
    part = path.with_name(f".{path.name}.part")
    for name in (part, *companions(part)):
        name.unlink(missing_ok=True)
    ledger = Ledger(part, create=True)
    with ledger.transaction() as connection:
        connection.executemany("INSERT INTO facts VALUES (?1, ?2, seal_of(?1, ?2))", list(saved.facts.items()))
        connection.executemany(
            "INSERT INTO jobs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, "
            "seal_of(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?10, ?11))",
            list(saved.jobs.values()),
        )
        connection.executemany(
            "INSERT INTO populations VALUES (?1, ?2, ?3, ?4, seal_of(?2, ?3))",
            [(number, json.dumps(keys), *rest) for number, (keys, *rest) in saved.populations.items()],
        )
    ledger.close()
    part.replace(path)


def _keep(path: Path) -> Path:
    """A copy of the damaged ledger and of its log, under the first free number."""
    number = 1
    while (kept := path.with_name(f"ledger.damaged-{number}.sqlite")).exists():
        number += 1
    log, _ = companions(path)
    if log.exists():
        shutil.copyfile(log, companions(kept)[0])
    shutil.copyfile(path, kept)
    return kept


def _put_in_place(path: Path) -> None:
    """Let the fresh ledger, if there is one, take the old one's place. The old log goes first: it is not the new
    ledger's, and SQLite would not know."""
    if _ready(path).exists():
        for name in companions(path):
            name.unlink(missing_ok=True)
        _ready(path).replace(path)
        sync_folder(path.parent)


def _ready(path: Path) -> Path:
    return path.with_name("ledger.salvaged.sqlite")
