"""Runs that are killed and runs whose writes fail continue to the same result."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from failing_writes import cases_of, served

layer = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None, reason="the layer is for Linux, with a compiler"
)


@layer
@pytest.mark.slow
def test_a_full_disk_and_kills_lose_nothing(tmp_path: Path) -> None:
    """From the database's first rows on. A layer that does nothing would leave a whole run, and no row."""
    cases = [["kills", seed] for seed in range(int(os.environ.get("AUTOTRANSFER_KILLS", "3")))]
    first, *others = served(tmp_path, lambda writes: [["write", "full", writes // 3], *cases])
    assert first[1] == "resumed"
    assert [outcome for _, (_, outcome) in others] == ["same"] * len(cases)
    assert any(kills for _, (kills, _) in others), "on a busy machine a run may end before its kill"


@layer
@pytest.mark.faults
def test_every_failing_write(tmp_path: Path) -> None:
    wrong = [found for found in served(tmp_path, cases_of) if found[1] not in ("nothing", "resumed")]
    assert not wrong
