"""The options --dry-run, --folds and --time decide how long a run takes."""

from __future__ import annotations

import re
import time
import tomllib
from pathlib import Path

import pytest

from autotransfer.errors import UserError
from autotransfer.runs.choice import read_choice
from autotransfer.runs.progress import status_lines
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


@pytest.mark.slow
def test_a_run_with_a_limit_ends_in_time_and_lists_undelivered_stages(tmp_path: Path) -> None:
    """On this machine, whatever else it does: three networks of 100,000 epochs do not fit."""
    out, source = tmp_path / "run", tiny_file(tmp_path, n_subjects=5)
    start = time.monotonic()
    answer = printed(
        "run", source, "--out", out, "--time", "60s", "--epochs", 100_000, "--set", "batch_size=8", "--device", "cpu"
    )
    assert time.monotonic() - start < 60 + 60, "the end of a run is a few seconds, on a busy machine more"
    choice = read_choice(out)
    assert choice.undelivered_stages
    assert choice.undelivered_stages[0] in answer
    assert set(choice.nested_test_scores) == {str(person) for person in range(5)}
    assert "finished" in status_lines(out)[0]
    study = tomllib.loads((out / "study.toml").read_text())
    assert study["time"] == "60s"
    assert "training" in printed("run", "--config", out / "study.toml", "--dry-run", "--time", "2h")
