"""Runs that are killed and runs whose writes fail continue to the same result."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest

from failing_writes import Case, cases_of, served

KILLED_RUNS = int(os.environ.get("AUTOTRANSFER_KILLS", "20"))


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None, reason="the layer is for Linux, with a compiler"
)
@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.faults)])
def test_failing_writes_and_kills_lose_nothing(tmp_path: Path, many: bool, campaign: Callable[..., None]) -> None:
    """Every write fails in turn, or one of them. A layer that does nothing would leave a whole run there."""

    def cases(writes: int) -> list[Case]:
        kills = [["kills", seed] for seed in range(1, (KILLED_RUNS if many else 1) + 1)]
        return [*(cases_of(writes) if many else [["write", "full", writes // 3]]), *kills]

    for kind, group in groupby(served(tmp_path, cases), key=lambda pair: pair[0][0]):
        answers = [answer for _, answer in group]
        outcomes = answers if kind == "write" else [outcome for _, outcome in answers]
        lost, silent = ([one for one in outcomes if one.startswith(f"{what}: ")] for what in ("lost", "silent"))
        print(*lost, *silent, sep="\n")
        if kind == "write":
            assert "resumed" in outcomes
            campaign("failing writes", len(outcomes), len(lost), len(silent))
        else:
            campaign("kills", sum(kills for kills, _ in answers), len(lost), len(silent))
