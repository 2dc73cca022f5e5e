"""Forgetting people: nothing of them is left in the folder, and the run that follows is one that never had them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app
from autotransfer.cli.reporting import write_report
from autotransfer.recordings import save_npz
from autotransfer.runs import forgetting
from autotransfer.runs.lock import Lock
from autotransfer.runs.options import RunOptions
from autotransfer.runs.run import Run
from autotransfer.runs.study import read_study
from autotransfer.search.procedure import conduct
from tiny import tiny

NAMES = np.array(["p-wilhelm", "p-xaver", "p-yvonne", "p-zenzi", "p-ursula"])
LEAVES = "p-yvonne"


def save(file: Path, without: str | None = None) -> Path:
    rec = tiny(5)
    who = NAMES[rec.subject.numpy()]
    rows = who != without
    save_npz(file, at.Recordings(rec.X.numpy()[rows], rec.y.numpy()[rows], who[rows], sfreq=16, name="study"))
    return file


def conducted(folder: Path, options: RunOptions) -> Path:
    run = Run.create(folder, options)
    conduct(run, lambda _: None, shown=False, played=1)
    write_report(run)
    run.ledger.close()
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("forget")
    source = str(save(home / "data.npz"))
    options = RunOptions(source=source, epochs=1, grid="uncensored", seeds=1, device="cpu")
    return conducted(home / "run", options)


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def contents(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_nothing_of_the_person_is_left(run: Path) -> None:
    (run / "recordings.npz").write_bytes(b"their windows")
    (run / "model.onnx").write_bytes(b"a model of theirs")
    (run / "notes.txt").write_text("mine")
    assert LEAVES.encode() in contents(run)
    told = at.forget(run, [LEAVES])
    assert {path.name for path in run.iterdir()} == {"study.toml", "lock", "notes.txt"}
    assert LEAVES.encode() not in contents(run)
    assert told.others == ("notes.txt",)
    folds, candidates = 5, (told.trained_on_them + told.held_them_out) // 5
    assert told.held_them_out == 2 * candidates  # they tested one fold, and validated one
    assert told.trained_on_them == (folds - 2) * candidates
    with pytest.raises(at.UserError, match="is not a run"):
        at.forget(run, [LEAVES])


def test_files_of_the_user_stay_whatever_they_are_called(run: Path) -> None:
    for name in ("model.txt", "numbers.txt"):
        (run / name).write_text("mine")
    (run / "model.safetensors").write_bytes(b"an export")
    for name in ("model.backup", "model.onnx", "report.html.d", "optuna.sqlite.old"):
        (run / name).mkdir()
        (run / name / "notes.txt").write_text("mine")
    told = at.forget(run, [LEAVES])
    mine = ("model.backup", "model.onnx", "model.txt", "numbers.txt", "optuna.sqlite.old", "report.html.d")
    assert told.others == mine
    assert {path.name for path in run.iterdir()} == {"study.toml", "lock", *mine}
    assert (run / "model.backup" / "notes.txt").read_text() == "mine"


def test_every_file_that_a_run_leaves_is_known(finished: Path) -> None:
    """Whatever a run learns to write must be deleted too, or be known to hold nothing of anybody."""
    assert at.forget(finished, [LEAVES], dry_run=True).others == ()


def test_a_run_that_follows_equals_one_that_never_had_them(run: Path, tmp_path: Path) -> None:
    rest = save(tmp_path / "rest.npz", without=LEAVES)
    settings = read_study(run / "study.toml")
    at.forget(run, [LEAVES])
    assert read_study(run / "study.toml") == settings
    options = RunOptions.of("recommended", source=str(rest), **{k: v for k, v in settings.items() if k != "data"})
    for folder in (run, tmp_path / "fresh"):
        conducted(folder, options)
    assert LEAVES.encode() not in contents(run)
    tensors = [(folder / "model" / "model.safetensors").read_bytes() for folder in (run, tmp_path / "fresh")]
    assert tensors[0] == tensors[1]
    scores = [json.loads((folder / "choice.json").read_text()) for folder in (run, tmp_path / "fresh")]
    assert scores[0]["nested_test_scores"] == scores[1]["nested_test_scores"]
    assert len(scores[0]["nested_test_scores"]) == 4


def test_a_dry_run_changes_nothing(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = CliRunner().invoke(app, ["forget", str(run), LEAVES, "p-xaver", "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "would delete ledger.sqlite" in done.output
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_what_was_interrupted_is_done_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many deletions were done, the next call does the rest: the ledger, which says whom there are, is last."""
    files = list(at.forget(run, [LEAVES], dry_run=True).files)
    delete = forgetting._delete
    for fails in range(len(files)):
        left = [fails]

        def stopping(path: Path, left: list[int] = left) -> None:
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            delete(path)

        monkeypatch.setattr(forgetting, "_delete", stopping)
        folder = Path(shutil.copytree(run, run.parent / f"again-{fails}"))
        with pytest.raises(KeyboardInterrupt):
            at.forget(folder, [LEAVES])
        monkeypatch.setattr(forgetting, "_delete", delete)
        at.forget(folder, [LEAVES])
        assert {path.name for path in folder.iterdir()} == {"study.toml", "lock"}


def test_no_link_is_followed(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine.txt").write_text("mine")
    (run / "model" / "deep").mkdir()
    (run / "model" / "deep" / "link").symlink_to(outside)
    at.forget(run, [LEAVES])
    assert (outside / "mine.txt").read_text() == "mine"


def test_a_link_in_place_of_a_file_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("mine")
    (run / "report.html").unlink()
    (run / "report.html").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(at.UserError, match="is a link"):
        at.forget(run, [LEAVES])
    assert (run / "ledger.sqlite").exists()
    assert (tmp_path / "elsewhere").read_text() == "mine"


def test_a_damaged_ledger_is_deleted_too(run: Path) -> None:
    (run / "ledger.sqlite").write_bytes(b"")
    at.forget(run, [LEAVES])
    assert {path.name for path in run.iterdir()} == {"study.toml", "lock"}


def test_mistakes_are_named(run: Path) -> None:
    with pytest.raises(at.UserError, match="nobody in study is called 'p-yvone'; did you mean 'p-yvonne'"):
        at.forget(run, ["p-yvone"])
    for people in ([], LEAVES):
        with pytest.raises(at.UserError, match="give a list of names"):
            at.forget(run, people)
    with Lock(run), pytest.raises(at.UserError, match="is in use by another process"):
        at.forget(run, [LEAVES])
    assert (run / "ledger.sqlite").exists()
