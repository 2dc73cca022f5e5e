"""The ledger: every job of a run and what came of it, on disk the moment it is known (SQLite, WAL)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UserError

SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    key TEXT PRIMARY KEY, number INTEGER NOT NULL, stage TEXT NOT NULL, setting TEXT NOT NULL,
    validation INTEGER NOT NULL, test INTEGER NOT NULL, seed INTEGER NOT NULL,
    status TEXT NOT NULL DEFAULT 'waiting', starts INTEGER NOT NULL DEFAULT 0,
    population INTEGER, record TEXT, tensors BLOB
);
CREATE TABLE IF NOT EXISTS populations (
    number INTEGER PRIMARY KEY, keys TEXT NOT NULL, prune_at INTEGER, status TEXT NOT NULL DEFAULT 'waiting'
);
"""
FINISHED = ("done", "failed")


@dataclass(frozen=True)
class Entry:
    """A job as the ledger knows it. Subjects are positions in recordings.subjects."""

    key: str
    stage: str
    setting: str  # Setting.to_json()
    validation: int
    test: int
    seed: int
    status: str = "waiting"  # waiting, running, done, failed
    starts: int = 0  # how often training began from the first epoch
    record: dict[str, Any] | None = None  # scores, history, confusion, seconds


class OpenPopulation(NamedTuple):
    number: int
    keys: list[str]  # of its jobs
    prune_at: int | None  # the epoch after which the worse half of its censored members is given up


class Ledger:
    """One SQLite file. Every method that changes it is one transaction."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if not create and not path.exists():
            raise UserError(f"{path.parent} is not a run: it has no {path.name}; start one with autotransfer run")
        try:
            self.connection = sqlite3.connect(path, isolation_level=None, timeout=30)
            self.connection.execute("PRAGMA journal_mode=WAL")
            self.connection.execute("PRAGMA synchronous=FULL")
            if create:
                self.connection.executescript(SCHEMA)
            self.connection.execute("SELECT count(*) FROM jobs").fetchone()
        except sqlite3.DatabaseError as error:
            raise UserError(f"the ledger {path} cannot be read ({error}); restore it or start a new run") from None

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield self.connection
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    # facts about the run

    def remember(self, **facts: Any) -> None:
        with self.transaction() as connection:
            for name, value in facts.items():
                connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value)))

    def recall(self, name: str, default: Any = None) -> Any:
        row = self.connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return default if row is None else json.loads(row[0])

    # jobs

    def add(self, entries: Iterable[Entry]) -> None:
        """Note jobs to be done; those already known stay as they are."""
        with self.transaction() as connection:
            (number,) = connection.execute("SELECT count(*) FROM jobs").fetchone()
            for offset, entry in enumerate(entries):
                connection.execute(
                    "INSERT OR IGNORE INTO jobs (key, number, stage, setting, validation, test, seed) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (entry.key, number + offset, entry.stage, entry.setting, entry.validation, entry.test, entry.seed),
                )

    def entries(self, stage: str | None = None) -> list[Entry]:
        """Jobs in the order in which they were noted."""
        where, values = ("", ()) if stage is None else (" WHERE stage = ?", (stage,))
        rows = self.connection.execute(
            "SELECT key, stage, setting, validation, test, seed, status, starts, record FROM jobs"
            + where
            + " ORDER BY number, key",
            values,
        )
        names = ("key", "stage", "setting", "validation", "test", "seed", "status", "starts")
        return [
            Entry(**dict(zip(names, row, strict=False)), record=None if row[8] is None else json.loads(row[8]))
            for row in rows
        ]

    def statuses(self) -> dict[str, str]:
        return dict(self.connection.execute("SELECT key, status FROM jobs"))

    def counts(self) -> dict[str, int]:
        return dict(self.connection.execute("SELECT status, count(*) FROM jobs GROUP BY status"))

    def begin(self, keys: Sequence[str]) -> None:
        """These jobs start from their first epoch."""
        with self.transaction() as connection:
            connection.executemany(
                "UPDATE jobs SET status = 'running', starts = starts + 1 WHERE key = ?", [(key,) for key in keys]
            )

    def finish(self, key: str, record: dict[str, Any], tensors: bytes) -> None:
        """A job has ended, well or badly: scores and weights in one transaction."""
        status = "done" if record.get("failure") is None else "failed"
        with self.transaction() as connection:
            connection.execute(
                "UPDATE jobs SET status = ?, record = ?, tensors = ? "
                "WHERE key = ? AND status NOT IN ('done', 'failed')",
                (status, json.dumps(record), tensors, key),
            )

    def tensors(self, key: str) -> bytes:
        (blob,) = self.connection.execute("SELECT tensors FROM jobs WHERE key = ?", (key,)).fetchone()
        return bytes(blob)

    # populations

    def open_populations(self) -> list[OpenPopulation]:
        """Populations that have not ended, the oldest first."""
        rows = self.connection.execute(
            "SELECT number, keys, prune_at FROM populations WHERE status != 'done' ORDER BY number"
        )
        return [OpenPopulation(number, json.loads(keys), prune_at) for number, keys, prune_at in rows]

    def add_populations(self, compositions: Sequence[Sequence[str]], prune_at: int | None = None) -> None:
        """prune_at: the epoch after which the worse half of their censored members is given up."""
        with self.transaction() as connection:
            connection.executemany(
                "INSERT INTO populations (keys, prune_at) VALUES (?, ?)",
                [(json.dumps(list(keys)), prune_at) for keys in compositions],
            )

    def end_population(self, number: int) -> None:
        with self.transaction() as connection:
            connection.execute("UPDATE populations SET status = 'done' WHERE number = ?", (number,))

    def replace_population(self, number: int, compositions: Sequence[Sequence[str]]) -> None:
        """Others take its place, pruned when it would have been."""
        with self.transaction() as connection:
            (prune_at,) = connection.execute("SELECT prune_at FROM populations WHERE number = ?", (number,)).fetchone()
            connection.execute("UPDATE populations SET status = 'done' WHERE number = ?", (number,))
            connection.executemany(
                "INSERT INTO populations (keys, prune_at) VALUES (?, ?)",
                [(json.dumps(list(keys)), prune_at) for keys in compositions],
            )
