"""Run database, checkpoints, lock and saved models are whole or absent."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save

import autotransfer as at
from autotransfer import schema
from autotransfer.errors import UserError
from autotransfer.folds import make_fold
from autotransfer.jobs import Outcome
from autotransfer.recordings import save_npz
from autotransfer.runs.checkpoint import restore_population, save_checkpoint
from autotransfer.runs.database import Entry, RunDatabase
from autotransfer.runs.lock import Lock, is_in_use
from autotransfer.runs.options import resolve_options
from autotransfer.runs.run import RESERVED_NAMES, Run, check_unused
from autotransfer.training.train import train_population
from autotransfer.training.trainer import Trainer
from autotransfer.training.windows import prepare_windows
from faults import assert_one_line, call, few_settings
from test_schema import record
from tiny import auto_classifier, create_run, described, tiny, tiny_file


def entry(number: int = 0) -> Entry:
    return Entry(f"key{number}", "search", at.Setting(), 0, 1, 0)


def test_the_run_database_keeps_order_and_counts_starts(tmp_path: Path) -> None:
    database = RunDatabase(tmp_path / "run.sqlite", create=True)
    database.add([entry(2), entry(0)])
    database.add([entry(0), entry(1)])
    assert [e.key for e in database.entries()] == ["key2", "key0", "key1"]
    database.begin(["key0"])
    database.begin(["key0", "key1"])
    assert [e.starts for e in database.entries()] == [0, 2, 1]
    database.finish("key0", record(failure=None, test_score=0.5), b"weights")
    database.finish("key0", record(failure=None, test_score=0.9), b"other")  # what is finished stays
    database.finish("key1", record(failure="nan", test_score=1.0), b"")
    assert database.counts() == {"waiting": 1, "done": 1, "failed": 1}
    again = RunDatabase(tmp_path / "run.sqlite")
    assert {e.key: e.record and e.record.test_score for e in again.entries()} == {"key2": None, "key0": 0.5, "key1": 1}
    assert [e.record for e in again.entries(records=False)] == [None] * 3
    assert (again.tensors("key0"), again.tensors("key2")) == (b"weights", b"")


def test_the_run_database_stores_facts_and_populations(tmp_path: Path) -> None:
    database = RunDatabase(tmp_path / "run.sqlite", create=True)
    database.store_facts(a=[1, 2], b=None)
    assert database.load_fact("a", list[int]) == [1, 2]
    assert database.load_fact("c", int) is None
    with pytest.raises(UserError, match="has an invalid 'a'"):
        database.load_fact("a", list[str])
    assert database.open_populations() == []
    database.add_populations([["x", "y"], ["z"]])
    assert database.open_populations() == [(1, ["x", "y"]), (2, ["z"])]
    database.end_population(1)
    assert database.open_populations() == [(2, ["z"])]


def test_a_transaction_that_breaks_leaves_nothing(tmp_path: Path) -> None:
    database = RunDatabase(tmp_path / "run.sqlite", create=True)
    with pytest.raises(sqlite3.Error):
        database.add([entry(0), replace(entry(1), seed=object())])  # type: ignore[arg-type]
    assert database.entries() == []


HOLD = """
import sys
from pathlib import Path
from autotransfer.runs.lock import Lock
with Lock(Path(sys.argv[1])):
    print(flush=True)
    sys.stdin.read()
