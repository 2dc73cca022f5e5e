"""Reading in a child process: what is read arrives, and a crash, a hang or an error is one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from autotransfer.errors import UserError
from autotransfer.recordings.blocks import Block
from autotransfer.recordings.child import blocks_in_child

LABELS = ["ü", 1, 2.5, None, True]


def reads(path: Path, how: str = "") -> Block:
    """A reader; files whose name begins with b come to what `how` says."""
    bad = path.name.startswith("b")
    if bad and how in ("SEGV", "KILL"):
        os.kill(os.getpid(), getattr(signal, f"SIG{how}"))
    elif bad and how == "hang":
        path.with_name("pid").write_text(str(os.getpid()))
        time.sleep(600)
    elif bad and how == "exit":
        print("one\nlast words", file=sys.stderr)
        os._exit(3)
    elif bad and how == "leave":
        sys.exit("last words")
    elif bad and how == "refuse":
        raise UserError("this file is not like the others; leave it out")
    elif bad and how == "raise":
        raise ZeroDivisionError("two\nlines")
    elif bad and how == "disk full":
        return Block(X=Full(), channels=("a",), sfreq=None, name="full")  # type: ignore[arg-type]
    X = np.full((5, 2, 3), int(path.read_text()), np.float32)
    about = ["torch" in sys.modules, os.getpid(), sys.stdin.isatty(), how, None]
    return Block(X=X, y=LABELS, session=about, channels=("Cz", "µ"), sfreq=100.0, start=-0.1, name=path.name)


class Full:
    def __array__(self, *_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    for n, name in enumerate("abc"):
        (tmp_path / f"{name}.txt").write_text(str(n))
    return [tmp_path / f"{name}.txt" for name in "abc"]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"  # ended, but its parent has not looked yet


def within(seconds: float, what: object) -> bool:
    end = time.monotonic() + seconds
    while not (done := what()) and time.monotonic() < end:  # type: ignore[operator]
        time.sleep(0.05)
    return bool(done)


def test_one_child_reads_all_files_without_torch(files: list[Path], tmp_path: Path) -> None:
    with blocks_in_child(reads, files, "so") as arriving:
        blocks = list(arriving)
    for n, block in enumerate(blocks):
        np.testing.assert_array_equal(block.X, np.full((5, 2, 3), n, np.float32))
        assert (block.y, block.subject, block.channels, block.start) == (LABELS, None, ("Cz", "µ"), -0.1)
        assert [type(label) for label in block.y or []] == [type(label) for label in LABELS]
        assert block.session == [False, blocks[0].session[1], False, "so", None]  # type: ignore[index]
    assert blocks[0].session[1] != os.getpid()  # type: ignore[index]
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (
            "SEGV",
            r"b.txt' cannot be read: its reader crashed \(Segmentation fault\); the file is probably damaged: copy",
        ),
        ("KILL", r"b.txt' cannot be read: its reader crashed \(Killed, perhaps because memory ran out\); the file is"),
        ("exit", r"b.txt' cannot be read: its reader ended with exit status 3 \(last words\); the file is probably"),
        ("leave", r"b.txt' cannot be read: its reader ended with exit status 1 \(last words\); the file is probably"),
        ("refuse", "^this file is not like the others; leave it out$"),
        ("raise", r"contents of .*b.txt' cannot be read \(ZeroDivisionError: two lines\); is the file damaged"),
        ("disk full", r"b.txt' cannot be copied to .*temporary.* \(OSError: .*No space left on device\); free disk"),
        ("hang", "b.txt' cannot be read: its reader did not finish within 1 s; the file is probably damaged: copy"),
    ],
)
def test_what_goes_wrong_in_the_child_is_one_line(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, text: str
) -> None:
    with blocks_in_child(reads, files, how) as arriving:
        assert next(arriving).X[0, 0, 0] == 0  # the file before is read as ever
        if how == "hang":  # nothing else may be cut short, however busy the machine
            assert within(60, lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
            monkeypatch.setattr("autotransfer.recordings.child.SECONDS", 1.0)
        with pytest.raises(UserError, match=text) as caught:
            next(arriving)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "temporary").iterdir())
    if how == "hang":
        assert gone(int((tmp_path / "pid").read_text()))


def test_a_large_file_has_more_time(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotransfer.recordings.child.SECONDS", 0.0)
    files[0].write_text("7" + " " * 30_000_000)
    with blocks_in_child(reads, files) as arriving:
        assert next(arriving).X[0, 0, 0] == 7


def test_whoever_stops_early_stops_the_child(files: list[Path], tmp_path: Path) -> None:
    with blocks_in_child(reads, files, "hang") as arriving:
        next(arriving)
        assert within(60, lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        start = time.monotonic()
    assert time.monotonic() - start < 300, "the child would sleep for 600 s"
    assert gone(int((tmp_path / "pid").read_text()))
    assert not list((tmp_path / "temporary").iterdir())


def test_a_killed_parent_leaves_neither_child_nor_files(files: list[Path], tmp_path: Path) -> None:
    code = "import sys, test_child as t; from pathlib import Path\n"
    code += "with t.blocks_in_child(t.reads, [Path(sys.argv[1])], 'hang') as blocks: next(blocks)"
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary"), "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", code, files[1]], env=environment)
    try:
        assert within(60, lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    finally:
        parent.kill()
        parent.wait()
    assert within(30, lambda: gone(int((tmp_path / "pid").read_text())))
    assert within(30, lambda: not list((tmp_path / "temporary").iterdir()))


def test_a_script_without_a_guard_reads_once_from_any_folder(tmp_path: Path) -> None:
    for name in ("p1", "p2", "p3"):
        for label in ("fist", "open"):
            X = np.random.default_rng(0).standard_normal((16, 2))
            np.savetxt(tmp_path / f"{name}_{label}.csv", X, delimiter=",", header="emg1,emg2", comments="")
    (tmp_path / "json.py").write_text("raise SystemExit('the folder of the user is not searched for modules')")
    script = tmp_path / "scripts" / "script.py"
    script.parent.mkdir()
    script.write_text("from autotransfer import load\nprint(load('.', pattern='{subject}_{class}.csv', sfreq=100))\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.startswith(f"<Recordings {tmp_path.name!r}: 6 trials"), done.stderr
    assert done.stdout.count("Recordings") == 1
