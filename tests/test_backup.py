"""A ledger that is damaged, locked or full of lies: `resume` goes on from the copy beside it, or says one line."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from autotransfer import schema
from autotransfer.errors import UserError
from autotransfer.runs import executor
from autotransfer.runs import ledger as ledger_module
from autotransfer.runs.data_facts import Data
from autotransfer.runs.ledger import Ledger, backup_of
from autotransfer.runs.lock import Lock
from autotransfer.runs.options import RunOptions
from autotransfer.runs.recovery import reopen
from autotransfer.runs.run import Run
from autotransfer.runs.sqlite_errors import DamagedLedger, explain_errors
from autotransfer.search.procedure import conduct
from faults import (
    assert_one_line,
    assert_same_run,
    call,
    few_settings,
    finish,
    interrupted_run,
    quiet,
    tampered,
    whole_run,
)
from tiny import tiny, tiny_file

pytestmark = pytest.mark.usefixtures("brief_answers")

SHORT = {"epochs": 3, "population": 3}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, and one in the middle of its second stage."""
    folder = tmp_path_factory.mktemp("backup")
    source = tiny_file(folder, n_subjects=3)
    with few_settings():
        whole_run(folder / "finished", source, **SHORT, search="halving")
        interrupted_run(folder / "interrupted", source, checkpoints=4, **SHORT, search="halving")
    return folder


@pytest.fixture
def run(tmp_path: Path, home: Path, request: pytest.FixtureRequest) -> Path:
    return Path(shutil.copytree(home / request.param, tmp_path / "run"))


def resumed(folder: Path) -> list[str]:
    """Go on to the end; what was said of the ledger."""
    told: list[str] = []
    with Lock(folder), few_settings():
        opened = reopen(folder, None, told.append)
        with closing(opened.ledger):
            conduct(opened, quiet, shown=False)
    return told


def one_bit(path: Path) -> None:
    """Of the weights of one job, which SQLite itself would not notice."""
    with closing(sqlite3.connect(path)) as connection:
        (tensors,) = connection.execute("SELECT tensors FROM jobs WHERE tensors IS NOT NULL").fetchone()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    data[data.index(tensors[-100:]) + 50] ^= 1
    path.write_bytes(data)