"""


def test_one_process_at_a_time_and_a_killed_one_does_not_block(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline()
        assert is_in_use(tmp_path)
        with pytest.raises(UserError, match=rf"in use by another process \(pid {process.pid}\)"), Lock(tmp_path):
            pass
        process.kill()
    assert not is_in_use(tmp_path)
    with Lock(tmp_path):
        pass


def jobs_of(recordings: at.Recordings, epochs: int = 5) -> list[at.Job]:
    settings = [
        at.Setting(max_epochs=epochs, batch_size=8),
        at.Setting(method="adversary", strength=0.3, max_epochs=epochs + 1, batch_size=8),
        at.Setting(method="began", mode="complementary", strength=0.3, max_epochs=epochs, batch_size=8),
        at.Setting(method="pairwise_mmd", pairs="bernoulli", strength=1, max_epochs=epochs + 2, batch_size=8),
    ]
    steady = at.Setting(schedule="constant", checkpoint="last", max_epochs=epochs + 2, batch_size=8, lr=0.1)
    settings += [steady, steady.replace(method="adversary", strength=0.3, batches="auto")]
    settings += [steady.replace(checkpoint="averaged", max_epochs=epochs)]
    return [at.Job(s, make_fold(recordings, v, t)) for s in settings for v, t in ((0, 1), (2, 1))]


def without_times(outcome: Outcome) -> str:
    own = outcome.record()
    return schema.to_json(replace(own, seconds=0.0, swapped=replace(own.swapped, seconds=0.0)))


@cache
def uninterrupted() -> dict[at.Job, Outcome]:
    recordings = tiny()
    jobs = jobs_of(recordings)
    return dict(zip(jobs, at.train(recordings, jobs, "cpu"), strict=True))


@pytest.mark.parametrize("stop", [5, *(pytest.param(epoch, marks=pytest.mark.slow) for epoch in (1, 3, 6))])
def test_a_checkpoint_continues_bit_for_bit(tmp_path: Path, stop: int) -> None:
    """Also after members have left, and with critics, draws, BEGAN's k and averages in flight."""
    recordings, whole = tiny(), uninterrupted()
    jobs = list(whole)
    lost = [known.history["validation_loss"] for job, known in whole.items() if job.setting.checkpoint == "last"]
    assert any(min(losses) < losses[-1] for losses in lost), "or the best epoch could pass for the last"
    windows = prepare_windows(recordings, jobs[0], device=torch.device("cpu"), dtype=torch.float32)
    names = {job: str(number) for number, job in enumerate(jobs)}
    path = tmp_path / "checkpoint"

    class Killed(Exception):
        pass

    def after_epoch(population: Trainer) -> None:
        if population.epoch == stop:
            save_checkpoint(path, population, [names[job] for job in population.jobs])
            raise Killed

    finished = []
    first = Trainer(jobs, windows)
    with pytest.raises(Killed):
        finished.extend(train_population(first, after_epoch=after_epoch))
    restored = restore_population({name: job for job, name in names.items()}, windows, path)
    population, keys = restored
    assert len(keys) + len(finished) == len(jobs)
    finished += list(train_population(population))
    assert len(finished) == len(jobs)
    for outcome in finished:
        known = whole[outcome.job]
        assert without_times(outcome) == without_times(known)
        for part in ("final_state", "state"):
            for name, tensor in getattr(known, part).items():
                assert torch.equal(tensor, getattr(outcome, part)[name]), (part, name)


def test_epochs_are_as_many_as_make_2500_steps(tmp_path: Path) -> None:
    recordings = tiny()  # 48 windows of 4 subjects: half of them train
    options = described(source="x", batch_size=4)
    assert resolve_options(options, recordings).max_epochs == 417, "six steps an epoch"
    assert resolve_options(described(), recordings).max_epochs == 500, "a step an epoch, at most 500"
    many = at.Recordings(np.zeros((8000, 1, 8)) + np.arange(8), np.arange(8000) % 2, np.arange(8000) // 2000)
    assert resolve_options(options, many).max_epochs == 10, "1000 steps an epoch, and no fewer than 10"
    assert resolve_options(described(batch_size=300), many).max_epochs == 193, (
        "13 steps: an incomplete batch is dropped"
    )
    assert resolve_options(described(max_epochs=3), many).max_epochs == 3
    assert resolve_options(described(grid="paper"), many).max_epochs == 500
    run = create_run(tmp_path / "run", replace(options, source=str(tiny_file(tmp_path))))
    assert run.options.max_epochs == 417
    assert Run.open(tmp_path / "run").options == run.options


def test_changed_sessions_and_columns_of_the_same_windows_are_noticed(tmp_path: Path) -> None:
    rec, day = tiny(), np.arange(48) // 2 % 2
    path = tmp_path / "data.npz"

    def write(**more: Any) -> None:
        save_npz(path, at.Recordings(rec.X, rec.y, rec.subject, sfreq=16, **more))

    columns = {"room": np.where(day, "a", "b"), "age": np.linspace(20, 30, 48)}
    write(session=day, columns=columns)
    run = create_run(tmp_path / "run", described(source=str(path)))
    run.database.close()

    def open_again() -> None:
        Run.open(tmp_path / "run").database.close()

    open_again()
    write(session=day + 3, columns=columns | {"hour": np.arange(48) % 5})  # in the same order; and one that is new
    open_again()
    for name, other in {
        "session": {"session": day[::-1], "columns": columns},
        "room": {"session": day, "columns": columns | {"room": np.where(day, "b", "a")}},
        "age": {"session": day, "columns": {"room": columns["room"]}},
    }.items():
        write(**other)
        with pytest.raises(UserError, match=f"differs in the column '{name}'"):
            open_again()
    write(columns=columns)
    with pytest.raises(UserError, match="in the column 'session'"):
        open_again()


@pytest.mark.parametrize("name", ["choice.json", "model/model.json"])
def test_no_run_and_no_model_is_overwritten(tmp_path: Path, name: str) -> None:
    """Runs with a continuous target have another database, or none; a subject's model has neither."""
    source, folder = tiny_file(tmp_path), tmp_path / "taken"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text("{}")
    assert_one_line(call("run", source, "--out", folder), 2, "already holds a run")
    rec, own = tiny(), auto_classifier(run_folder=folder)
    with pytest.raises(UserError, match="already holds a run"):
        own.fit(rec.X.numpy(), rec.y.numpy(), subjects=rec.subject.numpy())
    if not name.startswith("model"):  # a subject's model may be made again
        assert_one_line(call("calibrate", tmp_path, source, "--out", folder), 2, "choose another")
    written = {path for path in folder.rglob("*") if path.is_file() and path.name != "lock"}
    assert written == {folder / name}
    assert (folder / name).read_text() == "{}"


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    options = described(source=str(tiny_file(tmp_path)))
    create_run(tmp_path / "run", options)
    with pytest.raises(UserError, match="already holds a run"):
        create_run(tmp_path / "run", options)


def test_bad_data_leave_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        create_run(tmp_path / "run", described(source=str(tmp_path / "missing.npz")))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match="cannot write to"):
        create_run(tiny_file(tmp_path) / "run", described(source=str(tmp_path / "tiny.npz")))


