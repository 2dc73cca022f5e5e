"""Help for the fault tests: whole runs on tiny data, the command line in this process, and processes to be killed."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import re
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import click.testing
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.runs import executor
from autotransfer.runs import options as options_module
from autotransfer.runs.database import Entry, RunDatabase
from autotransfer.runs.run import Run
from autotransfer.search import candidates
from autotransfer.search.procedure import perform_plan
from autotransfer.training import packing
from tiny import create_run, described

EPOCHS = 6
OPTIONS = {"max_epochs": EPOCHS, "batch_size": 16, "lr": 0.02, "device": "cpu", "adaptation": "none",
           "seeds": 1}  # fmt: skip


def words_of(**changes: object) -> list[str]:
    """Return OPTIONS with changes as words of the command line."""
    return [word for name, value in (OPTIONS | changes).items() for word in ("--set", f"{name}={value}")]


ARGUMENTS = words_of()


# runs in this process

GRID = [at.Setting(), at.Setting(method="mmd", mode="marginal", strength=0.3)]


def few_settings() -> contextlib.AbstractContextManager[object]:
    """Two settings in place of a grid: a run of some tenths of a second."""
    return mock.patch.object(options_module, "grid", return_value=GRID)


@contextlib.contextmanager
def few_linear_candidates() -> Iterator[None]:
    """Three in place of eight: features, tangent space and templates, each shrunk in one way."""
    with (
        mock.patch.object(candidates, "SHRINKAGES", candidates.SHRINKAGES[:1]),
        mock.patch.object(candidates, "SIGNAL_AUGMENTATIONS", {}),
        mock.patch.object(candidates, "TREES", ()),
        mock.patch.object(candidates, "RESPONSE_SECONDS", 0.0),
        mock.patch.object(candidates, "find_representations", return_value=[]),
    ):
        yield


def quiet(_: str) -> None:
    pass


def make_run(folder: Path, source: Path, **changes: object) -> Run:
    return create_run(folder, described(source=str(source), **(OPTIONS | changes)))


def whole_run(folder: Path, source: Path, **changes: object) -> Path:
    run = make_run(folder, source, **changes)
    perform_plan(run, quiet, progress=False)
    run.database.close()
    return folder


class Interrupted(Exception):
    pass


def interrupted_run(folder: Path, source: Path, checkpoints: int, **changes: object) -> Path:
    """A run that ended after so many checkpoints (one an epoch), without a chance to tidy up."""
    real, written = executor.save_checkpoint, 0

    def save(*arguments: object) -> None:
        nonlocal written
        real(*arguments)
        written += 1
        if written == checkpoints:
            raise Interrupted

    with (
        mock.patch.object(executor, "save_checkpoint", save),
        mock.patch.object(executor, "CHECKPOINT_EVERY", -1.0),
        mock.patch.object(packing, "CPU_LIMIT", 7),  # members of a population, so that there are several
    ):
        run = make_run(folder, source, **changes)
        with contextlib.suppress(Interrupted):
            perform_plan(run, quiet, progress=False)
            raise AssertionError("the run ended before it was interrupted")
        run.database.close()
    return folder


def finish(folder: Path) -> list[Entry]:
    """Go on with a run in this process, to its end."""
    run = Run.open(folder)
    perform_plan(run, quiet, progress=False)
    entries = run.database.entries()
    run.database.close()
    return entries


def table_of(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "results.csv", keep_default_na=False).drop(columns="seconds")


def assert_same_run(folder: Path, expected: Path) -> None:
    """Bit for bit: rows and their order, scores, choice, weights; and nothing left over."""
    pd.testing.assert_frame_equal(table_of(folder), table_of(expected), check_exact=True)
    for name in ("choice.json", "model/model.safetensors", "model/model.json"):
        assert (folder / name).read_bytes() == (expected / name).read_bytes(), name
    assert not list(folder.glob("*.checkpoint"))


# the command line in this process


PROGRESS = re.compile(r" elapsed|: \d+:\d\d$")  # lines that are no error; the second of what takes longer than usual


class Result(NamedTuple):
    code: int
    out: str
    err: str


def call(*arguments: object) -> Result:
    """`autotransfer ARGUMENTS` in this process. Whatever would have been a traceback is raised."""
    from autotransfer.cli import main

    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["autotransfer", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return Result(code, out.getvalue(), err.getvalue())


def invoke(*words: object) -> click.testing.Result:
    """Return the result of a command in this process. Raise what it raises."""
    from autotransfer.cli import app

    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def printed(*words: object) -> str:
    """Return what a successful command prints."""
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    return result.output


def refused(work: Callable[[], object], text: str) -> None:
    """Check that this work is refused in one line that matches the text."""
    with pytest.raises(UserError, match=text) as caught:
        work()
    assert "\n" not in str(caught.value)


def assert_one_line(result: Result, code: int, *words: str) -> None:
    lines = [line for line in result.err.strip().splitlines() if not PROGRESS.search(line)]
    assert result.code == code, result
    assert len(lines) == 1, result.err
    for word in words:
        assert word in lines[0]


# processes that can be killed, forked from one that has imported everything


def _server() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["autotransfer.cli", "autotransfer.search.procedure", "autotransfer.search.tpe",
         "autotransfer.report.collect", "autotransfer.report.page", "sklearn.linear_model", "pandas", "pytest"]
    )  # fmt: skip
    return context


def _command(arguments: list[str], log: str, checkpoint_every: float) -> None:
    os.setsid()  # a group of its own, to be killed as one
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    torch.set_num_threads(1)
    executor.CHECKPOINT_EVERY = checkpoint_every
    from autotransfer.cli import main

    sys.argv = ["autotransfer", *arguments]
    main()


class Command:
    """`autotransfer ARGUMENTS` as a process of its own."""

    def __init__(self, *arguments: object, log: Path, checkpoint_every: float = 0.2) -> None:
        self.log = log
        values = (list(map(str, arguments)), str(log), checkpoint_every)
        self.process = _server().Process(target=_command, args=values, daemon=True)  # ends with the tests
        self.process.start()

    def running(self) -> bool:
        return self.process.exitcode is None

    def wait(self, seconds: float = 300) -> int:
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"still at work after {seconds} s: {self.said()}"
        return self.process.exitcode

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join()

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


def entries_of(folder: Path, elsewhere: Path) -> list[Entry]:
    """Jobs by a copy of the database: the next process shall meet the files as the last one left them."""
    if not (folder / "run.sqlite").exists():
        return []
    shutil.rmtree(elsewhere, ignore_errors=True)
    elsewhere.mkdir()
    for path in folder.glob("run.sqlite*"):
        shutil.copy(path, elsewhere)
    try:
        database = RunDatabase(elsewhere / "run.sqlite")
    except UserError:
        return []
    entries = database.entries()
    database.check()
    database.close()
    return entries


# what can go wrong with a database


@contextlib.contextmanager
def tampered(path: Path) -> Iterator[sqlite3.Connection]:
    """The database, open to be changed by hand."""
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()
