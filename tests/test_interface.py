"""Names, commands and file formats that programs outside this project call. A change here is a change for users."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.main import get_command

import autotransfer as at
from autotransfer.cli import app
from faults import printed
from tiny import tiny_file

PUBLIC = [
    "AutoTransferClassifier", "AutoTransferRegressor", "CensoredClassifier", "EEGNet", "Job", "Recordings", "Session",
    "Setting", "UserError", "export_model", "from_pretrained", "grid", "leakage", "leave_one_subject_out", "load",
    "load_model", "make_censor", "moabb_results", "plan_study", "plot", "save_model", "scores", "synthetic", "train",
]  # fmt: skip
COMMANDS = [
    "demo", "inspect", "run", "resume", "status", "report", "predict", "calibrate", "stream", "export", "compare",
    "plan-study", "datasets",
]  # fmt: skip
RUN_OPTIONS = [
    "--out", "--time", "--adaptation", "--kinds", "--metric", "--target", "--hold-out", "--at-least", "--grid",
    "--folds", "--seeds", "--seed", "--device", "--cluster", "--clean", "--encoder", "--config", "--dry-run",
    "--quiet", "--verbose", "--window", "--hop", "--offset", "--events", "--pattern", "--sfreq", "--filter",
    "--epochs", "--networks", "--as-printed", "--search", "--trials", "--plan", "--sep", "--decimal", "--time-column",
]  # fmt: skip
COLUMNS = [
    "stage", "method", "mode", "strength", "estimator", "length_scale", "regularization", "standardize", "fold",
    "validation_subject", "test_subject", "seed", "best_epoch", "validation_score", "test_score", "seconds",
]  # fmt: skip
SMALL = ("--epochs", 2, "--seeds", 1, "--time", "none", "--device", "cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, brief_results: None) -> Path:
    folder = tmp_path_factory.mktemp("data")
    printed("run", tiny_file(folder), "--out", folder / "run", "--networks", "none", *SMALL)
    return folder / "run"


def test_public_names_exist() -> None:
    missing = [name for name in PUBLIC if not hasattr(at, name)]
    assert not missing
    assert {"stein", "tikhonov", "ssge", "nu_method"} <= set(dir(at.scores))


def test_commands_and_options_are_accepted() -> None:
    commands: Any = get_command(app).commands  # type: ignore[attr-defined]
    assert set(COMMANDS) <= set(commands)
    accepted = {flag for parameter in commands["run"].params for flag in parameter.opts}
    assert set(RUN_OPTIONS) <= accepted, set(RUN_OPTIONS) - accepted


def test_a_run_leaves_the_files_that_programs_read(run: Path) -> None:
    results = pd.read_csv(run / "results.csv")
    assert set(COLUMNS) <= set(results.columns)
    choice = json.loads((run / "choice.json").read_text())
    assert {"chosen", "paper_network", "validation_q25", "test_scores", "nested_test_scores", "baselines"} <= set(
        choice
    )
    assert set(choice["nested_test_scores"]) == {"0", "1", "2", "3"}
    assert (run / "report.html").exists()
    assert (run / "model").is_dir()
    scores = pd.read_csv(run / "scores.csv", dtype={"subject": str})
    delivered = scores[scores["role"] == "delivered"].set_index("subject")["score"]
    assert delivered.to_dict() == pytest.approx(choice["nested_test_scores"])
    assert set(scores.loc[scores["role"] == "baseline", "model"]) == set(choice["baselines"])
    assert list(at.plot.subjects(run).data[0].x) == pytest.approx(delivered.tolist())


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    words = ["run", str(tiny_file(tmp_path)), "--out", str(tmp_path / "r"), "--grid", "best"]
    command = [sys.executable, "-m", "autotransfer", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "best" in done.stderr
