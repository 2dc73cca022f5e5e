"""Commands have exit codes, one-line errors and outputs."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import faults
from autotransfer.recordings import save_npz
from autotransfer.runs.lock import Lock
from tiny import tiny, tiny_file

pytestmark = pytest.mark.usefixtures("brief_results")

LONG = ["--epochs", "5000", "--set", "patience=5000", "--kinds", "features", "--networks", "main"]


def call(*arguments: object) -> subprocess.CompletedProcess[str]:
    """In this process."""
    code, out, err = faults.call(*arguments)
    return subprocess.CompletedProcess(list(map(str, arguments)), code, out, err)


def assert_mistake(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert result.returncode == 2, result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    for word in words:
        assert word in lines[0]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("cli")
    source = tiny_file(folder, name="<script>alert(1)</script>")
    return folder, call("run", source, "--out", folder / "run", "--epochs", 2, "--seeds", 1, "--device", "cpu")


def test_run_writes_all_files_and_prints_the_result(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, result = finished
    assert result.returncode == 0, result.stderr
    run = folder / "run"
    for name in ("results.csv", "choice.json", "report.html", "model/model.safetensors", "model/model.json"):
        assert (run / name).exists(), name
    first, *lines = result.stdout.splitlines()
    assert first.startswith("Read 4 subjects, 48 windows of 2 channels")
    last = lines[next(n for n, line in enumerate(lines) if line.startswith("Score: ")) :]
    assert len(last) <= 8
    assert last[-1] == f"report: {run / 'report.html'}"
    page = (run / "report.html").read_text()
    assert "<script>alert(1)</script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_resume_of_a_finished_run(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = finished
    before = (folder / "run" / "results.csv").read_bytes()
    result = call("resume", folder / "run")
    assert result.returncode == 0
    assert "is finished" in result.stdout
    assert (folder / "run" / "results.csv").read_bytes() == before


def test_resume_restores_the_result_of_a_finished_run(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    path = finished[0] / "run" / "choice.json"
    before = path.read_bytes()
    path.unlink()
    result = call("resume", path.parent)
    assert (result.returncode, result.stderr) == (0, "")
    assert path.read_bytes() == before


def test_options_without_effect_are_told(tmp_path: Path) -> None:
    few = ["run", tiny_file(tmp_path), "--dry-run", "--kinds", "features", "--networks", "none"]
    assert "without effect" not in call(*few).stdout
    told = call(*few, "--set", "lr=0.1", "--seeds", 5, "--folds", 20).stdout
    assert "no network is trained; options without effect: lr, seeds" in told
    assert "20 folds were requested, but there are only 4 subjects" in told


def test_status(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    result = call("status", finished[0] / "run")
    assert result.returncode == 0
    choice = json.loads((finished[0] / "run" / "choice.json").read_text())
    assert f"finished; {choice['end_reason']}" in result.stdout
    trained = len(pd.read_csv(finished[0] / "run" / "results.csv"))
    assert trained, "however slow the machine is, its first stage is delivered"
    assert f"{trained} of {trained} fits done" in result.stdout


def test_status_needs_no_torch(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    run = finished[0] / "run"
    code = "import sys; from autotransfer.cli import app; app(['status', sys.argv[1]], standalone_mode=False); "
    code += "print([m for m in ('torch', 'scipy', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code, run], capture_output=True, text=True, check=True)
    assert done.stdout == f"{call('status', run).stdout}[]\n"


def test_predict(finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    folder, _ = finished
    result = call("predict", folder / "run", folder / "tiny.npz", "--out", tmp_path / "p.csv")
    assert result.returncode == 0, result.stderr
    table = pd.read_csv(tmp_path / "p.csv")
    assert list(table.columns) == ["window", "subject", "prediction", "p_left", "p_right"]
    assert len(table) == 48
    np.testing.assert_allclose(table[["p_left", "p_right"]].sum(axis=1), 1, atol=1e-6)
    told = result.stderr.splitlines()
    assert told[0] == "Predicted 48 windows: left 24, right 24"
    assert "trained on windows of 4 subjects" in told[1]
    assert any(line.startswith("balanced accuracy on 4 subjects (chance .500): mean ") for line in told)
    assert any(line.split()[:1] == ["left"] for line in told[-2:]), "a confusion matrix"
    by_person = tmp_path / "scores.csv"
    again = call(
        "predict", folder / "run", folder / "tiny.npz", "--metric", "cohen_kappa", "--scores", by_person, "--quiet"
    )
    assert again.stderr == ""
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(again.stdout)), table)  # nothing but predictions
    scores = pd.read_csv(by_person)
    assert (len(scores), scores["windows"].sum()) == (4, 48)
    right = scores["left as left"].sum() + scores["right as right"].sum()
    assert right == (table["prediction"] == np.where(tiny().y.numpy() == 0, "left", "right")).sum()
    assert_mistake(
        call("predict", folder / "run", folder / "tiny.npz", "--metric", "recall"), "unknown metric 'recall'"
    )
    other = tmp_path / "other.npz"
    np.savez(other, X=tiny().X.numpy()[:3], y=["left", "up", "left"])
    strange = call("predict", folder / "run", other)
    assert strange.returncode == 0, "predictions need no labels"
    assert "no scores: y has the class 'up'" in strange.stderr
    np.savez(other, X=tiny().X.numpy()[:3], y=["left", "", "right"])
    partly = call("predict", folder / "run", other)
    assert len(partly.stdout.strip().splitlines()) == 4, "all windows are predicted"
    assert "1 of 3 windows have no label and no score" in partly.stderr
    assert "balanced accuracy on 2 windows" in partly.stderr
    unlabeled = tmp_path / "new.npz"
    np.savez(unlabeled, X=tiny().X.numpy()[:3])
    assert_mistake(call("predict", folder / "run", unlabeled, "--scores", by_person), "has no labels y")
    assert_mistake(call("predict", tmp_path, folder / "tiny.npz"), "there is no model")


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    source = tiny_file(tmp_path)
    out = tmp_path / "run"
    assert_mistake(call("run", "gesture", "--out", out), "gesture", "gestures", "synthetic")
    assert_mistake(call("run", source, "--out", out, "--grid", "big"), "unknown grid 'big'", "quick")
    assert_mistake(call("run", source, "--out", out, "--device", "tpu9"), "tpu9", "choose auto, cpu or cuda")
    assert_mistake(call("run", source, "--out", out, "--epochs", 0), "max_epochs is 0")
    assert_mistake(call("resume", tmp_path / "nowhere"), "there is no folder")
    assert_mistake(call("resume", tmp_path), "is not a run")
    assert_mistake(call("status", tmp_path), "is not a run")
    recordings = tiny()
    X = recordings.X.numpy().copy()
    X[3, 0, 2] = np.nan
    np.savez(tmp_path / "nan.npz", X=X, y=recordings.y.numpy(), subject=recordings.subject.numpy())
    assert_mistake(call("run", tmp_path / "nan.npz", "--out", out), "NaN")
    assert not out.exists()


def test_dry_run_trains_nothing(tmp_path: Path) -> None:
    result = call("run", tiny_file(tmp_path), "--out", tmp_path / "run", "--epochs", 5, "--dry-run")
    assert result.returncode == 0, result.stderr
    work = "96 fits of up to 5 epochs: 8 networks on 4 folds with 3 seeds, and 10 linear models"
    counted = re.search(rf"^# {work}(?:, (\d+) of them also for online sessions)?$", result.stdout, re.MULTILINE)
    assert counted is not None
    solved = re.findall(r"linear models: (\d+) fits(?:, and (\d+) for online sessions)?", result.stdout)
    assert sum(int(n or 0) for pair in solved for n in pair) == 4 * (10 + int(counted[1] or 0)), (
        "the lines of the stages count the same"
    )
    assert "fold 0: test 0" in result.stdout
    assert not (tmp_path / "run").exists()


def test_help_is_quick_and_datasets_are_listed() -> None:
    call("--help")
    start = time.process_time()  # of this process alone: the machine may be busy
    result = call("--help")
    assert time.process_time() - start < 2.0  # .3 s on an idle machine
    for command in ("demo", "run", "resume", "status", "report", "predict", "datasets"):
        assert command in result.stdout
    listed = call("datasets").stdout
    assert "gestures" in listed
    assert "synthetic" in listed


def test_status_of_what_is_starting_or_not_there(tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        assert_mistake(call("status", folder), "is not a run", "start one with: autotransfer run")
    with Lock(tmp_path):
        assert_mistake(call("status", tmp_path), f"a run is starting in {tmp_path}")


@pytest.mark.parametrize("dry", [False, True])
def test_an_interrupt_before_a_run_leaves_nothing(tmp_path: Path, dry: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    words = ("run", tiny_file(tmp_path), "--out", tmp_path / "run", "--device", "cpu", *["--dry-run"] * dry)
    with monkeypatch.context() as patch:
        patch.setattr("autotransfer.runs.options.RunOptions.load", interrupt)
        result = call(*words)
    assert result.returncode == 130
    assert result.stderr.strip() == "interrupted; nothing was written"
    assert not (tmp_path / "run").exists()
    if dry:
        return
    monkeypatch.setattr("autotransfer.cli.run_commands.execute_run", interrupt)
    result = call(*words)
    assert result.returncode == 130
    assert result.stderr.strip().endswith(f"interrupted; continue with: autotransfer resume {tmp_path / 'run'}")


def test_interrupt_prints_how_to_resume_and_a_report_is_marked(tmp_path: Path) -> None:
    source = tmp_path / "data.npz"
    save_npz(source, tiny(3))
    process = faults.Command("run", source, "--out", tmp_path / "run", *LONG, "--device", "cpu", log=tmp_path / "log")
    deadline = time.monotonic() + 300
    while not list((tmp_path / "run").glob("*.checkpoint")):
        assert time.monotonic() < deadline
        assert process.running(), process.said()
        time.sleep(0.05)
    second = call("resume", tmp_path / "run")
    assert_mistake(second, "in use by another process")
    third = call("run", source, "--out", tmp_path / "run")
    assert_mistake(third, "already holds a run, which is being trained")
    status = call("status", tmp_path / "run").stdout
    assert "running, " in status
    assert re.search(r"[1-9]\d* running", status)
    assert re.search(r"[1-9] stages? done, predict can be used", status)
    os.kill(process.process.pid, signal.SIGINT)
    assert process.wait() == 130, process.said()
    errors = process.said()
    assert f"continue with: autotransfer resume {tmp_path / 'run'}" in errors
    assert "the interim result is saved" in errors
    assert "Traceback" not in errors
    assert "interrupted" in call("status", tmp_path / "run").stdout
    result = call("report", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    page = (tmp_path / "run" / "report.html").read_text()
    assert "SO FAR" in page[page.index("<title>") : page.index("</title>")]
    result = call("predict", tmp_path / "run", source)
    assert result.returncode == 0, result.stderr
    assert "not finished" in result.stderr
