"""How long a run takes, as a user asks for it: --dry-run, --folds, --quick and --time."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autotransfer.cli import app
from autotransfer.errors import UserError
from autotransfer.runs.choice import read_choice
from autotransfer.runs.options import RunOptions
from autotransfer.runs.progress import standing
from autotransfer.search import budget as budgets
from autotransfer.search import estimate as estimates
from autotransfer.search.estimate import Costs
from tiny import tiny_file


def told(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def many(tmp_path: Path) -> Path:
    return tiny_file(tmp_path, n_subjects=24, per_class=2)


@pytest.fixture
def known_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every training of a network takes a second."""

    class Known(Costs):
        def training(self, setting: Any, options: RunOptions) -> float:
            return 0.0 if setting.network.closed_form else 1.0

    monkeypatch.setattr(estimates, "WRITING", 0.0)
    monkeypatch.setattr(estimates, "ENDING", 0.0)
    monkeypatch.setattr(Costs, "measure", classmethod(lambda cls, recordings, *_: Known(recordings, {}, 0)))


def test_many_people_are_grouped_and_told_why(many: Path, known_costs: None) -> None:
    usual = told("run", many, "--dry-run")
    assert "10 folds, because there are 24 people" in usual
    assert "8 candidates on 10 folds with 3 seeds" in usual
    assert "4:00" in usual, "240 trainings"
    alone = told("run", many, "--dry-run", "--folds", "all")
    assert "on 24 folds" in alone
    assert "because" not in alone
    assert "on 6 folds" in told("run", many, "--dry-run", "--folds", 6)


def test_a_dry_run_names_what_is_shorter(many: Path, known_costs: None) -> None:
    usual = told("run", many, "--dry-run")
    for line in (
        "--quick: about 0:20",
        "--grid uncensored: about 2:00",
        "--seeds 1: about 1:20",
        "--folds 5: about 2:00",
    ):
        assert line in usual
    assert "4 candidates on 5 folds with 1 seed" in told("run", many, "--dry-run", "--quick")
    assert "4 candidates on 5 folds with 2 seeds" in told("run", many, "--dry-run", "--quick", "--seeds", 2)


def test_a_dry_run_with_a_budget_says_what_is_left_out(many: Path, known_costs: None) -> None:
    planned = told("run", many, "--dry-run", "--time", "2m")
    assert "planned for 2m; left out: networks with penalties" in planned
    with pytest.raises(UserError, match="time 1s is too short"):
        told("run", many, "--dry-run", "--time", "1s")
    with pytest.raises(UserError, match="write it as"):
        told("run", many, "--dry-run", "--time", "soon")
    with pytest.raises(UserError, match="folds"):
        told("run", many, "--dry-run", "--folds", "some")


@pytest.mark.slow
def test_a_run_with_a_budget_ends_in_time_and_says_what_it_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On this machine, whatever else it does: three networks of 100,000 epochs do not fit."""
    monkeypatch.setattr(budgets, "PART", 0.0)  # however short it is
    out, source = tmp_path / "run", tiny_file(tmp_path, n_subjects=5)
    start = time.monotonic()
    answer = told(
        "run", source, "--out", out, "--time", "60s", "--epochs", 100_000, "--batch-size", 8, "--device", "cpu"
    )
    assert time.monotonic() - start < 60 + 60, "the end of a run is a few seconds, on a busy machine more"
    choice = read_choice(out)
    assert choice.left_out
    assert f"left out, for want of time: {choice.left_out[0]}" in answer
    assert set(choice.nested_test_scores) == {str(person) for person in range(5)}
    page = (out / "report.html").read_text()
    assert "for want of time" in page
    assert "finished" in standing(out)[0]
    study = tomllib.loads((out / "study.toml").read_text())
    assert study["time"] == "60s"
    assert "training" in told("run", "--config", out / "study.toml", "--dry-run", "--time", "2h")