def scattered(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for place in random.Random(0).sample(range(len(data)), 200):
        data[place] ^= 0xFF
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "first page": lambda path: path.write_bytes(bytes(4096) + path.read_bytes()[4096:]),
    "scattered": scattered,
    "truncated": lambda path: os.truncate(path, path.stat().st_size * 2 // 3),
    "one bit of the weights": one_bit,
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(random.Random(0).randbytes(50_000)),
    "missing": lambda path: path.unlink(),
}


ONCE = [("finished", "interrupted")[place % 2] for place in range(len(DAMAGES))]  # the other one is in the slow suite


@pytest.mark.parametrize(
    ("run", "damage"),
    [
        pytest.param(state, damage, marks=[] if state == once else [pytest.mark.slow])
        for damage, once in zip(DAMAGES, ONCE, strict=True)
        for state in ("finished", "interrupted")
    ],
    indirect=["run"],
)
def test_a_run_with_a_damaged_ledger_comes_to_the_same_end(run: Path, home: Path, damage: str) -> None:
    path = run / "ledger.sqlite"
    DAMAGES[damage](path)
    damaged = path.read_bytes() if path.exists() else None
    if damage in ("first page", "empty", "garbage", "missing"):  # the others are found by checksums
        assert_one_line(call("status", run), 2, "ledger.sqlite")
    (line,) = resumed(run)
    kept = run / "ledger.damaged-1.sqlite"
    if damaged is None:
        assert "missing" in line
        assert not kept.exists()
    else:
        assert kept.name in line
        assert kept.read_bytes() == damaged
    assert_same_run(run, home / "finished")
    assert resumed(run) == [], "the second time nothing is wrong"
    DAMAGES["empty"](path)
    resumed(run)
    assert_same_run(run, home / "finished")


def test_a_ledger_is_sound_or_damaged_and_nothing_else(home: Path, tmp_path: Path) -> None:
    """Flipped bits, many of them where SQLite keeps its schema, some where it keeps nothing."""
    whole, path, damaged = (home / "finished" / "ledger.sqlite").read_bytes(), tmp_path / "ledger.sqlite", 0
    for seed in range(100):
        draw, data = random.Random(seed), bytearray(whole)
        for _ in range(draw.choice((5, 50, 500))):
            data[draw.randrange(draw.choice((100, 4096, 8192, len(data))))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        try:
            with closing(Ledger(path, read_only=True)) as ledger:
                ledger.check()
        except DamagedLedger:
            damaged += 1
    assert damaged > 80


def test_jobs_of_the_copy_are_not_trained_again(home: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(home / "interrupted", tmp_path / "run"))
    with closing(Ledger(backup_of(run / "ledger.sqlite"), read_only=True)) as copy:
        before = {entry.key: entry.starts for entry in copy.entries() if entry.record}
    assert before
    DAMAGES["empty"](run / "ledger.sqlite")
    resumed(run)
    with closing(Ledger(run / "ledger.sqlite")) as ledger:
        assert before.items() <= {entry.key: entry.starts for entry in ledger.entries()}.items()


@pytest.mark.parametrize("damage", DAMAGES)
def test_without_a_sound_copy_one_line_says_so(home: Path, tmp_path: Path, damage: str) -> None:
    run = Path(shutil.copytree(home / "finished", tmp_path / "run"))
    for path in (run / "ledger.sqlite", backup_of(run / "ledger.sqlite")):
        DAMAGES[damage](path)
    before = {path.name: path.read_bytes() for path in run.glob("ledger*.sqlite")}
    words = "is not a run" if damage == "missing" else "no sound copy"
    assert_one_line(call("resume", run), 2, words)
    assert {path.name: path.read_bytes() for path in run.glob("ledger*.sqlite")} == before, "left as it was"


def test_a_copy_without_a_ledger_is_not_overwritten(home: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(home / "finished", tmp_path / "run"))
    (run / "ledger.sqlite").unlink()
    with pytest.raises(UserError, match="already holds a run"):
        Run.create(run, RunOptions(source=str(home / "tiny.npz")))


def copied(ledger: Ledger, name: str) -> int | None:
    with closing(Ledger(backup_of(ledger.path), read_only=True)) as copy:
        copy.check()
        return copy.recall(name, int)


def test_the_copy_is_one_file_with_all_that_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite", create=True)
    ledger.remember(a=1)
    assert (tmp_path / "ledger.sqlite-wal").stat().st_size > 0, "or the log would not be tested"
    ledger.back_up()
    assert copied(ledger, "a") == 1
    assert {path.name for path in tmp_path.glob("*backup*")} == {"ledger.backup.sqlite"}
    ledger.remember(a=2)
    with monkeypatch.context() as patch:  # killed before the copy has its name
        patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ledger.back_up()
    assert copied(ledger, "a") == 1
    ledger.back_up()
    assert copied(ledger, "a") == 2


@pytest.mark.parametrize("full", ["on the way", "before"])
def test_a_run_does_not_end_for_want_of_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite", create=True)
    ledger.remember(a=1)
    ledger.back_up()
    ledger.remember(a=2)
    if full == "before":
        usage = shutil.disk_usage(tmp_path)._replace(free=10_000)
        monkeypatch.setattr(ledger_module.shutil, "disk_usage", lambda _: usage)
    else:
        monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    ledger.back_up()
    assert copied(ledger, "a") == 1
    assert not list(tmp_path.glob(".*"))


# SQLite's errors


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, OSError),
        (sqlite3.SQLITE_IOERR_WRITE, OSError),
        (sqlite3.SQLITE_IOERR_READ, DamagedLedger),
        (sqlite3.SQLITE_CORRUPT_INDEX, DamagedLedger),
        (sqlite3.SQLITE_NOTADB, DamagedLedger),
        (sqlite3.SQLITE_READONLY_DIRECTORY, UserError),
        (sqlite3.SQLITE_BUSY, UserError),
        (sqlite3.SQLITE_ERROR, sqlite3.OperationalError),
    ],
)
def test_errors_of_the_database_are_told_apart(code: int, kind: type[BaseException]) -> None:
    error = sqlite3.OperationalError("some words")
    error.sqlite_errorcode = code
    with pytest.raises(kind) as found, explain_errors(Path("ledger.sqlite")):
        raise error
    assert type(found.value) is kind


def test_a_ledger_that_others_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "PATIENCE", 0.05)
    ledger = Ledger(tmp_path / "ledger.sqlite", create=True)
    ledger.connection.execute("BEGIN IMMEDIATE")
    other = Ledger(tmp_path / "ledger.sqlite")
    with pytest.raises(UserError, match="is locked by another program"):
        other.remember(a=1)
    ledger.connection.execute("ROLLBACK")
    other.remember(a=1)


# lies: every checksum is right


def record(**changes: object) -> Callable[[sqlite3.Connection], object]:
    def change(connection: sqlite3.Connection) -> None:
        key, text = connection.execute("SELECT key, record FROM jobs WHERE number = 3").fetchone()
        values = json.loads(text) | changes
        connection.execute("UPDATE jobs SET record = ? WHERE key = ?", (json.dumps(values), key))

    return change


def jobs(assignment: str, *values: object) -> Callable[[sqlite3.Connection], object]:
    return lambda connection: connection.execute(f"UPDATE jobs SET {assignment} WHERE number = 3", values)


def populations(assignment: str) -> Callable[[sqlite3.Connection], object]:
    return lambda connection: connection.execute(f"UPDATE populations SET status = 'waiting', {assignment}")


