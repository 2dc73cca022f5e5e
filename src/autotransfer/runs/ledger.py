"""The ledger: every job of a run and what came of it, on disk the moment it is known (SQLite, WAL)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

from .. import schema
from ..errors import UserError
from ..files import sync_folder, writable
from .checksums import CHECKED, checksum
from .lock import no_run, refuse_links, remove_database, wal_files
from .sqlite_errors import DamagedLedger, explain_errors

if TYPE_CHECKING:  # with torch they take seconds to import, and `status` needs neither
    from ..jobs import Record
    from ..settings import Setting

SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    key TEXT PRIMARY KEY, number INTEGER NOT NULL, stage TEXT NOT NULL, setting TEXT NOT NULL,
    validation INTEGER NOT NULL, test INTEGER NOT NULL, seed INTEGER NOT NULL,
    status TEXT NOT NULL DEFAULT 'waiting', starts INTEGER NOT NULL DEFAULT 0,
    record TEXT, tensors BLOB, checksum TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS populations (
    number INTEGER PRIMARY KEY, keys TEXT NOT NULL, prune_at INTEGER, status TEXT NOT NULL DEFAULT 'waiting',
    checksum TEXT NOT NULL
);
"""
T = TypeVar("T")
FINISHED = ("done", "failed")
STATUSES = ("waiting", "running", *FINISHED)
STAGES = {"search": "stage one", "folds": "stage two", "sessions": "models for sessions"}
REMEDY = "restore the run's folder from a copy, or start a new run"
PATIENCE = 30.0  # seconds to wait for another program that has locked the file
REMEMBERED = 1000  # records, each some 200 kB after 500 epochs


def stage_name(stage: str, *, staged: bool) -> str:
    """In words. staged: settings were tried on one split first, so there is a stage one."""
    return "every fold" if stage == "folds" and not staged else STAGES.get(stage, stage)


@dataclass(frozen=True)
class Entry:
    """A job as the ledger knows it. Who is held out are positions of the run's groups: of subjects, where everybody is
    left out alone."""

    key: str
    stage: str
    setting: Setting
    validation: int
    test: int
    seed: int
    status: str = "waiting"  # waiting, running, done, failed
    starts: int = 0  # how often training began from the first epoch
    record: Record | None = None


class OpenPopulation(NamedTuple):
    number: int
    keys: list[str]  # of its jobs
    prune_at: int | None  # the epoch after which the worse half of its censored members is given up


def backup_of(path: Path) -> Path:
    return path.with_name(f"{path.stem}.backup.sqlite")


