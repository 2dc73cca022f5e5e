"""Signals end a run with a checkpoint, a line that says how to continue, and an exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotransfer.runs.database import RunDatabase
from autotransfer.runs.signals import StopSignal, delay_signals, raise_if_stop_requested, stop_on_signals
from faults import Command, assert_same_run, words_of
from tiny import tiny_file

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
LONG = words_of(grid="uncensored", max_epochs=120, patience=120)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_file(tmp_path_factory.mktemp("data"), n_subjects=3)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    command = Command("run", source, *LONG, "--out", folder, log=folder.with_suffix(".log"))
    assert command.wait() == 0, command.said()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("number", CODES)
def test_a_signal_ends_with_a_checkpoint_and_the_way_on(
    tmp_path: Path, source: Path, undisturbed: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "run"
    # Checkpoints are never due, so one that is there was written because of the signal.
    command = Command("run", source, *LONG, "--out", folder, log=tmp_path / "log", checkpoint_every=1e6)
    deadline = time.monotonic() + 300
    while not ((folder / "run.sqlite").exists() and RunDatabase(folder / "run.sqlite").counts().get("running")):
        assert command.running(), command.said()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(command.process.pid, number)
    assert command.wait() == CODES[number], command.said()
    assert command.said().splitlines()[-1] == f"interrupted; continue with: autotransfer resume {folder}"
    assert "Traceback" not in command.said()
    assert len(list(folder.glob("*.checkpoint"))) == 1
    before = {entry.key: entry.starts for entry in RunDatabase(folder / "run.sqlite").entries()}
    again = Command("resume", folder, log=tmp_path / "log")
    assert again.wait() == 0, again.said()
    after = {entry.key: entry.starts for entry in RunDatabase(folder / "run.sqlite").entries()}
    assert before.items() <= after.items(), "what had begun went on from the checkpoint"
    assert_same_run(folder, undisturbed)


def test_what_is_ignored_stays_ignored() -> None:
    """As under nohup: whoever started the process wants it to go on."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals():
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_waits_for_an_epoch_and_a_second_one_does_not() -> None:
    reached: list[str] = []

    def epoch(*numbers: signal.Signals) -> None:
        with delay_signals():
            for number in numbers:
                signal.raise_signal(number)
                reached.append(number.name)
            reached.append("end")
            raise_if_stop_requested()

    with stop_on_signals():
        with pytest.raises(StopSignal, match="SIGTERM"):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(StopSignal, match="SIGTERM") as stopped:
            epoch(signal.SIGTERM)
        assert stopped.value.exit_code == 143
        with pytest.raises(StopSignal, match="SIGTERM"):
            epoch(signal.SIGTERM, signal.SIGTERM)
    assert reached == ["SIGTERM", "end", "SIGTERM"]


@pytest.mark.slow
def test_before_a_run_begins_a_signal_leaves_nothing(tmp_path: Path) -> None:
    script = f"""
import os, signal, sys
from autotransfer.runs import preparation
preparation.check_packages = lambda options: os.kill(os.getpid(), signal.SIGTERM)
sys.argv = ["autotransfer", "run", "synthetic", "--out", {str(tmp_path / "run")!r}, "--dry-run"]
from autotransfer.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (143, "\ninterrupted; nothing was written\n")
    assert not (tmp_path / "run").exists()


def test_an_interrupt_during_the_first_imports_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = [sys.executable, "-m", "autotransfer", "--version"]
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=30, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whoever started the tests may ignore it
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "autotransfer: interrupted\n")
