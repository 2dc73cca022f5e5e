"""Names, commands and file formats that programs outside this project call. A change here is a change for users."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app
from autotransfer.recordings import save_npz
from tiny import tiny

PUBLIC = [
    "AutoTransferClassifier", "AutoTransferRegressor", "CensoredClassifier", "EEGNet", "Job", "Recordings", "Session",
    "Setting", "UserError", "export_model", "from_pretrained", "grid", "leakage", "leave_one_subject_out", "load",
    "load_model", "make_censor", "moabb_results", "plan_study", "save_model", "scores", "synthetic", "train",
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


def test_commands_work_on_a_finished_run(run: Path, data: Path, tmp_path: Path) -> None:
    assert "finished" in cli("resume", run)
    cli("status", run)
    cli("report", run)
    cli("report", run, "--methods")
    cli("predict", run, data, "--out", tmp_path / "predicted.csv")
    assert len(pd.read_csv(tmp_path / "predicted.csv")) == len(np.load(data)["y"])
    person = tmp_path / "person.npz"
    with np.load(data) as loaded:
        mine = loaded["subject"] == 0
        np.savez(person, **{name: loaded[name][mine] for name in ("X", "y", "subject")}, meta=loaded["meta"])
    cli("calibrate", run, person, "--out", tmp_path / "calibrated")
    cli("compare", run, run)
    cli("export", run, "--format", "safetensors", "--out", tmp_path / "model.safetensors")
    cli("inspect", data)
    cli("datasets")


def test_a_mistake_is_one_line_and_exit_code_2(data: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "autotransfer", "run", str(data), "--out", str(tmp_path / "r"), "--grid", "best"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "best" in done.stderr


def test_training_and_penalties_from_python() -> None:
    rec = tiny()
    folds = at.leave_one_subject_out(rec)
    assert len(at.grid("paper")) == 346
    setting = at.Setting(
        method="mmd", mode="conditional", strength=1.0, max_epochs=2, batch_size=16, standardize="trial"
    )
    out = at.train(rec, [at.Job(setting, folds[0], seed=0)], device="cpu")
    for name in ("job", "best_epoch", "validation_score", "test_score", "history", "state", "population"):
        assert hasattr(out[0], name)

    net = at.EEGNet(2, 16, members=3)
    z = net(torch.randn(8, 2, 16))
    censor = at.make_censor(
        "mige", "marginal", latent_dim=z.shape[-1], n_classes=2, n_subjects=2, members=3, seed=0,
        estimator="stein", length_scale="median", regularization=1e-3,
    )  # fmt: skip
    y = torch.tensor([0, 1] * 4)
    s = torch.tensor([0, 0, 1, 1] * 2)
    assert censor(z, y, s).shape == (3,)
    censor.critic_loss(z, y, s)
    censor.after_step()
    assert at.scores.stein(torch.randn(5, 3)).shape == (5, 3)
    leak = at.leakage(torch.randn(40, 3), torch.arange(40) % 2)
    assert 0 <= leak.accuracy <= 1
    assert leak.chance == 0.5
    assert leak.bits >= 0


def test_estimators_and_a_session(tmp_path: Path) -> None:
    rec = tiny()
    X, y, s = rec.X.numpy(), rec.y, rec.subject
    clf = at.CensoredClassifier(method="adversary", mode="marginal", strength=0.1, max_epochs=2)
    clf.fit(X, y, subjects=s)
    assert clf.predict_proba(X).shape == (len(y), 2)
    assert clf.transform(X).shape[0] == len(y)
    session = at.Session(clf)
    live = np.stack([session.predict_proba(window) for window in X[:4]])
    np.testing.assert_allclose(live, clf.predict_proba(X[:4]), atol=1e-5)
    session.save(tmp_path / "person")
    at.Session.load(tmp_path / "person", clf)
    at.save_model(clf, tmp_path / "model")
    assert at.load_model(tmp_path / "model").classes_.tolist() == clf.classes_.tolist()
    assert at.from_pretrained(tmp_path / "model").predict(X).shape == y.shape
