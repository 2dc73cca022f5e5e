"""A ledger that is damaged, locked or full of lies: what can be saved is saved, the rest is told in one line."""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from autotransfer.errors import UserError
from autotransfer.runs import ledger as ledger_module
from autotransfer.runs import salvage as salvage_module
from autotransfer.runs.ledger import Entry, Ledger
from autotransfer.runs.pages import read_rows
from autotransfer.runs.salvage import read, salvage
from autotransfer.runs.sqlite_errors import DamagedLedger, explained
from autotransfer.settings import Setting
from faults import assert_one_line, assert_same_run, call, entries_of, interrupted_run, tampered, whole_run
from tiny import tiny_file

PAGE = 4096


def filled(path: Path, jobs: int = 30) -> Ledger:
    """A ledger as a run leaves it: rows of many sizes, changed facts, ended populations."""
    ledger = Ledger(path, create=True)
    ledger.remember(options={"source": "here"}, fingerprint="f" * 32, complete=True)
    generator = random.Random(0)
    entries = [Entry(f"key{n}", "search", Setting().to_json(), 0, 1 + n, -n) for n in range(jobs)]
    ledger.add(entries)
    ledger.add_populations([[entry.key for entry in entries[start : start + 5]] for start in range(0, jobs, 5)], 3)
    for n, entry in enumerate(entries[: jobs - 3]):
        record = {"failure": None if n % 4 else "nan", "history": [generator.random() for _ in range(n * n)]}
        ledger.begin([entry.key])
        ledger.finish(entry.key, record, generator.randbytes(generator.choice([0, 10, 3000, 4100, 30_000])))
        ledger.remember(tpe_batches=[[n, "x" * n]] * n)
    ledger.end_population(1)
    return ledger


# pages


@pytest.mark.parametrize("flushed", [True, False])
def test_pages_are_read_as_sqlite_reads_them(tmp_path: Path, flushed: bool) -> None:
    """Also what is still in the write-ahead log, and rows that go on in other pages."""
    ledger = filled(tmp_path / "ledger.sqlite")
    if flushed:
        ledger.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    found: dict[int, list[tuple[object, ...]]] = {}
    for _, columns in read_rows(tmp_path / "ledger.sqlite"):
        found.setdefault(len(columns), []).append(tuple(columns))
    for table, width in (("facts", 3), ("jobs", 12), ("populations", 5)):
        rows = ledger.connection.execute(f"SELECT * FROM {table}").fetchall()
        if table == "populations":  # SQLite keeps the number of a population as the id of the row
            rows = [(None, *row[1:]) for row in rows]
        assert set(rows) <= set(found[width]), table
    assert os.path.getsize(tmp_path / "ledger.sqlite") > 20 * PAGE or not flushed


def test_everything_is_saved_from_a_ledger_without_a_fault(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "ledger.sqlite")
    before, facts = ledger.entries(), ledger.facts()
    opened = ledger.open_populations()
    ledger.close()
    assert "27 finished jobs were saved, 3 known jobs have to be trained" in salvage(tmp_path / "ledger.sqlite")
    again = Ledger(tmp_path / "ledger.sqlite")
    again.check()
    assert again.entries() == before
    facts.pop("complete")  # to be stated again by the procedure
    assert again.facts() == facts
    assert again.open_populations() == opened


