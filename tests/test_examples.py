"""The code in the README and in examples/ runs as written, from an empty folder."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
OPTIONAL = ("mne", "mne_bids", "moabb", "pyriemann", "lightning", "skorch", "matplotlib")
WRITES_EDF = ("plot_03_few_labels", "plot_05_ecg_edf")
QUICK = ("plot_07_evoked_responses",)
SHOW = "import runpy, sys, matplotlib.pyplot as plt; runpy.run_path(sys.argv[1]); print(plt.get_fignums())"


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] if path.stem not in QUICK else []) for path in EXAMPLES],
    ids=lambda path: path.name,
)
def test_example(path: Path, tmp_path: Path) -> None:
    for package in OPTIONAL:
        if re.search(rf"^(import|from) {package}\b", path.read_text(), re.MULTILINE):
            pytest.importorskip(package, reason=f"{path.name} shows how to use it")
    if path.stem in WRITES_EDF:
        pytest.importorskip("edfio", reason=f"{path.name} writes .edf files")
    is_drawn = path.stem.startswith("plot_")
    command = [sys.executable, *(["-c", SHOW] if is_drawn else []), str(path)]
    env = os.environ | {"MPLBACKEND": "Agg"}
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "[1]" if is_drawn else result.stdout
    assert not list(tmp_path.iterdir())  # the gallery is drawn in the folder of the examples


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


def test_every_example_has_a_title_for_the_gallery() -> None:
    for path in EXAMPLES:
        title, line = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[:2]
        assert line == "=" * len(title), path.name


def test_readme_blocks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that the first block writes is inspected, trained on and used by what follows."""
    monkeypatch.chdir(tmp_path)
    rec = at.synthetic(n_subjects=6, n_times=32)
    X, y, subject = rec.X.numpy(), rec.y.numpy(), rec.subject.numpy()
    known, new = subject < 5, subject == 5
    names: dict[str, object] = {"X": X[known], "y": y[known], "subject": subject[known]}
    names |= {"X_new": X[new], "y_new": y[new]}
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    exec(blocks[0], names)
    np.savez("new.npz", X=X[new])
    # quick: what each command does is tested elsewhere
    changes = {"autotransfer run study.npz": " --kinds linear --networks none --time none", "autotransfer export": None}
    shell = "\n".join(re.findall(r"```bash\n(.*?)```", README, re.DOTALL))
    for line in re.findall(r"^autotransfer [^#\n]*", shell, re.MULTILINE):
        more = next((more for start, more in changes.items() if line.startswith(start)), "")
        if more is not None:
            result = CliRunner().invoke(app, shlex.split(line + more)[1:])
            assert result.exit_code == 0, result.output
    exec(blocks[1], names)
