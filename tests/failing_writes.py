"""Runs whose n-th write fails: each ends whole or with one line, and goes on to the same result.

`python tests/failing_writes.py [--shift S] [--every K]` lets every write of a small run fail in turn, or every K-th,
with the next error of ERRORS each time, beginning with the S-th; it prints a table. A layer in C (failing_writes.c)
lies between the process and the C library, so that SQLite's writes fail, too. tests/test_failing_writes.py runs some.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
# full: no space from that write on; the others fail once.
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EINTR": errno.EINTR, "full": errno.ENOSPC}
OPTIONS = ["--epochs", "2", "--seeds", "1", "--batch-size", "16", "--population", "4", "--device", "cpu",
           "--adaptation", "none"]  # fmt: skip
LIMIT = 300  # seconds of one command


class Ending(NamedTuple):
    """How a command ended: exit code, what it wrote to standard error, how many writes it tried."""

    code: int
    said: str
    writes: int


def build(folder: Path) -> Path:
    """The layer; CalledProcessError or OSError where there is no compiler."""
    path = folder / "failing_writes.so"
    command = ["cc", "-O1", "-fPIC", "-shared", "-o", str(path), str(HERE / "failing_writes.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return path


def served(folder: Path, cases: Callable[[int], list[tuple[str, int]]]) -> Iterator[tuple[str, int, str]]:
    """(error, n, outcome) of every case; cases: of the number of writes of an undisturbed run. An outcome is `nothing`:
    the run ended whole; `resumed`: it ended with one line, and `resume` gave the same; or what is wrong."""
    layer = build(folder)
    process = subprocess.Popen(
        [sys.executable, str(HERE / "failing_writes.py"), "--serve", str(folder), str(layer)], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"LD_PRELOAD": str(layer)},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for error, number in cases(json.loads(process.stdout.readline())):
            process.stdin.write(json.dumps([error, number]) + "\n")
            process.stdin.flush()
            yield error, number, json.loads(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait()


# in the process that has the layer


def serve(folder: Path, layer: ctypes.CDLL) -> None:
    """Cases from standard input; every command in a process that is forked from this one, which has imported all."""
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    import autotransfer.cli
    import autotransfer.report.collect
    import autotransfer.report.page
    import autotransfer.search.procedure  # noqa: F401
    from autotransfer.recordings import save_npz
    from autotransfer.runs import executor
    from faults import few_settings
    from tiny import tiny

    executor.CHECKPOINT_EVERY = -1.0  # after each epoch
    few_settings().__enter__()
    save_npz(folder / "tiny.npz", tiny(3))
    first = command(folder, layer, 0, 0, False, "run", folder / "tiny.npz", *OPTIONS, "--out", folder / "run")
    assert first.code == 0, first
    (folder / "run").rename(folder / "undisturbed")
    print(json.dumps(first.writes), flush=True)
    for line in sys.stdin:
        error, number = json.loads(line)
        print(json.dumps(outcome(folder, layer, error, number)), flush=True)


def outcome(folder: Path, layer: ctypes.CDLL, error: str, number: int) -> str:
    from faults import assert_same_run

    run, undisturbed = folder / "run", folder / "undisturbed"
    shutil.rmtree(run, ignore_errors=True)
    begin = ["run", folder / "tiny.npz", *OPTIONS, "--out", run]
    ended = command(folder, layer, number, ERRORS[error], error == "full", *begin)
    try:
        if ended.code == 0:  # what failed was not needed, or was tried again
            assert_same_run(run, undisturbed)
            check_ledger(run)
            assert (run / "report.html").exists() or "report" in ended.said, "no report, and no word of it"
            return "nothing"
        lines = [line for line in ended.said.splitlines() if line and "elapsed" not in line]  # no progress
        assert ended.code in (1, 2), f"exit code {ended.code}: {ended.said[-500:]}"
        assert "Traceback" not in ended.said, ended.said[-1500:]
        assert len(lines) == 1, f"not one line: {ended.said[-500:]}"
        again = ["resume", run] if (run / "ledger.sqlite").exists() else begin
        resumed = command(folder, layer, 0, 0, False, *again)
        assert resumed.code == 0, f"{again[0]} after {lines[0]!r}: exit code {resumed.code}: {resumed.said[-500:]}"
        assert_same_run(run, undisturbed)
        check_ledger(run)
        assert (run / "report.html").exists(), "no report"
    except AssertionError as wrong:
        return f"wrong: {wrong}"
    return "resumed"


def check_ledger(run: Path) -> None:
    from autotransfer.runs.ledger import Ledger

    ledger = Ledger(run / "ledger.sqlite")
    ledger.check()
    ledger.close()


def command(folder: Path, layer: ctypes.CDLL, number: int, error: int, goes_on: bool, *arguments: object) -> Ending:
    """`autotransfer ARGUMENTS` in a forked process, whose write of this number fails; 0: none does."""
    log, count = folder / "log", folder.with_name(f"{folder.name}.count")  # the second outside what fails
    child = os.fork()
    if child == 0:
        code = 70
        try:
            for name, target in (("out", 1), (log, 2)):
                handle = os.open(os.devnull if name == "out" else name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(handle, target)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
            layer.fail_at(str(folder / "run").encode() + b"/", number, error, int(goes_on))
            sys.argv = ["autotransfer", *map(str, arguments)]
            from autotransfer.cli import main

            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            count.write_text(str(layer.writes_seen()))
            os._exit(code)
    begin = time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() - begin > LIMIT:
            os.kill(child, 9)
        time.sleep(0.005)
    return Ending(os.waitstatus_to_exitcode(status), log.read_text(errors="replace"), int(count.read_text()))


def cases_of(writes: int, every: int = 1, shift: int = 0) -> list[tuple[str, int]]:
    names = list(ERRORS)
    return [(names[(place + shift) % len(names)], n) for place, n in enumerate(range(1, writes + 1, every))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--shift", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no further case is begun")
    given = parser.parse_args()
    end, counts = time.monotonic() + given.seconds, {error: Counter[str]() for error in ERRORS}
    with tempfile.TemporaryDirectory() as name:
        for error, number, result in served(Path(name), lambda writes: cases_of(writes, given.every, given.shift)):
            counts[error]["wrong" if result.startswith("wrong") else result] += 1
            if result.startswith("wrong"):
                print(error, number, result, flush=True)
            if time.monotonic() > end:
                print(f"ended after write {number}", flush=True)
                break
    print("error | cases | ended whole | ended with a line, resumed | wrong")
    for error, own in counts.items():
        print(f"{error} | {sum(own.values())} | {own['nothing']} | {own['resumed']} | {own['wrong']}")
    sys.exit(any(own["wrong"] for own in counts.values()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]), ctypes.CDLL(sys.argv[3]))
    else:
        main()
