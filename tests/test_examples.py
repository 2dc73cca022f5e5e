"""The code in the README and in examples/ runs as written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


OPTIONAL = ("mne", "lightning", "skorch")


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_example(path: Path) -> None:
    for package in OPTIONAL:
        if re.search(rf"^(import|from) {package}\b", path.read_text(), re.MULTILINE):
            pytest.importorskip(package, reason=f"{path.name} shows how to use it")
    result = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_readme_snippets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    for package in ("mne", "moabb"):
        pytest.importorskip(package, reason=f"the README shows {package}")
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    mine = {"X": generator.standard_normal((40, 3, 32)), "y": np.arange(40) % 2, "subject": np.arange(40) // 10}
    assert len(BLOCKS) == 7
    for block in BLOCKS:
        exec(block.replace("max_epochs=30", "max_epochs=1"), dict(mine))
    import autotransfer as at

    assert at.load("mine.npz").sfreq == 200
    printed = capsys.readouterr().out
    assert printed.count("chance") == 16
    assert "mmd conditional 1" in printed
    assert "60 trials × 3 channels" in printed
    assert "score" in printed
    assert "pipeline" in printed
