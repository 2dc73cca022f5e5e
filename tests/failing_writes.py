"""Runs whose n-th write fails: each ends whole or with one line, and goes on to the same result.

Every write of a small run fails in turn, with the next error of ERRORS each time. A layer in C (failing_writes.c) lies
between the process and the C library, so that SQLite's writes fail, too. tests/test_failing_writes.py runs it;
tests/kills.py kills runs with the same layer. Run as a program, this file serves cases to the tests.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
FAULTS = ("once", "from then on", "killed before", "killed halfway", "killed after")  # as in failing_writes.c
# full: no space from that write on; the others fail once.
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EINTR": errno.EINTR, "full": errno.ENOSPC}
OPTIONS = ["--epochs", "2", "--seeds", "1", "--set", "batch_size=16", "--device", "cpu",
           "--adaptation", "none"]  # fmt: skip
LIMIT = 300  # seconds of one command
PROGRESS = re.compile(r" elapsed|: \d+:\d\d$")  # the second of what takes longer than usual
Case = list[Any]  # what is to be done, and with what


class Fault(NamedTuple):
    """What happens to the n-th write to files with `part` in their paths; 0: nothing."""

    number: int = 0
    kind: str = "once"
    error: int = 0
    part: str = ""


NO_FAULT = Fault()


class Ending(NamedTuple):
    """How a command ended: exit code, what it wrote to standard error, how many writes it tried, how long it took."""

    code: int
    said: str
    writes: int
    seconds: float

    @property
    def lines(self) -> list[str]:
        """Of standard error, without progress."""
        return [line for line in self.said.splitlines() if line and not PROGRESS.search(line)]


def build(folder: Path) -> Path:
    """The layer; CalledProcessError or OSError where there is no compiler."""
    path = folder / "failing_writes.so"
    command = ["cc", "-O1", "-fPIC", "-shared", "-o", str(path), str(HERE / "failing_writes.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return path


def served(folder: Path, cases: Callable[[int], Iterable[Case]]) -> Iterator[tuple[Case, Any]]:
    """Every case with its answer; cases: of the number of writes of an undisturbed run. ["write", error, n] is answered
    by `nothing`: the run ended whole; `resumed`: it ended with one line, and `resume` gave the same; or what is wrong,
    `lost: …` or `silent: …`. ["kills", seed]: see kills.py."""
    layer = build(folder)
    process = subprocess.Popen(
        [sys.executable, str(HERE / "failing_writes.py"), str(folder), str(layer)], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=os.environ | {"LD_PRELOAD": str(layer), "OMP_NUM_THREADS": "1"},  # what is forked has no other threads
    )  # fmt: skip
    try:
        for case in cases(json.loads(process.stdout.readline())):
            process.stdin.write(json.dumps(case) + "\n")
            process.stdin.flush()
            yield case, json.loads(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait()


# in the process that has the layer


def serve(folder: Path, library: ctypes.CDLL) -> None:
    """Cases from standard input; every command in a process that is forked from this one, which has done all of it
    before, and knows the scores of baselines, which take half of the time and write nothing."""
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    from autotransfer.recordings import save_npz
    from autotransfer.runs import executor
    from autotransfer.runs.database import RunDatabase
    from autotransfer.search import baselines
    from faults import call, few_settings
    from kills import killed
    from tiny import tiny

    executor.CHECKPOINT_EVERY = -1.0  # after each epoch
    few_settings().__enter__()
    save_npz(folder / "tiny.npz", tiny(3))
    layer = Layer(folder, library)
    for arguments in (layer.begin(), ["predict", layer.run, layer.source, "--out", folder / "predicted.csv"]):
        done = call(*arguments)
        assert done.code == 0, done
    database = RunDatabase(layer.run / "run.sqlite")
    known = database.load_fact("baselines", dict[str, dict[str, float]]) or {}
    database.close()
    baselines._missing = lambda *_: [(name, partial(known.get, name)) for name in known]  # type: ignore[assignment]
    shutil.rmtree(layer.run)
    first = layer.command(*layer.begin())
    assert first.code == 0, first
    layer.run.rename(layer.undisturbed)
    print(json.dumps(first.writes), flush=True)
    for line in sys.stdin:
        kind, *values = json.loads(line)
        answer = outcome(layer, *values) if kind == "write" else killed(layer, *values, first)
        print(json.dumps(answer), flush=True)


class Layer:
    """Commands under the layer, on a run in `folder`."""

    def __init__(self, folder: Path, library: ctypes.CDLL) -> None:
        self.folder, self.library = folder, library
        self.run, self.undisturbed, self.source = folder / "run", folder / "undisturbed", folder / "tiny.npz"

    def begin(self) -> list[object]:
        """The arguments that begin the run, or go on with it."""
        if (self.run / "run.sqlite").exists():
            return ["resume", self.run]
        return ["run", self.source, *OPTIONS, "--out", self.run]

    def command(self, *arguments: object, fault: Fault = NO_FAULT, until: float = float("inf")) -> Ending:
        """`autotransfer ARGUMENTS` in a forked process with a fault. until: seconds after which it is killed."""
        log, count = self.folder / "log", self.folder.with_name(f"{self.folder.name}.count")  # outside what fails
        count.unlink(missing_ok=True)
        child, start = os.fork(), time.monotonic()
        if child == 0:
            self._in_child(log, count, arguments, fault)
        handle = os.pidfd_open(child)
        if not select.select([handle], [], [], min(until, LIMIT))[0]:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(handle)
        seconds, writes = time.monotonic() - start, int(count.read_text()) if count.exists() else 0
        assert seconds < LIMIT, f"no end after {LIMIT} s"
        return Ending(os.waitstatus_to_exitcode(status), log.read_text(errors="replace"), writes, seconds)

    def _in_child(self, log: Path, count: Path, arguments: tuple[object, ...], fault: Fault) -> None:
        code = 70
        try:
            for name, target in ((os.devnull, 1), (log, 2)):
                handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(handle, target)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
            below = str(self.run).encode() + b"/"
            kind = FAULTS.index(fault.kind)
            self.library.fault_at(below, fault.part.encode(), fault.number, kind, fault.error)
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
            count.write_text(str(self.library.writes_seen()))
            os._exit(code)

    def difference(self) -> str:
        """Return how the run differs from an undisturbed one; empty if it does not."""
        from autotransfer.runs.database import RunDatabase
        from faults import assert_same_run

        try:
            assert_same_run(self.run, self.undisturbed)
        except AssertionError as wrong:
            return f"silent: {wrong}"
        database = RunDatabase(self.run / "run.sqlite")
        database.check()
        database.close()
        return ""


def outcome(layer: Layer, error: str, number: int) -> str:
    shutil.rmtree(layer.run, ignore_errors=True)
    fault = Fault(number, "from then on" if error == "full" else "once", ERRORS[error])
    try:
        ended = layer.command(*layer.begin(), fault=fault)
        if ended.code == 0:  # what failed was not needed, or was tried again
            assert (layer.run / "report.html").exists() or "report" in ended.said, "no report, and no word of it"
            return layer.difference() or "nothing"
        assert ended.code in (1, 2), f"exit code {ended.code}: {ended.said[-500:]}"
        assert "Traceback" not in ended.said, ended.said[-1500:]
        assert len(ended.lines) == 1, f"not one line: {ended.said[-500:]}"
        again = layer.begin()
        resumed = layer.command(*again)
        after = f"{again[0]} after {ended.lines[0]!r}"
        assert resumed.code == 0, f"{after}: exit code {resumed.code}: {resumed.said[-500:]}"
        assert (layer.run / "report.html").exists(), "no report"
    except AssertionError as wrong:
        return f"lost: {wrong}"
    return layer.difference() or "resumed"


def cases_of(writes: int) -> list[Case]:
    names = list(ERRORS)
    return [["write", names[n % len(names)], n] for n in range(1, writes + 1)]


if __name__ == "__main__":
    serve(Path(sys.argv[1]), ctypes.CDLL(sys.argv[2]))
