"""The code in the README and in examples/ runs as written, from an empty folder."""

from __future__ import annotations

import ast
import importlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import autotransfer as at
from tiny import tiny_file

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
OPTIONAL = ("mne", "mne_bids", "moabb", "pyriemann", "lightning", "skorch", "matplotlib")
WRITES_EDF = ("ecg_edf", "eeg_bids")
WITHOUT_FIGURE = ("lightning_module", "skorch_net")  # classes to copy


# Those that take longest, and go ways that other tests go too.
SLOW = {"wearable_npz", "own_loop", "skorch_net", "lightning_module", "moabb_pipelines", "emg_csv",
        "sklearn_estimator", "ecg_edf", "eeg_bids", "stream_person", "mne_epochs"}  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] if path.stem in SLOW else []) for path in EXAMPLES],
    ids=lambda path: path.name,
)
def test_example(path: Path, tmp_path: Path) -> None:
    for package in OPTIONAL:
        if re.search(rf"^(import|from) {package}\b", path.read_text(), re.MULTILINE):
            pytest.importorskip(package, reason=f"{path.name} shows how to use it")
    if path.stem in WRITES_EDF:
        pytest.importorskip("edfio", reason=f"{path.name} writes .edf files")
    command, env = [sys.executable, str(path)], os.environ | {"MPLBACKEND": "svg"}
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout
    if path.stem not in WITHOUT_FIGURE:
        assert "<svg" in (tmp_path / f"{path.stem}.svg").read_text()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_asks_for_what_there_is(path: Path) -> None:
    """Names of the package, also where the example itself runs in the slow suite."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    asked = [one.attr for one in nodes if isinstance(one, ast.Attribute) and getattr(one.value, "id", "") == "at"]
    assert asked
    assert all(hasattr(at, name) for name in asked), asked
    for one in nodes:
        if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("autotransfer"):
            module = importlib.import_module(one.module or "")
            assert all(hasattr(module, alias.name) for alias in one.names), ast.unparse(one)


def test_the_gallery_shows_every_example_and_its_figure() -> None:
    page = (ROOT / "docs/gallery.md").read_text()
    for name in (path.stem for path in EXAMPLES if path.stem not in WITHOUT_FIGURE):
        assert f'--8<-- "examples/{name}.py"' in page
        assert f"(images/gallery/{name}.svg)" in page
        assert (ROOT / f"docs/images/gallery/{name}.svg").exists()


def test_readme_blocks_run_in_order_and_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "readme"}
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    for block in blocks:
        exec(block, names)
    first = re.search(r"never seen: (\d\.\d\d)", capsys.readouterr().out)
    assert first is not None
    assert float(first[1]) > 0.65, "the example is on data that can be learned"
    assert len([line for line in blocks[0].splitlines() if line and not line.startswith("import")]) <= 6


def test_readme_leads_to_files_that_are_there() -> None:
    found = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("https://")]
    assert "docs/results/gained.svg" in found
    assert [link for link in found if not (ROOT / link.partition("#")[0]).exists()] == []
    for command in ("pip install autotransfer", "make demo", "make test"):
        assert command in README


@pytest.mark.slow
def test_the_picture_of_censoring_can_be_drawn_again(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures are drawn with the extra 'docs'")
    command = [sys.executable, str(ROOT / "docs/idea.py"), "--out", str(tmp_path), "--epochs", "1"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    assert "person read in" in (tmp_path / "idea.svg").read_text()


@pytest.mark.slow
def test_a_piece_of_a_slurm_array_begins_stops_resumes_and_ends(tmp_path: Path) -> None:
    """The batch script without SLURM: TERM as it is sent before the time is up, then the next pieces."""
    data = tiny_file(tmp_path)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "autotransfer").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m autotransfer "$@"\n')
    (folder / "autotransfer").chmod(0o755)
    env = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    command = ["bash", str(ROOT / "examples/study.sbatch"), str(data), "run", "--epochs", "60", "--seeds", "1"]
    first = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while not (tmp_path / "run/run.sqlite").exists() and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.5)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=120)
    assert first.returncode == 143
    for _ in range(2):
        piece = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert piece.returncode == 0, piece.stderr
    assert "is finished" in piece.stdout
