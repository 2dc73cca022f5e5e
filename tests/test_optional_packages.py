"""Optional packages are imported only where needed, and a missing one is reported before any work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.report import page
from autotransfer.runs.run import Run
from autotransfer.search.procedure import perform_plan
from faults import assert_one_line, call, few_settings, words_of
from tiny import auto_classifier, create_run, described, tiny, tiny_file

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
recordings = at.synthetic(n_subjects=4, windows_per_class=4, n_channels=3, n_times=32)
setting = at.Setting(method="mmd", strength=1.0, max_epochs=1, batch_size=8)
job = at.Job(setting, at.leave_one_subject_out(recordings)[0])
assert len(at.train(recordings, [job], device="cpu")) == 1
X, y, subjects = recordings.X.numpy(), recordings.y.numpy(), recordings.subject.numpy()
at.CensoredClassifier(max_epochs=1, batch_size=8, device="cpu").fit(X, y, subjects=subjects).predict(X[:2])
at.EEGNet
"""
PROCEDURE = """
import autotransfer as at

recordings = at.synthetic(n_subjects=3, windows_per_class=4, n_channels=3, n_times=32)
X, y, subjects = recordings.X.numpy(), recordings.y.numpy(), recordings.subject.numpy()
auto = at.AutoTransferClassifier(
    "uncensored", adaptation="none", max_epochs=1, device="cpu", options={"batch_size": 8}
)
auto.fit(X, y, subjects=subjects).predict(X[:2])
"""


def python(code: str, *blocked: str, args: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """The code in a process of its own, in which these packages cannot be imported."""
    text = f"BLOCKED = {set(blocked)!r}\n{BLOCK}\n{code}"
    return subprocess.run([sys.executable, "-c", text, *args], capture_output=True, text=True, env=dict(os.environ))


@pytest.mark.slow
def test_a_use_works_without_optional_packages() -> None:
    """The library, and then in the same process the whole procedure, which needs pandas."""
    code = f"{LIBRARY}\nassert 'pandas' not in sys.modules\nBLOCKED.remove('pandas')\n{PROCEDURE}"
    done = python(code, "optuna", "plotly", "typer", "rich", "pandas", "triton")
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_missing_package_is_one_line_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process; in those of their own below nothing has been imported before."""
    for name in ["optuna", *(name for name in sys.modules if name.startswith("optuna."))]:
        monkeypatch.setitem(sys.modules, name, None)
    done = call("run", "synthetic", "--out", tmp_path / "run", "--search", "tpe")
    assert_one_line(done, 2, "search tpe needs optuna", "pip install optuna")
    assert not (tmp_path / "run").exists()


def test_a_run_that_needs_optuna_can_be_read_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run(tmp_path / "run", described(source=str(tiny_file(tmp_path)), search="tpe", max_epochs=1))
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match="search tpe needs optuna"):
        perform_plan(run, print)
    assert run.database.entries() == []
    run.database.close()
    again = Run.open(tmp_path / "run")
    again.database.close()
    recordings = tiny()
    with pytest.raises(UserError, match="search tpe needs optuna"):
        auto_classifier(search="tpe").fit(recordings.X, recordings.y, subjects=recordings.subject)


def test_a_report_that_cannot_be_drawn_fails_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> str:
        raise RuntimeError("no ink\nleft")

    monkeypatch.setattr(page, "render_page", broken)
    source, run = tiny_file(tmp_path, n_subjects=3), tmp_path / "run"
    with few_settings():
        result = call("run", source, *words_of(max_epochs=1), "--out", run)
        assert_one_line(
            result, 0, "the report could not be drawn (RuntimeError: no ink left)", f"autotransfer report {run}"
        )
        assert "Score: " in result.out
        assert "report:" not in result.out
        for name in ("choice.json", "results.csv", "model/model.safetensors"):
            assert (run / name).exists()
        assert "finished" in call("status", run).out
        recordings = at.load(source)
        arrays = recordings.X.numpy(), recordings.y.numpy()
        auto = auto_classifier(max_epochs=1, adaptation="none", device="cpu", run_folder=tmp_path / "fit")
        with pytest.warns(UserWarning, match="the report could not be drawn"):
            auto.fit(*arrays, subjects=recordings.subject.numpy())
    assert auto.predict(arrays[0][:2]).shape == (2,)
    monkeypatch.undo()
    with few_settings():
        assert call("report", run).code == 0
    assert "</html>" in (run / "report.html").read_text()
