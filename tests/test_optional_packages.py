"""Packages that a use does not need are not imported for it; one that it needs is missed before any work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import autotransfer as at
from autotransfer.errors import UserError
from tiny import tiny_file

BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocked())
"""
LIBRARY = """
import torch, autotransfer as at

censor = at.make_censor("mmd", "marginal", latent_dim=4, n_classes=2, n_subjects=3)
z, y, subject = torch.randn(12, 4, requires_grad=True), torch.arange(12) % 2, torch.arange(12) % 3
censor(z, y, subject).sum().backward()
recordings = at.synthetic(n_subjects=4, trials_per_class=4, n_channels=3, n_times=32)
setting = at.Setting(method="mmd", strength=1.0, max_epochs=1, batch_size=8)
job = at.Job(setting, at.leave_one_subject_out(recordings)[0])
assert len(at.train(recordings, [job], device="cpu")) == 1
X, y, subjects = recordings.X.numpy(), recordings.y.numpy(), recordings.subject.numpy()
at.CensoredClassifier(max_epochs=1, batch_size=8, device="cpu").fit(X, y, subjects=subjects).predict(X[:2])
at.EEGNet
"""
PROCEDURE = """
import autotransfer as at

recordings = at.synthetic(n_subjects=3, trials_per_class=4, n_channels=3, n_times=32)
X, y, subjects = recordings.X.numpy(), recordings.y.numpy(), recordings.subject.numpy()
auto = at.AutoTransferClassifier(grid="uncensored", prepare=None, epochs=1, batch_size=8, device="cpu")
auto.fit(X, y, subjects=subjects).predict(X[:2])
"""


def python(code: str, *blocked: str, args: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """The code in a process of its own, in which these packages cannot be imported."""
    text = f"BLOCKED = {set(blocked)!r}\n{BLOCK}\n{code}"
    return subprocess.run([sys.executable, "-c", text, *args], capture_output=True, text=True, env=dict(os.environ))


@pytest.mark.parametrize(
    ("code", "blocked"),
    [
        (LIBRARY, ("optuna", "plotly", "typer", "rich", "pandas", "triton")),
        (PROCEDURE, ("optuna", "plotly", "typer", "rich", "triton")),
    ],
    ids=["library", "procedure"],
)
def test_what_a_use_does_without(code: str, blocked: tuple[str, ...]) -> None:
    done = python(code, *blocked)
    assert done.returncode == 0, done.stderr[-2000:]


COMMAND = "import sys; from autotransfer.cli import main; main()"


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_missing_optuna_is_one_line_before_any_work(tmp_path: Path, more: tuple[str, ...]) -> None:
    wanted = ("run", "synthetic", "--out", str(tmp_path / "run"), "--search", "tpe", *more)
    done = python(COMMAND, "optuna", args=wanted)
    assert done.returncode == 2
    expected = "search tpe needs optuna, which is not installed; pip install 'optuna'"
    assert done.stderr == f"autotransfer: {expected}\n"
    assert done.stdout == ""
    assert not (tmp_path / "run").exists()


def test_so_are_a_missing_driver_and_what_a_resumed_run_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autotransfer.runs.options import RunOptions
    from autotransfer.runs.run import Run
    from autotransfer.search.procedure import conduct

    options = RunOptions(source=str(tiny_file(tmp_path)), search="tpe", epochs=1, storage="postgresql+psycopg://nobody")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(
        UserError, match=r"needs psycopg, which is not installed; pip install 'autotransfer\[postgres\]'"
    ):
        Run.create(tmp_path / "run", options)
    assert not (tmp_path / "run").exists()
    run = Run.create(tmp_path / "run", RunOptions(source=options.source, search="tpe", epochs=1))
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match="search tpe needs optuna"):
        conduct(run, print)
    assert run.ledger.entries() == []
    run.ledger.close()
    again = Run.open(tmp_path / "run")  # it can still be read, for its status or report
    again.ledger.close()
    with pytest.raises(UserError, match="search tpe needs optuna"):
        at.AutoTransferClassifier(search="tpe").fit([[[0.0]]], [0], subjects=[0])
