"""Nothing is written outside an untrusted run folder, and no untrusted address is connected to."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from autotransfer.errors import UserError
from autotransfer.export import export_model
from autotransfer.runs.lock import Lock
from autotransfer.runs.run import Run
from faults import assert_one_line, call, few_settings, interrupted_run, make_run
from tiny import tiny_file

SHORT = {"max_epochs": 3}
RESERVED_NAMES = [
    "run.sqlite", "run.sqlite-wal", "lock", "model", "model/model.json", "choice.json", ".report.html.1.part",
    "population-1.checkpoint",
]  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strangers")
    with few_settings():
        interrupted_run(folder / "run", tiny_file(folder, n_subjects=3), checkpoints=2, **SHORT)
    return folder


@pytest.mark.parametrize("dangling", [False, True])
@pytest.mark.parametrize("name", RESERVED_NAMES)
def test_links_in_a_run_are_refused_by_all_who_write(home: Path, tmp_path: Path, name: str, dangling: bool) -> None:
    """Whether they lead to a file or folder that is there or to where one would be made."""
    run, elsewhere = Path(shutil.copytree(home / "run", tmp_path / "run")), tmp_path / "elsewhere"
    path = run / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        path.replace(elsewhere)  # as it was, so that all but its place is right
    elif Path(name).suffix:
        elsewhere.write_text("my thesis")
    else:
        elsewhere.mkdir()
        (elsewhere / ".model.json.abcd1234").write_text("not yours to sweep away")
    if dangling:
        elsewhere.replace(tmp_path / "gone")
    path.symlink_to(elsewhere)

    def outside() -> dict[Path, bytes | None]:
        found = [file for file in tmp_path.rglob("*") if not file.is_relative_to(run)]
        return {file: file.read_bytes() if file.is_file() else None for file in found}

    before = outside()
    words = ["is not a run"] if name == "run.sqlite" and dangling else [path.name, "is a link"]
    with few_settings():
        assert_one_line(call("resume", run), 2, *words)
        assert_one_line(call("report", run), 2, *words)
    with pytest.raises(UserError, match="is a link"), Lock(run):
        pass
    with pytest.raises(UserError, match="is a link"):
        export_model(run, "safetensors")
    assert outside() == before


@pytest.mark.parametrize(("name", "told"), [("notes.txt", "is a link"), ("results.csv", "already holds")])
def test_a_run_is_not_begun_among_links(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "run").mkdir()
    link = tmp_path / "run" / name
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=told):
        make_run(tmp_path / "run", tiny_file(tmp_path))
    assert list((tmp_path / "run").iterdir()) == [link]
    assert not (tmp_path / "elsewhere").exists()


def test_a_link_to_the_whole_folder_is_the_users_own(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "run", tmp_path / "run")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with few_settings(), Lock(tmp_path / "link"), closing(Run.open(tmp_path / "link").database):
        pass