@pytest.mark.parametrize("name", RESERVED_NAMES)
def test_a_file_of_the_users_is_not_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").mkdir()  # an empty folder is nobody's
    check_unused(tmp_path / "run")
    (tmp_path / "run" / "model").rmdir()
    (tmp_path / "run" / name).symlink_to(tmp_path)
    with pytest.raises(UserError, match=f"already holds {name}"):
        check_unused(tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    (tmp_path / "run" / name).write_text("mine")
    with pytest.raises(UserError, match=f"already holds {name}"):
        create_run(tmp_path / "run", described(source=str(tiny_file(tmp_path))))
    assert [path.name for path in (tmp_path / "run").iterdir()] == [name]
    assert (tmp_path / "run" / name).read_text() == "mine"


def test_a_damaged_run_database_is_refused_and_the_model_still_predicts(tmp_path: Path) -> None:
    source, run = tiny_file(tmp_path), tmp_path / "run"
    short = ("--epochs", 1, "--adaptation", "none", "--seeds", 1, "--device", "cpu")
    with few_settings():
        assert call("run", source, *short, "--out", run).code == 0
    path = run / "run.sqlite"
    whole = path.read_bytes()
    middle = whole[:4096] + bytes(len(whole) // 2 - 4096) + whole[len(whole) // 2 :]
    for content in (b"", b"not a database", middle):
        path.write_bytes(content)
        for command in ("status", "report", "resume"):
            assert_one_line(call(command, run), 2, "run.sqlite is damaged")
    path.write_bytes(whole[:20480] + bytes([0xFF]) * 4096 + whole[24576:])  # SQLite says so in two lines
    assert_one_line(call("resume", run), 2, "run.sqlite is damaged")
    assert call("predict", run, source, "--out", tmp_path / "p.csv").code == 0
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 1 + len(tiny().y)


def test_the_status_of_a_failed_job_without_a_reason_is_one_line(tmp_path: Path) -> None:
    with closing(RunDatabase(tmp_path / "run.sqlite", create=True)) as database:
        database.add([entry(0)])
        database.connection.execute("UPDATE jobs SET status = 'failed', record = '{}'")
    assert_one_line(call("status", tmp_path), 2, "run.sqlite is damaged")


def test_runs_and_models_of_version_0_1_are_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "model").mkdir(parents=True)
    with closing(sqlite3.connect(run / "run.sqlite")) as old:
        old.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum TEXT NOT NULL)")
    card = {"name": "old", "kind": "ensemble", "members": 4, "n_times": 16, "channels": ["a"], "sfreq": 16.0}
    (run / "model" / "model.json").write_text(json.dumps(card))
    (run / "model" / "model.safetensors").write_bytes(save({"x": torch.zeros(1)}))
    for arguments in (("status", run), ("resume", run), ("report", run), ("predict", run, tiny_file(tmp_path))):
        assert_one_line(call(*arguments), 2, "another version of autotransfer", "new run")