class Ledger:
    """One SQLite file. Every method that changes it is one transaction."""

    def __init__(self, path: Path, *, create: bool = False, read_only: bool = False) -> None:
        """read_only: nothing is written, and nothing needs to be: also for an archive."""
        self.path = path
        self._noted = 0  # jobs handed to `add` so far
        if not create and not os.path.isfile(path):
            if backup_of(path).exists():
                raise UserError(f"{path} is missing; go on from its copy: autotransfer resume {path.parent}")
            raise no_run(path.parent, path.name)
        refuse_links(path.parent)
        if not create and path.stat().st_size == 0:  # to SQLite a good beginning
            raise DamagedLedger(path, "it is empty")
        # Reading makes an index beside the file, unless SQLite is told that nothing can change.
        archived = not writable(path.parent) and not wal_files(path)[0].exists()
        mode = "immutable=1" if archived else "mode=ro"
        place = f"file:{quote(str(path.absolute()))}?{mode}" if read_only else path
        with explain_errors(path):
            self.connection = sqlite3.connect(place, isolation_level=None, timeout=PATIENCE, uri=read_only)
            try:
                self._prepare(create, read_only)
            except BaseException as error:
                self.connection.close()
                if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:  # a file of an unknown kind
                    raise DamagedLedger(path, error) from None
                raise

    def _prepare(self, create: bool, read_only: bool) -> None:
        self.connection.text_factory = _text
        self.connection.create_function("checksum", -1, checksum, deterministic=True)
        self.connection.execute("PRAGMA trusted_schema=OFF")
        if not read_only:
            self.connection.execute("PRAGMA journal_mode=WAL")
            self.connection.execute("PRAGMA synchronous=FULL")
        if create:
            self.connection.executescript(SCHEMA)
        for table, columns in CHECKED.items():
            present = {row[1] for row in self._ask(f"PRAGMA table_info({table})")}
            if not {*columns, "checksum"} <= present:
                raise DamagedLedger(self.path, f"its table {table} is not as it was written")

    def close(self) -> None:
        self.connection.close()

    def empty_log(self) -> None:
        """All that is committed goes into the file itself. `close` does that, too, but where the disk fails it leaves
        the log and says nothing."""
        self._ask("PRAGMA wal_checkpoint(TRUNCATE)")

    def back_up(self) -> None:
        """A copy beside the ledger: what `resume` goes on from where the ledger is damaged.

        It is made under another name, so that a kill leaves the copy from the stage before. With weights and records it
        is as large as the ledger, some 100 kB a job with EEGNet, and takes a few seconds per GB. Where the disk would
        have less than that left free, the old copy stays; a run does not end for want of a new one.
        """
        target = backup_of(self.path)
        part = target.with_name(f".{target.name}.part")
        ((size,),) = self._ask("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
        if shutil.disk_usage(target.parent).free < 2 * size:
            return
        try:
            remove_database(part)
            with explain_errors(self.path), closing(sqlite3.connect(part, isolation_level=None)) as copy:
                copy.execute("PRAGMA journal_mode=MEMORY")  # nobody needs half a copy
                self.connection.backup(copy)  # reads one state of the ledger, its write-ahead log included
                copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a log of its own
            with open(part, "rb+") as file:
                os.fsync(file.fileno())
            part.replace(target)
        except OSError:
            return
        finally:
            with contextlib.suppress(OSError):
                remove_database(part)
        sync_folder(target.parent)

    def check(self) -> None:
        """Raise DamagedLedger unless every page and every row is as it was written."""
        try:
            ((verdict,),) = self._ask("PRAGMA integrity_check(1)")
            broken = 0 if verdict == "ok" else 1
            for table, columns in CHECKED.items():
                ((wrong,),) = self._ask(
                    f"SELECT count(*) FROM {table} WHERE checksum IS NOT checksum({', '.join(columns)})"
                )
                broken += wrong
            ((wrong,),) = self._ask("SELECT count(*) FROM jobs WHERE (record IS NULL) = (status IN ('done', 'failed'))")
        except sqlite3.DatabaseError as error:
            raise DamagedLedger(self.path, error) from None
        if broken or wrong:
            raise DamagedLedger(self.path, "its contents do not agree with their checksums")

    def _ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with explain_errors(self.path):
            return self.connection.execute(sql, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with explain_errors(self.path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:  # on a full disk SQLite has rolled back by itself
                    self.connection.execute("ROLLBACK")
                raise

    # facts about the run

    def remember(self, **facts: Any) -> None:
        with self.transaction() as connection:
            for name, value in facts.items():
                connection.execute(
                    "INSERT OR REPLACE INTO facts VALUES (?1, ?2, checksum(?1, ?2))", (name, schema.to_json(value))
                )

    def recall(self, name: str, kind: type[T]) -> T | None:
        """A fact, checked to be of its type; None where it was never noted."""
        rows = self._ask("SELECT value FROM facts WHERE name = ?", (name,))
        return self._checked(name, kind, rows[0][0]) if rows else None

    def _checked(self, name: str, kind: type[T], value: str) -> T:
        try:
            return schema.from_json(kind, value)
        except UserError as error:
            raise UserError(f"the ledger {self.path} holds an invalid {name!r} ({error}); {REMEDY}") from None

    # jobs

    def add(self, entries: Iterable[Entry]) -> None:
        """Note jobs to be done; those already known stay as they are.

        A job's number counts what was noted before it in this process, known or not: as a resumed run notes the same
        jobs in the same order, one that was lost from the file comes back in its old place.
        """
        with self.transaction() as connection:
            for entry in entries:
                connection.execute(
                    "INSERT OR IGNORE INTO jobs (key, number, stage, setting, validation, test, seed, checksum) "
                    "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, checksum(?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL, NULL))",
                    (
                        entry.key,
                        self._noted,
                        entry.stage,
                        entry.setting.to_json(),
                        entry.validation,
                        entry.test,
                        entry.seed,
                    ),
                )
                self._noted += 1

    def entries(self, stage: str | None = None, *, records: bool = True) -> list[Entry]:
        """Jobs in the order in which they were noted. records=False: without what came of them, which is long."""
        columns = f"key, stage, setting, validation, test, seed, status, starts, {'record' if records else 'NULL'}"
        where, values = ("", ()) if stage is None else ("WHERE stage = ?", (stage,))
        rows = self._ask(f"SELECT {columns} FROM jobs {where} ORDER BY number, key", values)
        return [self._entry(*row) for row in rows]

    @cached_property
    def _record(self) -> Callable[[str], Record]:
        """A run asks for all its records again and again, and learning curves are long: equal text is read once."""
        from ..jobs import Record

        return lru_cache(REMEMBERED)(partial(schema.from_json, Record))

    def _entry(
        self, key: str, stage: str, setting: str, validation: int, test: int, seed: int, status: str, starts: int,
        record: str | None,
    ) -> Entry:  # fmt: skip
        """Rows are read as a stranger's: what is invalid is refused in one line."""
        from ..settings import Setting

        try:
            parsed = None if record is None else self._record(record)
            entry = Entry(key, stage, Setting.from_json(setting), validation, test, seed, status, starts, parsed)
        except UserError as error:
            raise UserError(
                f"the ledger {self.path} has a job with {error} (key {str(key)[:60]!r}); {REMEDY}"
            ) from None
        return entry

    def records(self, keys: Iterable[str]) -> dict[str, Record]:
        """What came of these jobs, of those that are finished."""
        from ..jobs import Record

        wanted = list(keys)
        records: dict[str, Record] = {}
        for start in range(0, len(wanted), 500):
            some = wanted[start : start + 500]
            rows = self._ask(f"SELECT key, record FROM jobs WHERE key IN ({', '.join('?' * len(some))})", some)
            records |= {str(key): self._checked(f"job {key}", Record, record) for key, record in rows if record}
        return records

    def extracts(self, *paths: str) -> list[tuple[Any, ...]] | None:
        """(key, setting, validation, test, seed, status, values) of every job: a setting as its text, and what SQLite
        finds at these paths of a record, a JSON list; None where a record is no JSON, or has NaN, which JSON lacks."""
        places = ", ".join(f"'$.{path}'" for path in paths)
        values = f"CASE WHEN record IS NOT NULL THEN json_extract(record, {places}) END"
        try:
            return self.connection.execute(
                f"SELECT key, setting, validation, test, seed, status, {values} FROM jobs ORDER BY number, key"
            ).fetchall()
        except sqlite3.Error:
            return None

    def statuses(self) -> dict[str, str]:
        return dict(self._ask("SELECT key, status FROM jobs"))

    def counts(self) -> dict[str, int]:
        return dict(self._ask("SELECT status, count(*) FROM jobs GROUP BY status"))

    def stage_words(self) -> str:
        """The stages that jobs are left of, as progress and status call them."""
        left = "SELECT stage, sum(status NOT IN ('done', 'failed')) FROM jobs GROUP BY stage ORDER BY min(number)"
        stages = dict(self._ask(left))
        return ", ".join(stage_name(str(stage), staged="search" in stages) for stage, n in stages.items() if n)

    def begin(self, keys: Sequence[str]) -> None:
        """These jobs start from their first epoch."""
        with self.transaction() as connection:
            connection.executemany(
                "UPDATE jobs SET status = 'running', starts = starts + 1 WHERE key = ?", [(key,) for key in keys]
            )

    def finish(self, key: str, record: Record, tensors: bytes) -> None:
        """A job has ended, well or badly: scores and weights in one transaction."""
        status = "done" if record.failure is None else "failed"
        with self.transaction() as connection:
            connection.execute(
                "UPDATE jobs SET status = ?1, record = ?2, tensors = ?3, "
                "checksum = checksum(key, number, stage, setting, validation, test, seed, ?2, ?3) "
                "WHERE key = ?4 AND status NOT IN ('done', 'failed')",
                (status, schema.to_json(record), tensors, key),
            )

    def tensors(self, key: str) -> bytes:
        """The weights of a finished job; nothing where it has left none."""
        ((blob,),) = self._ask("SELECT tensors FROM jobs WHERE key = ?", (key,))
        return blob if isinstance(blob, bytes) else b""

    # populations

    def open_populations(self) -> list[OpenPopulation]:
        """Populations that have not ended, the oldest first."""
        rows = self._ask("SELECT number, keys, prune_at FROM populations WHERE status != 'done' ORDER BY number")
        return [OpenPopulation(n, self._checked(f"population {n}", list[str], keys), at) for n, keys, at in rows]

    def add_populations(self, compositions: Sequence[Sequence[str]], prune_at: int | None = None) -> None:
        """prune_at: the epoch after which the worse half of their censored members is given up."""
        with self.transaction() as connection:
            _insert_populations(connection, compositions, prune_at)

    def end_population(self, number: int) -> None:
        with self.transaction() as connection:
            connection.execute("UPDATE populations SET status = 'done' WHERE number = ?", (number,))

    def drop(self, keys: Sequence[str], *, finished: bool = False) -> list[int]:
        """Forget jobs that are not finished, or also those that are. Returns the populations that they were in, which
        end with them."""
        known = self.statuses()
        gone = {key for key in keys if key in known and (finished or known[key] not in FINISHED)}
        numbers = [population.number for population in self.open_populations() if gone & set(population.keys)]
        with self.transaction() as connection:
            connection.executemany("DELETE FROM jobs WHERE key = ?", [(key,) for key in gone])
            connection.executemany("UPDATE populations SET status = 'done' WHERE number = ?", [(n,) for n in numbers])
        return numbers

    def replace_population(self, number: int, compositions: Sequence[Sequence[str]]) -> None:
        """Others take its place, pruned when it would have been: the first one keeps the number, and with it its turn,
        the rest come after everything else."""
        first, *rest = compositions
        with self.transaction() as connection:
            (prune_at,) = connection.execute("SELECT prune_at FROM populations WHERE number = ?", (number,)).fetchone()
            connection.execute(
                "UPDATE populations SET keys = ?2, checksum = checksum(?2, prune_at) WHERE number = ?1",
                (number, json.dumps(list(first))),
            )
            _insert_populations(connection, rest, prune_at)


def _insert_populations(
    connection: sqlite3.Connection, compositions: Sequence[Sequence[str]], prune_at: int | None
) -> None:
    connection.executemany(
        "INSERT INTO populations (keys, prune_at, checksum) VALUES (?1, ?2, checksum(?1, ?2))",
        [(json.dumps(list(keys)), prune_at) for keys in compositions],
    )


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")  # damaged text is found by its checksum, not by the decoder
