"""Names, commands and file formats that programs outside this project call. A change here is a change for users."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app
from autotransfer.recordings import save_npz
from tiny import tiny

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
SMALL = {"epochs": 2, "seeds": 1, "time": "none", "device": "cpu"}


def cli(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, f"{arguments}: {result.output} {result.exception!r}"
    return result.output


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "tiny.npz"
    save_npz(path, tiny())
    return path


@pytest.fixture(scope="module")
def run(data: Path) -> Path:
    folder = data.parent / "run"
    options = [text for name, value in SMALL.items() for text in (f"--{name}", value)]
    cli("run", data, "--out", folder, "--networks", "none", *options)
    return folder


def test_public_names_exist() -> None:
    missing = [name for name in PUBLIC if not hasattr(at, name)]
    assert not missing
    assert {"stein", "tikhonov", "ssge", "nu_method"} <= set(dir(at.scores))


def test_commands_and_options_are_accepted() -> None:
    listed = {command.name for command in app.registered_commands} | {
        command.callback.__name__.replace("_", "-") for command in app.registered_commands if command.callback
    }
    assert set(COMMANDS) <= listed
    from typer.main import get_command

    run_command: Any = get_command(app).commands["run"]  # type: ignore[attr-defined]
    accepted = {flag for parameter in run_command.params for flag in parameter.opts}
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


def test_a_mistake_is_one_line_and_exit_code_2(data: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "autotransfer", "run", str(data), "--out", str(tmp_path / "r"), "--grid", "best"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "best" in done.stderr
