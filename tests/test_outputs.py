"""Commands refuse outputs that would destroy data or cannot be written, before any work."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import faults
from autotransfer.cli import app
from autotransfer.cli.console import print_error, print_lines
from autotransfer.cli.model_commands import PREDICTIONS, SCORES, write_predictions
from autotransfer.cli.outputs import check_outputs
from autotransfer.errors import UserError
from autotransfer.files import write_atomically
from tiny import save_folder, tiny, tiny_file

LONG = "ü" * 127  # of 255 bytes that a name may have
VICTIM = b"recordings"
posix = pytest.mark.skipif(os.name != "posix", reason="of POSIX")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """victim.npz, a folder study with a file, and a folder run with what a run has."""
    monkeypatch.chdir(tmp_path)
    for name in ("victim.npz", "study/p1.csv", "run/run.sqlite", "run/model/model.json", "person/model/model.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(VICTIM)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("victim.npz", "--out is victim.npz, which is not an earlier output of --out"),
        ("study/p1.csv", "not an earlier output"),
        ("run/run.sqlite", "not an earlier output"),
        ("nowhere/o.csv", "there is no folder nowhere"),
        (".", "--out is ., a folder"),
        ("", "--out is ., a folder"),
        pytest.param("pipe", "a pipe or a device", marks=posix),
        ("victim.npz/o.csv", "there is no folder victim.npz"),
    ],
)
def test_unsafe_outputs_are_refused(here: Path, out: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        check_outputs(out=(Path(out), PREDICTIONS))
    assert words in str(caught.value).replace(os.sep, "/")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "text", "is_output"),
    [
        (PREDICTIONS, "window,subject,prediction,answered,p_a\r\n", True),
        (PREDICTIONS, 'window,prediction,"p_a,b"\n', True),
        (PREDICTIONS, "window,prediction,low,high\n", True),
        (PREDICTIONS, "window,prediction\n", True),
        (PREDICTIONS, "Each window has a prediction.", False),
        (PREDICTIONS, "window,prediction,EMG1\n", False),
        (PREDICTIONS, "time,window,prediction,p_a\n", False),  # of `stream`
        (SCORES, "subject,windows,balanced_accuracy,roc_auc\n", True),
        (SCORES, "subject,windows,r2,correlation\n", True),
        (SCORES, "There are 20 windows per subject.", False),
    ],
)
def test_only_earlier_outputs_are_replaced(tmp_path: Path, pattern: str, text: str, is_output: bool) -> None:
    path = tmp_path / "file.csv"
    path.write_text(text)
    if is_output:
        check_outputs(out=(path, pattern))
    else:
        with pytest.raises(UserError, match="not an earlier output"):
            check_outputs(out=(path, pattern))


def test_two_outputs_are_two_files(here: Path) -> None:
    check_outputs(out=(Path("old.csv"), "window"), scores=(Path("run/by_subject.csv"), "windows"))
    check_outputs(out=(Path("study/new.csv"), "window"), scores=(None, "windows"))
    with pytest.raises(UserError, match="--out and --scores are the same file"):
        check_outputs(out=(Path("a.csv"), "window"), scores=(here / "study" / ".." / "a.csv", "windows"))


@pytest.mark.parametrize(
    "given",
    [
        ["predict", "run", "victim.npz", "--out", "victim.npz"],
        ["predict", "run", "victim.npz", "--scores", "victim.npz"],
    ],
)
def test_commands_overwrite_neither_recordings_nor_runs(here: Path, given: list[str]) -> None:
    done = CliRunner().invoke(app, given)
    assert isinstance(done.exception, UserError)
    assert "--" in str(done.exception)
    assert (here / "victim.npz").read_bytes() == (here / "run" / "run.sqlite").read_bytes() == VICTIM


@pytest.mark.skipif(os.name == "nt", reason="there is no umask")
@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_the_umask_decides_permissions(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        for _ in range(2):  # a new file, and one that is replaced
            write_atomically(tmp_path / "o.csv", "x")
            assert (tmp_path / "o.csv").stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)
    assert [path.name for path in tmp_path.iterdir()] == ["o.csv"]
    with pytest.raises(OSError, match="null character"):
        write_atomically(tmp_path / "a\0b", "x")


def test_the_longest_name_can_be_written_and_errors_name_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(tmp_path / LONG, "whole")
    assert (tmp_path / LONG).read_text() == "whole"
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(tmp_path / "nowhere" / "o.csv", "x")
    assert caught.value.filename == str(tmp_path / "nowhere" / "o.csv")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as error:
        write_atomically(tmp_path / "o.csv", "x")
    assert error.value.filename == str(tmp_path / "o.csv")
    assert [path.name for path in tmp_path.iterdir()] == [LONG]


@pytest.mark.parametrize("speak", [print_lines, print_error])
def test_names_control_no_terminal(speak: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    speak("Zoë\N{NO-BREAK SPACE}\x1b[2J\x07\x9b, two\nlines")
    told = capsys.readouterr()
    assert told.out + told.err == "Zoë\N{NO-BREAK SPACE}?[2J??, two\nlines\n"


@posix
@pytest.mark.parametrize("closing", ["exec 2>&-;", "exec 2> >(true); sleep 0.2;"])
def test_a_closed_standard_error_ends_nothing_and_lends_its_number_to_no_file(tmp_path: Path, closing: str) -> None:
    program = (
        "import os, sys, warnings; from autotransfer.cli import _open_streams; _open_streams();"
        "number = os.open(os.devnull, os.O_RDONLY); assert number > 2, number;"
        "[print(n, file=sys.stderr, flush=True) for n in range(9)]; warnings.warn('w'); print('end')"
    )
    command = f"{closing} exec {shlex.quote(sys.executable)} -c {shlex.quote(program)}"
    done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "end\n")


def test_empty_arguments_and_names_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    empty = (["run", "synthetic", "--out", ""], ["run", "synthetic", "--out="], ["predict", ""])
    for words in (*empty, ["predict", "run", "synthetic", "--out", ""]):
        faults.assert_one_line(faults.call(*words), 2, "there is nothing after")
    name = tmp_path / "run\udcff"
    faults.assert_one_line(faults.call("run", "synthetic", "--out", name), 2, "not named in UTF-8", "udcff")
    assert not list(tmp_path.iterdir())


def test_predictions_replace_neither_training_recordings_nor_files_of_the_run(tmp_path: Path) -> None:
    save_folder(tmp_path / "study", tiny())
    with faults.few_settings():
        run = faults.whole_run(tmp_path / "run", tmp_path / "study")
    new = tiny_file(tmp_path)
    for name in ("study/y.npy", "run/study.toml", "run/model/model.json", "run/plan.json"):
        before = (tmp_path / name).read_bytes()
        done = faults.call("predict", run, new, "--out", tmp_path / name)
        faults.assert_one_line(done, 2, name, "choose another name")
        assert (tmp_path / name).read_bytes() == before
    tables = ("--out", run / "predictions.csv", "--scores", run / "by_subject.csv")
    for _ in range(2):
        assert faults.call("predict", run, new, *tables).code == 0
    notes = tmp_path / "notes.csv"
    notes.write_text("subject,age\n1,31\n")
    for option in ("--out", "--scores"):
        faults.assert_one_line(
            faults.call("predict", run, new, option, notes), 2, option, "notes.csv", "choose another"
        )
    (run / "scores.csv").write_text("model,role,subject,score,metric\n")  # what a command writes into a run
    faults.assert_one_line(faults.call("predict", run, new, "--scores", run / "scores.csv"), 2, "choose another")
    swapped = faults.call("predict", run, new, "--out", run / "by_subject.csv")
    faults.assert_one_line(swapped, 2, "by_subject.csv", "choose another")
    assert notes.read_text() == "subject,age\n1,31\n"


def test_names_of_classes_control_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    table = pd.DataFrame({"prediction": ["\x1b[2J", "a\xa0b", "-1"], "p": [0.5, 1.0, 0.0]})
    write_predictions(table, None, None, None, ["\x1b[2J: 1"], quiet=False)
    told = capsys.readouterr()
    assert told.out == "prediction,p\n?[2J,0.5\na\xa0b,1.0\n-1,0.0\n"
    assert told.err == "?[2J: 1\n"