@pytest.mark.parametrize("seed", range(12))
def test_no_damaged_row_is_taken_and_no_sound_one_lost(tmp_path: Path, seed: int) -> None:
    """Random damage: every row that is saved is one that was written."""
    path = tmp_path / "ledger.sqlite"
    ledger = filled(path)
    written = {entry.key: entry for entry in ledger.entries()}
    ledger.close()
    generator = random.Random(seed)
    content = bytearray(path.read_bytes())
    pages = len(content) // PAGE
    for _ in range(1 + seed % 4):
        start = generator.randrange(1, pages) * PAGE
        if seed % 2:
            content[start + generator.randrange(PAGE)] ^= 1 << generator.randrange(8)
        else:
            content[start : start + PAGE] = generator.randbytes(PAGE)
    if seed % 3 == 0:
        content[:PAGE] = bytes(PAGE)  # the header and the schema
    path.write_bytes(content)
    if seed % 3 == 0 or seed % 2 == 0:
        with pytest.raises(DamagedLedger):
            Ledger(path).check()
    saved = read(path)
    assert len(saved.jobs) >= len(written) // 2, "one bad page must not cost them all"
    assert all(set(keys) <= set(saved.jobs) for keys, _, _ in saved.populations.values())
    for key, row in saved.jobs.items():
        expected = written[key]
        record = None if row[9] is None else json.loads(row[9])
        assert record in (expected.record, None)
        assert row[3] == expected.setting


def test_a_changed_bit_in_a_row_is_noticed(tmp_path: Path) -> None:
    """SQLite itself has no checksums: the weights or scores would be used as they are."""
    path = tmp_path / "ledger.sqlite"
    filled(path).close()
    whole = path.read_bytes()
    for needle in (b'"source": "here"', b'"failure": null', b"key7", b"search"):
        content = bytearray(whole)
        content[whole.index(needle) + 2] ^= 1
        path.write_bytes(content)
        ledger = Ledger(path)
        with pytest.raises(DamagedLedger, match=r"cannot be read.*autotransfer resume"):
            ledger.check()
        ledger.close()
    path.write_bytes(whole)
    Ledger(path).check()


def test_a_kill_during_salvage_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = filled(path)
    ledger.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    ledger.finish("key28", {"failure": None}, b"weights")
    before = ledger.entries()
    folder = tmp_path.with_name(tmp_path.name + "-copy")
    shutil.copytree(tmp_path, folder)  # with a log that was never closed
    ledger.close()
    path = folder / "ledger.sqlite"
    content = bytearray(path.read_bytes())
    content[:100] = bytes(100)
    path.write_bytes(content)

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    for name in ("write", "_put_in_place"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(salvage_module, name, killed)
            with pytest.raises(Killed):
                salvage(path)
        assert path.exists()
    salvage_module._put_in_place(path)
    again = Ledger(path)
    again.check()
    assert again.entries() == before
    assert [file.name for file in sorted(folder.glob("ledger.damaged*sqlite"))] == [
        "ledger.damaged-1.sqlite", "ledger.damaged-2.sqlite",
    ]  # fmt: skip


def test_an_old_ledger_is_sealed_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = filled(path)
    entries, facts, populations = ledger.entries(), ledger.facts(), ledger.open_populations()
    weights = ledger.tensors("key3")
    ledger.close()
    connection = sqlite3.connect(path)
    for table in ("facts", "jobs", "populations"):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN seal")
    connection.execute("ALTER TABLE jobs ADD COLUMN population INTEGER")
    connection.commit()
    connection.close()
    again = Ledger(path)
    again.check()
    assert (again.entries(), again.facts(), again.open_populations()) == (entries, facts, populations)
    assert again.tensors("key3") == weights


# SQLite's errors


def test_errors_of_the_database_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"

    def raised(code: int) -> type[BaseException]:
        error = sqlite3.OperationalError("some words")
        error.sqlite_errorcode = code
        try:
            with explained(path):
                raise error
        except Exception as found:
            return type(found)

    assert raised(sqlite3.SQLITE_FULL) is OSError
    assert raised(sqlite3.SQLITE_IOERR_WRITE) is OSError
    assert raised(sqlite3.SQLITE_IOERR_READ) is DamagedLedger
    assert raised(sqlite3.SQLITE_CORRUPT_INDEX) is DamagedLedger
    assert raised(sqlite3.SQLITE_NOTADB) is DamagedLedger
    assert raised(sqlite3.SQLITE_READONLY_DIRECTORY) is UserError
    assert raised(sqlite3.SQLITE_BUSY) is UserError
    assert raised(sqlite3.SQLITE_ERROR) is sqlite3.OperationalError


def test_a_ledger_that_others_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "PATIENCE", 0.05)
    ledger = filled(tmp_path / "ledger.sqlite", 5)
    ledger.connection.execute("BEGIN IMMEDIATE")
    other = Ledger(tmp_path / "ledger.sqlite")
    with pytest.raises(UserError, match="is locked by another program; close that program"):
        other.begin(["key4"])
    ledger.connection.execute("ROLLBACK")
    other.begin(["key4"])
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "ledger.sqlite").symlink_to(tmp_path / "ledger.sqlite")
    with pytest.raises(UserError, match="is a link"):
        Ledger(tmp_path / "link" / "ledger.sqlite")


