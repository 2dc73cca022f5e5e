"""Some of the cases of tests/failing_writes.py, and in the slow suite every write of a run."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from failing_writes import cases_of, served

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None, reason="the layer is for Linux, with a compiler"
)


@pytest.mark.slow
def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """From the ledger's first rows on. A layer that does nothing would leave a whole run."""
    assert [result for *_, result in served(tmp_path, lambda writes: [("full", writes // 3)])] == ["resumed"]


@pytest.mark.faults
def test_whichever_write_fails(tmp_path: Path) -> None:
    wrong = [found for found in served(tmp_path, cases_of) if found[2] not in ("nothing", "resumed")]
    assert not wrong
