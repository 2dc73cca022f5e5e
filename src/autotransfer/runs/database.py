"""The run database, or database: every job and its result, on disk as soon as it is known (SQLite, WAL)."""

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
from ..files import writable
from .lock import no_run_error, refuse_links, wal_files

if TYPE_CHECKING:  # with torch they take seconds to import, and `status` needs neither
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
VERSION = 4  # of these tables, as SQLite's user_version; 0.1.0 wrote 0
T = TypeVar("T")
FINISHED = ("done", "failed")
STATUSES = ("waiting", "running", *FINISHED)
STAGES = {"search": "stage one", "folds": "stage two", "sessions": "models for sessions"}
UNDELIVERED = "undelivered"  # stage of jobs that a run had no time to complete: kept for `resume`, and read by nothing
REMEDY = "restore the run's folder from a copy, or start a new run"
PATIENCE = 30.0  # seconds to wait for another program that has locked the file
REMEMBERED = 1000  # records, each some 200 kB after 500 epochs
PROTECTED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class DamagedDatabase(UserError):
    """Error of a run database that is not as it was written."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(
            f"the run database {path} is damaged ({reason}); restore the folder from a copy or start a new run; "
            f"what is in {path.parent / 'model'} can still predict"
        )


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Translate errors of the database at `path` that a user can fix."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        known = _in_words(path, error)
        if known is None:
            raise
        raise known from None
    except UnicodeDecodeError:  # SQLite quotes what is damaged, and Python cannot read the message
        raise DamagedDatabase(path, "it holds text that is none") from None


def _in_words(path: Path, error: sqlite3.DatabaseError) -> Exception | None:
    code: int = getattr(error, "sqlite_errorcode", 0)
    kind = code & 0xFF  # the rest tells variants apart
    if kind == sqlite3.SQLITE_FULL:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    if code == sqlite3.SQLITE_IOERR_READ or kind in CORRUPT:
        return DamagedDatabase(path, error)
    if kind == sqlite3.SQLITE_IOERR:
        return OSError(errno.EIO, f"cannot write {path} ({error})", str(path))
    if kind in PROTECTED:
        return UserError(f"cannot write to {path} ({error}); make the folder and its files writable")
    if kind in BUSY:
        return UserError(f"{path} is locked by another program; close that program and try again")
    return None


@dataclass(frozen=True)
class Entry:
    """Job of the run database. `validation` and `test` are positions of the run's groups: of single subjects unless
    several are held out together."""

    key: str
    stage: str
    setting: Setting
    validation: int
    test: int
    seed: int
    status: str = "waiting"  # waiting, running, done, failed
    starts: int = 0  # how often training began from the first epoch
    record: Record | None = None

    @classmethod
    def build(cls, stage: str, setting: Setting, validation: int, test: int, seed: int) -> Entry:
        """Return a job that waits."""
        return cls(entry_key(setting, validation, test, seed), stage, setting, validation, test, seed)

    @property
    def held_out(self) -> tuple[int, int]:
        return self.validation, self.test


class OpenPopulation(NamedTuple):
    number: int
    keys: list[str]  # of its jobs


class RunDatabase:
    """Run database in one SQLite file. Every method that changes it is one transaction."""

    def __init__(self, path: Path, *, create: bool = False, read_only: bool = False) -> None:
        """Open the database. read_only: nothing is written, so a folder without write permission can be read."""
        self.path = path
        self._noted = 0  # jobs handed to `add` so far
        self.versions = 0  # place of the versions that fits are made with, in the fact "versions"
        if not create and not os.path.isfile(path):
            raise no_run_error(path.parent, path.name)
        refuse_links(path.parent)
        if not create and path.stat().st_size == 0:  # to SQLite a good beginning
            raise DamagedDatabase(path, "it is empty")
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
                    raise DamagedDatabase(path, error) from None
                raise

    def _prepare(self, create: bool, read_only: bool) -> None:
        self.connection.text_factory = bytes.decode  # which raises an error that `explain_errors` knows
        self.connection.execute("PRAGMA trusted_schema=OFF")
        ((version,),) = self._ask("PRAGMA user_version")
        if not create and version != VERSION:
            raise UserError(f"{self.path} was written by another version of autotransfer; start a new run")
        if not read_only:
            self.connection.execute("PRAGMA journal_mode=WAL")
            self.connection.execute("PRAGMA synchronous=FULL")
        if create:
            self.connection.executescript(f"{SCHEMA}PRAGMA user_version={VERSION};")

    def close(self) -> None:
        self.connection.close()

    def empty_log(self) -> None:
        """Move all committed changes into the database file. `close` does that, too, but if the disk fails it leaves
        the log without an error."""
        self._ask("PRAGMA wal_checkpoint(TRUNCATE)")

    def check(self) -> None:
        """Raise DamagedDatabase unless SQLite finds every page as it was written."""
        ((result,),) = self._ask("PRAGMA integrity_check(1)")
        if result != "ok":
            raise DamagedDatabase(self.path, result)

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

    def remember(self, **facts: Any) -> None:
        with self.transaction() as connection:
            for name, value in facts.items():
                connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, schema.to_json(value)))

    def recall(self, name: str, kind: type[T]) -> T | None:
        """Return a fact, checked to be of its type; None if it was never stored."""
        rows = self._ask("SELECT value FROM facts WHERE name = ?", (name,))
        return self._checked(name, kind, rows[0][0]) if rows else None

    def require(self, name: str, kind: type[T]) -> T:
        """Return a fact that every run notes when it is begun."""
        fact = self.recall(name, kind)
        if fact is None:
            raise DamagedDatabase(self.path, f"it has no {name}")
        return fact

    def _checked(self, name: str, kind: type[T], value: str) -> T:
        try:
            return schema.from_json(kind, value)
        except UserError as error:
            raise UserError(f"the database {self.path} holds an invalid {name!r} ({error}); {REMEDY}") from None

    def add(self, entries: Iterable[Entry]) -> None:
        """Note jobs to be done; those already known stay as they are, and those that were set aside are taken up.

        A job's number counts what was noted before it in this process, known or not: as a resumed run notes the same
        jobs in the same order, one that was lost from the file comes back in its old place.
        """
        with self.transaction() as connection:
            for entry in entries:
                setting = entry.setting.to_json()
                connection.execute(
                    "INSERT INTO jobs (key, number, stage, setting, validation, test, seed) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?) "
                    "ON CONFLICT (key) DO UPDATE SET stage = excluded.stage WHERE stage = ?",
                    (entry.key, self._noted, entry.stage, setting, *entry.held_out, entry.seed, UNDELIVERED),
                )
                self._noted += 1

    def set_aside(self, keys: Sequence[str]) -> None:
        """Hide jobs of a stage that was not completed, until they are added again."""
        with self.transaction() as connection:
            connection.executemany("UPDATE jobs SET stage = ? WHERE key = ?", [(UNDELIVERED, key) for key in keys])

    def entries(self, stage: str | None = None, *, records: bool = True, hidden: bool = False) -> list[Entry]:
        """Return jobs in the order in which they were noted.

        records: with what came of them, which is long. hidden: with those that were set aside
        """
        columns = f"key, stage, setting, validation, test, seed, status, starts, {'record' if records else 'NULL'}"
        where, value = ("stage != ?", "" if hidden else UNDELIVERED) if stage is None else ("stage = ?", stage)
        rows = self._ask(f"SELECT {columns} FROM jobs WHERE {where} ORDER BY number, key", (value,))
        return [self._entry(*row) for row in rows]

    @cached_property
    def _record(self) -> Callable[[str], Record]:
        """Return a reader of records that reads equal text once, because a run asks for all its records again and
        again."""
        from ..jobs import Record

        return lru_cache(REMEMBERED)(partial(schema.from_json, Record))

    def _entry(
        self, key: str, stage: str, setting: str, validation: int, test: int, seed: int, status: str, starts: int,
        record: str | None,
    ) -> Entry:  # fmt: skip
        """Make a job from a row, which is checked like a stranger's: an invalid one is refused in one line."""
        from ..settings import Setting

        try:
            parsed = None if record is None else self._record(record)
            entry = Entry(key, stage, Setting.from_json(setting), validation, test, seed, status, starts, parsed)
        except UserError as error:
            raise UserError(
                f"the database {self.path} has a job with {error} (key {str(key)[:60]!r}); {REMEDY}"
            ) from None
        return entry

    def record(self, key: str) -> Record | None:
        """Return the record of a job, if it is finished."""
        ((text,),) = self._ask("SELECT record FROM jobs WHERE key = ?", (key,))
        return None if text is None else self._record(text)

    def failures(self) -> list[tuple[dict[str, Any], str]]:
        """Return setting and reason of every failed job, read without the types of either: torch takes seconds."""
        rows = self._ask(
            "SELECT setting, record FROM jobs WHERE status = 'failed' AND stage != ? ORDER BY number, key",
            (UNDELIVERED,),
        )
        try:
            return [(json.loads(setting), str(json.loads(record)["failure"])) for setting, record in rows]
        except (ValueError, LookupError, TypeError) as error:
            raise DamagedDatabase(self.path, f"a failed job has no {error}") from None

    def statuses(self) -> dict[str, str]:
        return dict(self._ask("SELECT key, status FROM jobs"))

    def counts(self) -> dict[str, int]:
        return dict(self._ask("SELECT status, count(*) FROM jobs WHERE stage != ? GROUP BY status", (UNDELIVERED,)))

    def made_with(self) -> dict[str, str]:
        """Return the versions that most fits were made with, and as "other versions" how others differ, if any."""
        known = self.require("versions", list[dict[str, str]])
        fits = dict(self._ask("SELECT versions, count(*) FROM jobs WHERE status = 'done' GROUP BY versions"))
        place = max(range(len(known)), key=lambda k: fits.get(k, 0))
        changed = [
            ", ".join(f"{name} {version}" for name, version in versions.items() if version != known[place].get(name))
            + f" ({fits[k]} of {sum(fits.values())} fits)"
            for k, versions in enumerate(known)
            if k != place and fits.get(k)
        ]
        return known[place] | ({"other versions": "; ".join(changed)} if changed else {})

    def stage_words(self) -> str:
        """Return the stages that jobs are left of, as progress and status call them."""
        left = "SELECT stage, sum(status NOT IN ('done', 'failed')) FROM jobs GROUP BY stage ORDER BY min(number)"
        stages = dict(self._ask(left))
        words = STAGES if "search" in stages else STAGES | {"folds": "every fold"}
        return ", ".join(words.get(str(stage), str(stage)) for stage, n in stages.items() if n)

    def begin(self, keys: Sequence[str]) -> None:
        """Mark jobs as started from their first epoch."""
        with self.transaction() as connection:
            connection.executemany(
                "UPDATE jobs SET status = 'running', starts = starts + 1 WHERE key = ?", [(key,) for key in keys]
            )

    def finish(self, key: str, record: Record, tensors: bytes) -> None:
        """Store scores and weights of a job that has ended, well or badly, in one transaction."""
        status = "done" if record.failure is None else "failed"
        with self.transaction() as connection:
            connection.execute(
                "UPDATE jobs SET status = ?, record = ?, tensors = ?, versions = ? "
                "WHERE key = ? AND status NOT IN ('done', 'failed')",
                (status, schema.to_json(record), tensors, self.versions, key),
            )

    def tensors(self, key: str) -> bytes:
        """Return the weights of a finished job; empty if it left none."""
        ((blob,),) = self._ask("SELECT tensors FROM jobs WHERE key = ?", (key,))
        return blob if isinstance(blob, bytes) else b""

    def open_populations(self) -> list[OpenPopulation]:
        """Return the populations that have not ended, the oldest first, without those that were set aside."""
        rows = self._ask("SELECT number, keys FROM populations WHERE status != 'done' ORDER BY number")
        hidden = {key for (key,) in self._ask("SELECT key FROM jobs WHERE stage = ?", (UNDELIVERED,))}
        every = [OpenPopulation(n, self._checked(f"population {n}", list[str], keys)) for n, keys in rows]
        return [population for population in every if hidden.isdisjoint(population.keys)]

    def add_populations(self, compositions: Sequence[Sequence[str]]) -> None:
        with self.transaction() as connection:
            connection.executemany(
                "INSERT INTO populations (keys) VALUES (?)", [(json.dumps(list(keys)),) for keys in compositions]
            )

    def end_population(self, number: int) -> None:
        with self.transaction() as connection:
            connection.execute("UPDATE populations SET status = 'done' WHERE number = ?", (number,))

    def halve_population(self, number: int, first: Sequence[str], second: Sequence[str]) -> None:
        """Replace a population by two: the first keeps its number, and with it its turn; the second comes last."""
        with self.transaction() as connection:
            connection.execute("UPDATE populations SET keys = ? WHERE number = ?", (json.dumps(list(first)), number))
            connection.execute("INSERT INTO populations (keys) VALUES (?)", (json.dumps(list(second)),))


