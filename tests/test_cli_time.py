"""The options --dry-run, --folds and --time decide how long a run takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autotransfer.errors import UserError
from faults import printed
from tiny import tiny_file


@pytest.fixture
def many(tmp_path: Path) -> Path:
    return tiny_file(tmp_path, n_subjects=24, per_class=2)


def test_many_subjects_are_grouped_with_a_reason(many: Path) -> None:
    usual = printed("run", many, "--dry-run", "--time", "none")
    assert "10 folds for 24 subjects" in usual
    assert "on 10 folds with 3 seeds" in usual
    alone = printed("run", many, "--dry-run", "--folds", "all")
    assert "on 24 folds" in alone
    assert "folds for" not in alone
    assert "on 6 folds" in printed("run", many, "--dry-run", "--folds", 6)


def test_a_dry_run_lists_the_same_stages_whatever_the_time(many: Path) -> None:
    short, whole = (printed("run", many, "--dry-run", "--time", time) for time in ("60s", "none"))
    assert "1. two linear models" in short
    assert "3. network eegnet, seed 0" in short
    assert "time limit 1:00" in short
    assert "time limit" not in whole
    stages = [[line for line in text.splitlines() if re.match(r"#   \d+\. ", line)] for text in (short, whole)]
    assert stages[0] == stages[1] != []
    with pytest.raises(UserError, match=r"'soon'.*1h30m"):
        printed("run", many, "--dry-run", "--time", "soon")
    with pytest.raises(UserError, match="folds"):
        printed("run", many, "--dry-run", "--folds", "some")