# whole runs


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_file(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Path:
    folder = whole_run(tmp_path_factory.mktemp("undisturbed") / "run", source)
    assert call("report", folder).code == 0
    gc.collect()  # closes the ledger
    assert not (folder / "ledger.sqlite-wal").exists()
    return folder


@pytest.fixture
def run(tmp_path: Path, undisturbed: Path) -> Path:
    """A finished run, to be damaged."""
    return Path(shutil.copytree(undisturbed, tmp_path / "run"))


def overwritten(start: float, stop: float, content: bytes = b"\xa5") -> Callable[[Path], None]:
    """Garbage between two shares of the file, in whole pages."""

    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        pages = len(data) // PAGE
        first, last = int(start * pages) * PAGE, max(int(stop * pages), int(start * pages) + 1) * PAGE
        data[first:last] = (content * (last - first))[: last - first]
        path.write_bytes(data)

    return damage


def header(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(random.Random(0).randbytes(100) + data[100:])


def blob(path: Path) -> None:
    """One bit of the weights of one job."""
    connection = sqlite3.connect(path)
    (tensors,) = connection.execute("SELECT tensors FROM jobs LIMIT 1 OFFSET 20").fetchone()
    connection.close()
    data = bytearray(path.read_bytes())
    data[data.index(tensors[-100:]) + 50] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "header": header,
    "first page": overwritten(0, 0, bytes(1)),
    "second half": overwritten(0.5, 1),
    "a page in the middle": overwritten(0.6, 0.6, b"\x0d"),
    "scattered": lambda path: [overwritten(x / 10, x / 10, bytes(1))(path) for x in (4, 5, 7, 9)],
    "truncated": lambda path: os.truncate(path, path.stat().st_size * 2 // 3),
    "one bit of the weights": blob,
}


@pytest.mark.faults
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_run_with_a_damaged_ledger_comes_to_the_same_end(run: Path, undisturbed: Path, damage: str) -> None:
    path = run / "ledger.sqlite"
    before = {entry.key: entry.record["seconds"] for entry in Ledger(undisturbed / "ledger.sqlite").entries()}
    DAMAGES[damage](path)
    damaged = path.read_bytes()
    result = call("resume", run)
    assert result.code == 0, result
    assert (run / "ledger.damaged-1.sqlite").read_bytes() == damaged
    (line,) = [line for line in result.out.splitlines() if "ledger was damaged" in line]
    words = line.split()
    saved, again = int(words[words.index("finished") - 1]), int(words[words.index("known") - 1])
    assert "kept as ledger.damaged-1.sqlite" in line
    assert saved >= len(before) / 4
    assert saved + again == len(before)
    ledger = Ledger(path)
    ledger.check()
    assert {entry.key for entry in ledger.entries() if entry.status == "done"} == set(before)
    kept = sum(entry.record["seconds"] == before[entry.key] for entry in ledger.entries())
    assert kept == saved, "what was saved must not be trained again"
    assert_same_run(run, undisturbed)
    assert "is finished" in call("resume", run).out


@pytest.mark.faults
def test_a_run_in_the_middle_with_a_damaged_ledger(tmp_path: Path, source: Path, undisturbed: Path) -> None:
    """Its checkpoint goes on being used where its population was saved."""
    folder = interrupted_run(tmp_path / "run", source, checkpoints=20)
    before = {entry.key: entry.starts for entry in entries_of(folder, tmp_path / "copy")}
    header(folder / "ledger.sqlite")
    assert call("resume", folder).code == 0
    after = {entry.key: entry.starts for entry in Ledger(folder / "ledger.sqlite").entries()}
    assert {key: starts for key, starts in before.items() if starts}.items() <= after.items()
    assert_same_run(folder, undisturbed)


@pytest.mark.faults
def test_rows_that_are_gone_come_back(tmp_path: Path, source: Path, undisturbed: Path) -> None:
    """A finished job and a population that has not begun, lost while another population is open."""
    folder = interrupted_run(tmp_path / "run", source, checkpoints=20)
    with tampered(folder / "ledger.sqlite") as connection:
        connection.execute("DELETE FROM jobs WHERE number = 2")
        connection.execute("DELETE FROM populations WHERE number = (SELECT max(number) FROM populations)")
        (opened,) = connection.execute("SELECT count(*) FROM populations WHERE status = 'waiting'").fetchone()
        assert opened > 1
    assert call("resume", folder).code == 0
    assert_same_run(folder, undisturbed)


@pytest.mark.faults
def test_a_ledger_that_does_not_say_what_the_run_is(run: Path) -> None:
    path = run / "ledger.sqlite"
    for content in (b"", b"not a database", random.Random(0).randbytes(50_000)):
        path.write_bytes(content)
        assert_one_line(call("status", run), 2, "cannot be read", f"autotransfer resume {run}")
        assert_one_line(call("report", run), 2, "cannot be read")
        assert_one_line(call("resume", run), 2, "is damaged, and what the run was asked to do cannot be read", "--out")
        assert path.read_bytes() == content, "what cannot be saved is left alone"
        assert not list(run.glob("ledger.damaged*"))
    path.unlink()
    for command in ("status", "report", "resume"):
        assert_one_line(call(command, run), 2, "is not a run: it has no ledger.sqlite")


def record(**changes: object) -> Callable[[sqlite3.Connection], None]:
    def change(connection: sqlite3.Connection) -> None:
        key, text = connection.execute("SELECT key, record FROM jobs WHERE number = 3").fetchone()
        values = json.loads(text) | changes
        connection.execute("UPDATE jobs SET record = ? WHERE key = ?", (json.dumps(values), key))

    return change


def jobs(assignment: str, *values: object) -> Callable[[sqlite3.Connection], None]:
    return lambda connection: connection.execute(f"UPDATE jobs SET {assignment} WHERE number = 3", values)


def fact(name: str, value: object) -> Callable[[sqlite3.Connection], None]:
    text = value if isinstance(value, bytes) else json.dumps(value)
    return lambda connection: connection.execute(
        "INSERT OR REPLACE INTO facts VALUES (?, ?, '')", (name, text.decode() if isinstance(text, bytes) else text)
    )


def option(name: str, value: object) -> Callable[[sqlite3.Connection], None]:
    def change(connection: sqlite3.Connection) -> None:
        (text,) = connection.execute("SELECT value FROM facts WHERE name = 'options'").fetchone()
        fact("options", json.loads(text) | {name: value})(connection)

    return change


OUTSIDE = "/tmp/../tmp/autotransfer-outside"
LIES = {
    "unknown field": jobs("setting = ?", '{"method": "mmd", "power": 9}'),
    "unknown method": jobs("setting = ?", '{"method": "magic"}'),
    "setting is a list": jobs("setting = ?", "[1, 2]"),
    "setting is a number": jobs("setting = 7"),
    "setting has wrong types": jobs("setting = ?", '{"max_epochs": "many"}'),
    "setting is no JSON": jobs("setting = ?", "{"),
    "setting is nested deeply": jobs("setting = ?", "[" * 100_000),
    "setting needs an age": jobs("setting = ?", json.dumps({"max_epochs": 10**15})),
    "subject is text": jobs("validation = 'nobody'"),
    "subject does not exist": jobs("test = 99"),
    "subject is negative": jobs("test = -1"),
    "seed is a blob": jobs("seed = ?", b"\x00\xff"),
    "key is a path": jobs("key = ?", OUTSIDE),
    "status is another": jobs("status = 'great'"),
    "record is NaN": jobs("record = 'NaN'"),
    "record is a list": jobs("record = '[]'"),
    "record is no JSON": jobs("record = '{'"),
    "record is missing": jobs("record = NULL"),
    "score is NaN": record(validation_score=float("nan")),
    "score is text": record(test_score="high"),
    "score is above 1": record(test_score=7.0),
    "seconds are negative": record(seconds=-1.0),
    "history is missing": record(history={}),
    "twin is missing": record(swapped=None),
    "confusion is text": record(test_confusion=[["a"]]),
    "options are a list": fact("options", [1]),
    "options are no JSON": fact("options", b"{"),
    "epochs are text": option("epochs", "many"),
    "epochs are negative": option("epochs", -4),
    "grid is unknown": option("grid", "../../etc/passwd"),
    "encoder is unknown": option("encoder", "os:system"),
    "device is unknown": option("device", OUTSIDE),
    "population is text": option("population", {"a": 1}),
    "source is missing": option("source", OUTSIDE),
    "source is a number": option("source", 3),
    "fingerprint is a list": fact("fingerprint", []),
    "started is text": fact("started", "yesterday"),
    "story is text": fact("weights story", "once"),
    "population lists strangers": lambda connection: connection.execute(
        "UPDATE populations SET keys = ?, status = 'waiting' WHERE number = 1", (json.dumps([OUTSIDE]),)
    ),
    "population is no list": lambda connection: connection.execute(
        "UPDATE populations SET keys = '7', status = 'waiting' WHERE number = 1"
    ),
}


CONTRADICTIONS = ("record is missing", "status is another")  # row and mark disagree: damage, which can be repaired
UNSEEN_BY_STATUS = (
    "epochs are text", "epochs are negative", "grid is unknown", "encoder is unknown",
    "device is unknown", "source is missing", "source is a number", "population lists strangers",
    "population is no list",
)  # fmt: skip


@pytest.mark.faults
@pytest.mark.parametrize("lie", LIES)
def test_a_ledger_that_lies_is_refused_in_one_line(run: Path, undisturbed: Path, lie: str) -> None:
    """Every seal is right: these are not accidents."""
    with tampered(run / "ledger.sqlite") as connection:
        connection.execute("UPDATE facts SET value = 'false' WHERE name = 'complete'")
        LIES[lie](connection)
    outside = {path: path.stat().st_mtime_ns for path in run.parent.rglob("*") if not path.is_relative_to(run)}
    commands = ["report", "status", "resume"]
    if lie in UNSEEN_BY_STATUS:
        commands.remove("status")
        assert call("status", run).code == 0
    if lie in CONTRADICTIONS:
        commands.remove("resume")
    for command in commands:
        result = call(command, run)
        assert_one_line(result, 2)
        assert len(result.err) < 1000
    if lie in CONTRADICTIONS:
        left = 1 if lie == "record is missing" else 0
        assert f"{left} known jobs have to be trained" in call("resume", run).out
        assert_same_run(run, undisturbed)
    assert {path: path.stat().st_mtime_ns for path in outside} == outside
    assert not Path(OUTSIDE).exists()


@pytest.mark.faults
def test_a_search_is_not_continued_in_a_database_that_is_not_there(run: Path, tmp_path: Path) -> None:
    with tampered(run / "ledger.sqlite") as connection:
        connection.execute("UPDATE facts SET value = 'false' WHERE name = 'complete'")
        option("search", "tpe")(connection)
        option("storage", f"sqlite:///{tmp_path / 'elsewhere.sqlite'}")(connection)
    assert_one_line(call("resume", run), 2, "elsewhere.sqlite", "is not there")
    assert not (tmp_path / "elsewhere.sqlite").exists()
