"""Run database: an SQLite file with the jobs, their results, and other values of a run by name (facts)."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

from .. import schema
from ..errors import UserError
from ..files import is_writable
from .lock import no_run_error, refuse_links, wal_files

if TYPE_CHECKING:  # these modules import torch, which takes seconds, and `status` does not need it
    from ..jobs import Record
    from ..settings import Setting

SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    key TEXT PRIMARY KEY, number INTEGER NOT NULL, stage TEXT NOT NULL, setting TEXT NOT NULL,
    validation INTEGER NOT NULL, test INTEGER NOT NULL, seed INTEGER NOT NULL,
    status TEXT NOT NULL DEFAULT 'waiting', starts INTEGER NOT NULL DEFAULT 0,
    record TEXT, tensors BLOB, versions INTEGER
);
CREATE TABLE IF NOT EXISTS populations (
    number INTEGER PRIMARY KEY, keys TEXT NOT NULL, status TEXT NOT NULL DEFAULT 'waiting'
);
"""
VERSION = 4  # version of these tables, stored as SQLite's user_version
T = TypeVar("T")
FINISHED = ("done", "failed")
STATUSES = ("waiting", "running", *FINISHED)
STAGES = {"search": "the search of settings", "folds": "fits on all folds", "sessions": "fits for online sessions"}
# Stage of hidden jobs, whose own stage was not completed in time. Results ignore them, and `resume` continues them.
UNDELIVERED = "undelivered"
REMEDY = "restore the run's folder from a copy, or start a new run"
LOCK_TIMEOUT = 30.0  # seconds to wait for another program that has locked the file
CACHED_RECORDS = 1000  # number of records in the cache; a record of 500 epochs has about 200 kB
PROTECTED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class DamagedDatabase(UserError):
    """Error of a damaged run database."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"the run database {path} is damaged ({reason}); {REMEDY}")


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Replace SQLite errors of the database at `path` by errors that name the file and a remedy."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        explained = _explain(path, error)
        if explained is None:
            raise
        raise explained from None
    except UnicodeDecodeError:  # SQLite's message quotes damaged bytes
        raise DamagedDatabase(path, "it has invalid text") from None


def _explain(path: Path, error: sqlite3.DatabaseError) -> Exception | None:
    """Return an error that names a remedy; None if no remedy is known."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    primary_code = code & 0xFF  # higher bits are variants of an error
    if primary_code == sqlite3.SQLITE_FULL:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    if code == sqlite3.SQLITE_IOERR_READ or primary_code in CORRUPT:
        return DamagedDatabase(path, error)
    if primary_code == sqlite3.SQLITE_IOERR:
        return OSError(errno.EIO, f"cannot write {path} ({error})", str(path))
    if primary_code in PROTECTED:
        return UserError(f"cannot write to {path} ({error}); make the folder and its files writable")
    if primary_code in BUSY:
        return UserError(f"{path} is locked by another program; close that program and try again")
    return None


@dataclass(frozen=True)
class Entry:
    """Job in the run database. `validation` and `test` are indices of groups of held-out subjects."""

    key: str
    stage: str
    setting: Setting
    validation: int
    test: int
    seed: int
    status: str = "waiting"  # waiting, running, done, failed
    starts: int = 0  # number of times that training started from the first epoch
    record: Record | None = None

    @classmethod
    def build(cls, stage: str, setting: Setting, validation: int, test: int, seed: int) -> Entry:
        """Return a waiting job with its key."""
        return cls(entry_key(setting, validation, test, seed), stage, setting, validation, test, seed)

    @property
    def held_out(self) -> tuple[int, int]:
        return self.validation, self.test


class OpenPopulation(NamedTuple):
    """Population with unfinished jobs."""

    number: int
    keys: list[str]  # job keys of its members


