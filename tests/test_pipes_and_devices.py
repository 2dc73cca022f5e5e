"""Pipes and devices are refused in one line, without waiting."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.files import read_plain
from autotransfer.models.loading import load_model
from autotransfer.runs.checkpoint import load_checkpoint
from autotransfer.runs.database import RunDatabase
from autotransfer.runs.lock import is_in_use, refuse_links
from autotransfer.runs.run import create_run_database
from autotransfer.runs.study import read_study
from test_session import model

posix = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")


def soon(work: Callable[[], Any], seconds: float = 120.0) -> Any:
    """What it returns or raises; a failure where it takes so long."""
    outcome: list[Any] = []

    def attempt() -> None:
        try:
            outcome.append((work(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(seconds)
    assert outcome, "it waits for a pipe or reads a device"
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


def pipe(path: Path) -> Path:
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


@posix
@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_pipe_in_the_place_of_a_model_is_refused(tmp_path: Path, name: str) -> None:
    model().save(tmp_path)
    pipe(tmp_path / name)
    with pytest.raises(UserError, match=r"not a plain file"):
        soon(lambda: load_model(tmp_path))
    with pytest.raises(UserError, match="pipe or a device"):
        soon(lambda: at.Session(tmp_path))


@posix
@pytest.mark.parametrize("kind", ["pipe", "/dev/zero"])
def test_pipes_and_devices_as_single_files(tmp_path: Path, kind: str) -> None:
    path = pipe(tmp_path / "odd") if kind == "pipe" else Path(kind)
    own = model()
    for work in (lambda: at.load_model(path), lambda: at.Session.load(path, own), lambda: read_study(path)):
        with pytest.raises(UserError, match="not a plain file"):
            soon(work)
    assert soon(lambda: load_checkpoint(path)) is None
    with pytest.raises(OSError, match="not a plain file"):
        soon(lambda: read_plain(path))


@posix
def test_a_pipe_anywhere_in_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    refuse_links(tmp_path)
    path = pipe(tmp_path / "model" / "model.json")
    with pytest.raises(UserError, match=r"model\.json is a pipe or a device"):
        refuse_links(tmp_path)
    path.unlink()
    pipe(tmp_path / "lock")
    assert soon(lambda: is_in_use(tmp_path)) in (True, False)


# a full disk


@pytest.mark.parametrize("at_", ["tables", "facts"])
def test_a_run_that_cannot_begin_leaves_no_part_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_: str
) -> None:
    def full(self: RunDatabase, *_: object, **__: object) -> None:
        if at_ == "tables":
            self.connection.execute("CREATE TABLE some (thing)")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunDatabase, "_prepare" if at_ == "tables" else "store_facts", full)
    with pytest.raises(OSError, match="No space left"):
        create_run_database(tmp_path / "run.sqlite", {"started": "now"})
    assert list(tmp_path.iterdir()) == []