def fact(name: str, text: str) -> Callable[[sqlite3.Connection], object]:
    return lambda connection: connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?, '')", (name, text))


def option(**changes: object) -> Callable[[sqlite3.Connection], object]:
    def change(connection: sqlite3.Connection) -> None:
        (text,) = connection.execute("SELECT value FROM facts WHERE name = 'options'").fetchone()
        fact("options", json.dumps(json.loads(text) | changes))(connection)

    return change


OUTSIDE = "/tmp/../tmp/autotransfer-outside"
OF_JOBS = {
    "unknown method": jobs("setting = ?", '{"method": "magic"}'),
    "setting is a number": jobs("setting = 7"),
    "setting is no JSON": jobs("setting = ?", "{"),
    "setting needs an age": jobs("setting = ?", json.dumps({"max_epochs": 10**15})),
    "subject is text": jobs("validation = 'nobody'"),
    "subject is negative": jobs("test = -1"),
    "seed is a blob": jobs("seed = ?", b"\x00\xff"),
    "key is a path": jobs("key = ?", OUTSIDE),
    "record is no JSON": jobs("record = '{'"),
    "score is NaN": record(validation_score=float("nan")),
    "score is text": record(test_score="high"),
    "twin is missing": record(swapped=None),
}
TOLD = schema.to_values(Data.of(tiny()))  # of data, as the ledger has it
OF_RUNS = {
    "subject does not exist": jobs("test = 99"),
    "options are a list": fact("options", "[1]"),
    "options are no JSON": fact("options", "{"),
    "epochs are text": option(epochs="many"),
    "grid is unknown": option(grid="../../etc/passwd"),
    "encoder is unknown": option(encoder="os:system"),
    "device is unknown": option(device=OUTSIDE),
    "source is a number": option(source=3),
    "fingerprint is a list": fact("fingerprint", "[]"),
    "data are a number": fact("data", "7"),
    "data are of one person": fact("data", json.dumps(TOLD | {"subjects": ["0"], "trials": [1]})),
    "data have people without trials": fact("data", json.dumps(TOLD | {"trials": [1]})),
    "population lists strangers": populations(f"keys = '{json.dumps([OUTSIDE])}'"),
    "population is no list": populations("keys = '7'"),
    "population is pruned at night": populations("prune_at = 'night'"),
}


def test_a_report_does_without_a_source_that_is_missing(home: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(home / "finished", tmp_path / "run"))
    with tampered(run / "ledger.sqlite") as connection:
        fact("complete", "false")(connection)
        option(source=OUTSIDE)(connection)
    assert call("report", run).code == 0
    assert_one_line(call("resume", run), 2, OUTSIDE)
    assert not Path(OUTSIDE).exists()


@pytest.mark.parametrize("lie", [*OF_JOBS, *OF_RUNS])
def test_a_ledger_that_lies_is_refused_in_one_line(home: Path, tmp_path: Path, lie: str) -> None:
    run = Path(shutil.copytree(home / "finished", tmp_path / "run"))
    with tampered(run / "ledger.sqlite") as connection:
        fact("complete", "false")(connection)
        (OF_JOBS | OF_RUNS)[lie](connection)
    before = set(run.iterdir())
    with few_settings():
        for command in ("report", "resume", *(["status"] if lie in OF_JOBS else [])):
            result = call(command, run)
            assert_one_line(result, 2)
            assert len(result.err) < 1000
    index = {run / "ledger.sqlite-wal", run / "ledger.sqlite-shm"}  # of whoever reads
    assert set(run.iterdir()) - index == before | {run / "lock"}, "nothing was begun"
    assert not Path(OUTSIDE).exists()


@pytest.mark.parametrize("contradiction", ["record = NULL", "status = 'great'"])
def test_a_row_that_contradicts_itself_is_damage(home: Path, tmp_path: Path, contradiction: str) -> None:
    run = Path(shutil.copytree(home / "finished", tmp_path / "run"))
    with tampered(run / "ledger.sqlite") as connection:
        jobs(contradiction)(connection)
    assert_one_line(call("report", run), 2)
    (line,) = resumed(run)
    assert "damaged" in line
    assert_same_run(run, home / "finished")


def test_a_checkpoint_whose_jobs_are_finished_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full in the moment between the last job of a population and the population's end."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder, source = tmp_path / "run", tiny_file(tmp_path, n_subjects=3)
    with few_settings():
        with monkeypatch.context() as patch:
            patch.setattr(executor, "CHECKPOINT_EVERY", -1.0)
            patch.setattr(Ledger, "end_population", full)
            with pytest.raises(OSError, match="No space"):
                whole_run(folder, source, population=100, epochs=2)
        assert list(folder.glob("*.checkpoint"))
        finish(folder)
    assert not list(folder.glob("*.checkpoint"))
