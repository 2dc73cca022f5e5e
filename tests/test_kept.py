"""Models, runs and sessions that earlier versions have written (kept/VERSION.tar.xz, made by kept/keep.py) still work.

Which of them a version opens is said in CONTRIBUTING.md, "Versions".
"""

from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app
from autotransfer.errors import UserError

KEPT = sorted((Path(__file__).parent / "kept").glob("*.tar.xz"))
TOLERANCE = 1e-6  # of probabilities: the machine that wrote the files may round otherwise


def version_of(path: Path) -> tuple[int, int]:
    major, minor = re.match(r"(\d+)\.(\d+)\.", path.name).groups()  # type: ignore[union-attr]  # of our own names
    return int(major), int(minor)


@pytest.fixture(params=KEPT, ids=lambda path: path.name.removesuffix(".tar.xz"))
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def new_person(folder: Path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Windows (8, channels, times) of somebody new, and what each model said of them when it was kept."""
    with np.load(folder / "new.npz") as new, np.load(folder / "probabilities.npz") as said:
        return new["X"], dict(said)


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_version_before_is_among_them() -> None:
    major, minor = map(int, at.__version__.split(".")[:2])
    assert (major, minor - 1) in map(version_of, KEPT)


def test_models_predict_what_they_did(kept: Path) -> None:
    X, expected = new_person(kept)
    for name in ("run", "one", "calibrated"):
        found = at.load_model(str(kept / name)).predict_proba(X)
        np.testing.assert_allclose(found, expected[name], rtol=0, atol=TOLERANCE, err_msg=name)
    assert np.abs(expected["run"] - expected["calibrated"]).max() > 100 * TOLERANCE  # they are told apart


def test_a_session_goes_on(kept: Path) -> None:
    X, expected = new_person(kept)
    session = at.Session.load(kept / "person.session", str(kept / "run"))
    assert session.n_windows == 4
    np.testing.assert_allclose(session.predict_proba(X[4:]), expected["session"], rtol=0, atol=TOLERANCE)


def test_a_finished_run_is_read(kept: Path) -> None:
    run, out = kept / "run", kept / "predictions.csv"
    assert "finished" in call("status", run)
    call("report", run)
    assert "INCOMPLETE" not in (run / "report.html").read_text(encoding="utf-8")
    before = (run / "results.csv").read_bytes()
    assert "finished" in call("resume", run, "--data", kept / "study.npz")
    assert (run / "results.csv").read_bytes() == before
    call("predict", run, kept / "new.npz", "--out", out)
    assert len(out.read_text(encoding="utf-8").splitlines()) == 1 + 8
    call("calibrate", run, kept / "new.npz", "--out", kept / "again")
    X, expected = new_person(kept)
    found = at.load_model(str(kept / "again")).predict_proba(X)
    np.testing.assert_allclose(found, expected["calibrated"], rtol=0, atol=TOLERANCE)
    shutil.rmtree(run / "model")
    for _ in range(2):  # a refusal leaves nothing behind
        result = CliRunner().invoke(app, ["resume", str(run), "--data", str(kept / "study.npz")])
        assert result.exit_code == 2 or isinstance(result.exception, UserError)
        assert "earlier version" in result.output + str(result.exception)
