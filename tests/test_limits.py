"""A limit on the address space: refused before the maths libraries meet it, and respected by what sizes populations."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotransfer.errors import UserError
from autotransfer.recordings.npy import available_memory
from autotransfer.runs import limits
from tiny import tiny_file

resource = pytest.importorskip("resource", reason="limits of POSIX")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce the limit")


def limited(megabytes: int, *arguments: object, threads: int = 2) -> subprocess.CompletedProcess[str]:
    """`autotransfer ARGUMENTS` as after `ulimit -v`."""
    return subprocess.run(
        [sys.executable, "-m", "autotransfer", *map(str, arguments)], capture_output=True, text=True, timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes * 2**20,) * 2),
    )  # fmt: skip


def test_too_little_address_space_is_one_line_and_no_hang(tmp_path: Path) -> None:
    """With 900 MB, products of matrices ended the process or waited for ever."""
    result = limited(900, "run", tiny_file(tmp_path), "--out", tmp_path / "run", "--epochs", 2, "--device", "cpu")
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "ulimit -v" in line
    assert "raise the limit" in line
    assert not (tmp_path / "run").exists()
    assert limited(900, "datasets").returncode == 0


@pytest.mark.parametrize(
    ("limit", "threads", "words"),
    [(None, 64, None), (2**30, 1, "raise the limit$"), (2 * 2**30, 64, "OMP_NUM_THREADS=1$"), (2 * 2**30, 1, None)],
)
def test_threads_need_room(monkeypatch: pytest.MonkeyPatch, limit: int | None, threads: int, words: str | None) -> None:
    monkeypatch.setattr(limits, "address_space", lambda: limit)
    monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
    if words is None:
        limits.check_address_space()
        return
    with pytest.raises(UserError, match=words):
        limits.check_address_space()


def test_available_memory_respects_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    free = available_memory()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2**62, 2**62))
    assert available_memory() == pytest.approx(free, rel=0.2)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (mapped + 2**20, 2**62))
    assert 0 < available_memory() <= 2**20