class RunDatabase:
    """Run database in one SQLite file. Every method that writes is one transaction."""

    def __init__(self, path: Path, *, create: bool = False, read_only: bool = False) -> None:
        """Open the database. read_only: whether to open without write access."""
        self.path = path
        self._n_added = 0  # number of jobs that this process has added
        self.version_index = 0  # index of the current package versions in the fact "versions"
        if not create and not os.path.isfile(path):
            raise no_run_error(path.parent, path.name)
        refuse_links(path.parent)
        if not create and path.stat().st_size == 0:  # an empty file is a new database for SQLite
            raise DamagedDatabase(path, "it is empty")
        # SQLite creates an index file even for reading, unless the database is declared immutable. It is declared
        # immutable if the folder cannot be written to and there is no log with changes.
        is_archived = not is_writable(path.parent) and not wal_files(path)[0].exists()
        mode = "immutable=1" if is_archived else "mode=ro"
        address = f"file:{quote(str(path.absolute()))}?{mode}" if read_only else path
        with explain_errors(path):
            self.connection = sqlite3.connect(address, isolation_level=None, timeout=LOCK_TIMEOUT, uri=read_only)
            try:
                self._prepare(create, read_only)
            except BaseException as error:
                self.connection.close()
                if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:  # not a run database
                    raise DamagedDatabase(path, error) from None
                raise

    def _prepare(self, create: bool, read_only: bool) -> None:
        self.connection.text_factory = bytes.decode  # raises UnicodeDecodeError, see `explain_errors`
        self.connection.execute("PRAGMA trusted_schema=OFF")
        ((version,),) = self._query("PRAGMA user_version")
        if not create and version != VERSION:
            raise UserError(f"{self.path} was written by another version of autotransfer; start a new run")
        if not read_only:
            self.connection.execute("PRAGMA journal_mode=WAL")
            self.connection.execute("PRAGMA synchronous=FULL")
        if create:
            self.connection.executescript(f"{SCHEMA}PRAGMA user_version={VERSION};")

    def close(self) -> None:
        self.connection.close()

    def flush_log(self) -> None:
        """Move all changes from the log into the database file; unlike `close`, raise an error if this fails."""
        self._query("PRAGMA wal_checkpoint(TRUNCATE)")

    def check(self) -> None:
        """Raise DamagedDatabase unless SQLite's integrity check passes."""
        ((result,),) = self._query("PRAGMA integrity_check(1)")
        if result != "ok":
            raise DamagedDatabase(self.path, " ".join(result.split()))

    def _query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
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
                if self.connection.in_transaction:  # SQLite itself rolls back if the disk is full
                    self.connection.execute("ROLLBACK")
                raise

    def store_facts(self, **facts: Any) -> None:
        """Store facts as JSON by name."""
        with self.transaction() as connection:
            for name, value in facts.items():
                connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, schema.to_json(value)))

    def load_fact(self, name: str, fact_type: type[T]) -> T | None:
        """Return a stored fact of this type; None if it was never stored."""
        rows = self._query("SELECT value FROM facts WHERE name = ?", (name,))
        return self._parse(name, fact_type, rows[0][0]) if rows else None

    def require_fact(self, name: str, fact_type: type[T]) -> T:
        """Return a fact that every run has."""
        fact = self.load_fact(name, fact_type)
        if fact is None:
            raise DamagedDatabase(self.path, f"it has no {name}")
        return fact

    def _parse(self, name: str, fact_type: type[T], value: str) -> T:
        try:
            return schema.from_json(fact_type, value)
        except UserError as error:
            raise UserError(f"{self.path} has an invalid {name!r} ({error}); {REMEDY}") from None

    def add(self, entries: Iterable[Entry]) -> None:
        """Add waiting jobs. Existing jobs are not changed, except that hidden jobs become visible.

        Jobs are numbered in the order of addition, which is the same in a resumed run.
        """
        with self.transaction() as connection:
            for entry in entries:
                setting = entry.setting.to_json()
                connection.execute(
                    "INSERT INTO jobs (key, number, stage, setting, validation, test, seed) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?) "
                    "ON CONFLICT (key) DO UPDATE SET stage = excluded.stage WHERE stage = ?",
                    (entry.key, self._n_added, entry.stage, setting, *entry.held_out, entry.seed, UNDELIVERED),
                )
                self._n_added += 1

    def hide(self, keys: Sequence[str]) -> None:
        """Exclude jobs of an incomplete stage from `entries` and `counts`. `add` makes hidden jobs visible again."""
        with self.transaction() as connection:
            connection.executemany("UPDATE jobs SET stage = ? WHERE key = ?", [(UNDELIVERED, key) for key in keys])

    def entries(self, *, records: bool = True, hidden: bool = False) -> list[Entry]:
        """Return jobs in the order of addition. records, hidden: whether to read records, and to add hidden jobs."""
        columns = f"key, stage, setting, validation, test, seed, status, starts, {'record' if records else 'NULL'}"
        left_out = "" if hidden else UNDELIVERED
        rows = self._query(f"SELECT {columns} FROM jobs WHERE stage != ? ORDER BY number, key", (left_out,))
        return [self._read_entry(*row) for row in rows]

    @cached_property
    def _record(self) -> Callable[[str], Record]:
        """Return a cached reader of records, because a run reads all records repeatedly."""
        from ..jobs import Record

        return lru_cache(CACHED_RECORDS)(partial(schema.from_json, Record))

    def _read_entry(
        self, key: str, stage: str, setting: str, validation: int, test: int, seed: int, status: str, starts: int,
        record: str | None,
    ) -> Entry:  # fmt: skip
        """Return the job of a row of the table; raise if a value is invalid."""
        from ..settings import Setting

        try:
            parsed = None if record is None else self._record(record)
            entry = Entry(key, stage, Setting.from_json(setting), validation, test, seed, status, starts, parsed)
        except UserError as error:
            raise UserError(f"{self.path} has a job with {error} (key {str(key)[:60]!r}); {REMEDY}") from None
        return entry

    def record(self, key: str) -> Record | None:
        """Return the record of a job; None if it is not finished."""
        ((text,),) = self._query("SELECT record FROM jobs WHERE key = ?", (key,))
        return None if text is None else self._record(text)

    def failures(self) -> list[tuple[dict[str, Any], str]]:
        """Return settings and reasons of failed jobs as JSON values, without importing torch."""
        rows = self._query(
            "SELECT setting, record FROM jobs WHERE status = 'failed' AND stage != ? ORDER BY number, key",
            (UNDELIVERED,),
        )
        try:
            return [(json.loads(setting), str(json.loads(record)["failure"])) for setting, record in rows]
        except (ValueError, LookupError, TypeError) as error:
            raise DamagedDatabase(self.path, f"a failed job cannot be read: {error}") from None

    def statuses(self) -> dict[str, str]:
        return dict(self._query("SELECT key, status FROM jobs"))

    def counts(self) -> dict[str, int]:
        return dict(self._query("SELECT status, count(*) FROM jobs WHERE stage != ? GROUP BY status", (UNDELIVERED,)))

    def fit_versions(self) -> dict[str, str]:
        """Return the package versions of most fits; the value of "other versions" lists what differs in other fits."""
        stored = self.require_fact("versions", list[dict[str, str]])
        fits = dict(self._query("SELECT versions, count(*) FROM jobs WHERE status = 'done' GROUP BY versions"))
        main = max(range(len(stored)), key=lambda k: fits.get(k, 0))
        changed = [
            ", ".join(f"{name} {version}" for name, version in versions.items() if version != stored[main].get(name))
            + f" ({fits[k]} of {sum(fits.values())} fits)"
            for k, versions in enumerate(stored)
            if k != main and fits.get(k)
        ]
        return stored[main] | ({"other versions": "; ".join(changed)} if changed else {})

    def stage_words(self) -> str:
        """Return the names of stages with unfinished jobs."""
        query = "SELECT stage, sum(status NOT IN ('done', 'failed')) FROM jobs GROUP BY stage ORDER BY min(number)"
        stages = dict(self._query(query))
        return ", ".join(STAGES.get(str(stage), str(stage)) for stage, n in stages.items() if n)

    def begin(self, keys: Sequence[str]) -> None:
        """Mark jobs as started from their first epoch."""
        with self.transaction() as connection:
            connection.executemany(
                "UPDATE jobs SET status = 'running', starts = starts + 1 WHERE key = ?", [(key,) for key in keys]
            )

    def finish(self, key: str, record: Record, tensors: bytes) -> None:
        """Store record and tensors of a job that is done or has failed."""
        status = "done" if record.failure is None else "failed"
        with self.transaction() as connection:
            connection.execute(
                "UPDATE jobs SET status = ?, record = ?, tensors = ?, versions = ? "
                "WHERE key = ? AND status NOT IN ('done', 'failed')",
                (status, schema.to_json(record), tensors, self.version_index, key),
            )

    def tensors(self, key: str) -> bytes:
        """Return the stored tensors of a finished job as safetensors bytes; empty if there are none."""
        ((blob,),) = self._query("SELECT tensors FROM jobs WHERE key = ?", (key,))
        return blob if isinstance(blob, bytes) else b""

    def open_populations(self) -> list[OpenPopulation]:
        """Return unfinished populations, the oldest first, without populations of hidden jobs."""
        rows = self._query("SELECT number, keys FROM populations WHERE status != 'done' ORDER BY number")
        hidden = {key for (key,) in self._query("SELECT key FROM jobs WHERE stage = ?", (UNDELIVERED,))}
        populations = [OpenPopulation(n, self._parse(f"population {n}", list[str], keys)) for n, keys in rows]
        return [population for population in populations if hidden.isdisjoint(population.keys)]

    def add_populations(self, compositions: Sequence[Sequence[str]]) -> None:
        with self.transaction() as connection:
            connection.executemany(
                "INSERT INTO populations (keys) VALUES (?)", [(json.dumps(list(keys)),) for keys in compositions]
            )

    def end_population(self, number: int) -> None:
        with self.transaction() as connection:
            connection.execute("UPDATE populations SET status = 'done' WHERE number = ?", (number,))

    def halve_population(self, number: int, first: Sequence[str], second: Sequence[str]) -> None:
        """Replace a population by two populations, of which the first has the old number and the second a new one."""
        with self.transaction() as connection:
            connection.execute("UPDATE populations SET keys = ? WHERE number = ?", (json.dumps(list(first)), number))
            connection.execute("INSERT INTO populations (keys) VALUES (?)", (json.dumps(list(second)),))