def entry_key(setting: Setting, first: int, second: int, seed: int) -> str:
    """Return the key of a training: the pair that is held out has no order."""
    return f"{setting.key}-{min(first, second)}-{max(first, second)}-{seed}"


def check_entries(database: RunDatabase, entries: Sequence[Entry], n_groups: int) -> None:
    """Raise unless the jobs of a run database agree with the recordings and with its populations.

    n_groups: of people who are held out together
    """
    for entry in entries:
        if not _is_sound(entry, n_groups):
            raise UserError(f"the database {database.path} has a damaged job (key {str(entry.key)[:60]!r}); {REMEDY}")
    known = database.statuses().keys()
    for number, keys in database.open_populations():
        if not set(keys) <= known:
            raise UserError(
                f"population {number} of the database {database.path} has jobs that are not listed; {REMEDY}"
            )


def _is_sound(entry: Entry, n_groups: int) -> bool:
    record, is_alone = entry.record, entry.validation == n_groups  # nobody validates: see Run.folds
    return (
        all(isinstance(n, int) and 0 <= n < 2**63 for n in (*entry.held_out, entry.seed, entry.starts))
        and entry.validation != entry.test
        and (is_alone or entry.validation < n_groups)
        and entry.test < n_groups
        and entry.key == entry_key(entry.setting, *entry.held_out, entry.seed)
        and entry.status in STATUSES
        and (record is not None) == (entry.status in FINISHED)
        and (record is None or is_alone or record.swapped is not None)
    )
