"""Some of the cases of tests/failing_writes.py and tests/kills.py, and in the slow suite every write of a run."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from campaign import Table
from failing_writes import cases_of, served

layer = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None, reason="the layer is for Linux, with a compiler"
)


@layer
@pytest.mark.slow
def test_a_full_disk_and_kills_lose_nothing(tmp_path: Path) -> None:
    """From the ledger's first rows on. A layer that does nothing would leave a whole run, and no row."""
    cases = [["kills", seed] for seed in range(3)]
    first, *others = served(tmp_path, lambda writes: [["write", "full", writes // 3], *cases])
    assert first[1] == "resumed"
    assert [outcome for _, (_, outcome) in others] == ["same"] * len(cases)
    assert any(rows for _, (rows, _) in others), "on a busy machine a run may end before its kill"


@layer
@pytest.mark.faults
def test_whichever_write_fails(tmp_path: Path) -> None:
    wrong = [found for found in served(tmp_path, cases_of) if found[1] not in ("nothing", "resumed")]
    assert not wrong


def test_a_campaign_goes_on_after_a_torn_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with Table(path, ("n", "text")) as table:
        table.add(1, "one,\ntwo")
        table.add(2, "three")
    path.write_bytes(path.read_bytes()[:-4])  # in the middle of the second row
    with Table(path, ("n", "text")) as table:
        assert table.rows == [{"n": "1", "text": "one,\ntwo"}]
        table.add(2, "three")
    with Table(path, ("n", "text")) as table:
        assert [row["n"] for row in table.rows] == ["1", "2"]