def entry_key(setting: Setting, first: int, second: int, seed: int) -> str:
    """Return the key of a job; it does not depend on the order of the two held-out groups."""
    return f"{setting.key}-{min(first, second)}-{max(first, second)}-{seed}"


def check_entries(database: RunDatabase, entries: Sequence[Entry], n_groups: int) -> None:
    """Raise UserError if a job has invalid values, or if a population has a job that is not in the database.

    n_groups: number of groups of subjects, each of which is held out once.
    """
    for entry in entries:
        if not _is_valid(entry, n_groups):
            raise UserError(f"{database.path} has a damaged job (key {str(entry.key)[:60]!r}); {REMEDY}")
    job_keys = database.statuses().keys()
    for number, keys in database.open_populations():
        if not set(keys) <= job_keys:
            raise UserError(f"{database.path} has unknown jobs in population {number}; {REMEDY}")


def _is_valid(entry: Entry, n_groups: int) -> bool:
    record, has_no_validation = entry.record, entry.validation == n_groups  # regression has no validation group
    return (
        all(isinstance(n, int) and 0 <= n < 2**63 for n in (*entry.held_out, entry.seed, entry.starts))
        and entry.validation != entry.test
        and (has_no_validation or entry.validation < n_groups)
        and entry.test < n_groups
        and entry.key == entry_key(entry.setting, *entry.held_out, entry.seed)
        and entry.status in STATUSES
        and (record is not None) == (entry.status in FINISHED)
        and (record is None or has_no_validation or record.swapped is not None)
    )
