"""Versions, pins and the order of a release agree between files."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import autotransfer as at

ROOT = Path(__file__).parents[1]
yaml = pytest.importorskip("yaml", reason="needs PyYAML, which comes with myst-parser")


def stored(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def pins() -> dict[str, str]:
    return dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M))


def test_one_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", at.__version__)
    assert stored("CITATION.cff")["version"] == at.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "version" in project["dynamic"]
    assert project["license"] == f"{stored('CITATION.cff')['license']} AND MIT", "MIT: recordings of the demo"


def test_one_command_sets_the_version(tmp_path: Path) -> None:
    names = (".github/set_version.py", "src/autotransfer/__init__.py", "CITATION.cff", "CHANGELOG.md")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for version, heading in (
        ("9.1.0", r"## 9\.1\.0 \(\d{4}-\d\d-\d\d\)"),
        ("9.2.0.dev0", r"## 9\.2\.0 \(in development\)"),
    ):
        subprocess.run([sys.executable, str(tmp_path / names[0]), version], check=True)
        assert f'\n__version__ = "{version}"\n' in (tmp_path / names[1]).read_text(encoding="utf-8")
        citation = yaml.safe_load((tmp_path / names[2]).read_text(encoding="utf-8"))
        assert (citation["version"], "date-released" in citation) == (version, "dev" not in version)
        headings = re.findall(r"^## .*$", (tmp_path / names[3]).read_text(encoding="utf-8"), re.MULTILINE)
        assert re.fullmatch(heading, headings[0])
    assert re.fullmatch(r"## 9\.1\.0 \(.*\)", headings[1])


def test_the_release_notes_have_the_hash_of_the_protocol() -> None:
    digest = hashlib.sha256((ROOT / "benchmarks" / "protocol.md").read_bytes()).hexdigest()
    assert digest in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), "a protocol is not changed after a release"


def test_commits_are_checked_by_the_ruff_of_the_suite() -> None:
    revisions = {
        repo["repo"].rpartition("/")[2]: repo.get("rev") for repo in stored(".pre-commit-config.yaml")["repos"]
    }
    assert revisions["ruff-pre-commit"] == f"v{pins()['ruff']}"


def test_a_commit_subject_has_at_most_72_characters() -> None:
    hooks = [hook for repo in stored(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    (rule,) = [hook["entry"] for hook in hooks if hook.get("stages") == ["commit-msg"]]
    flags = re.DOTALL | re.MULTILINE  # as pre-commit searches a whole file
    assert re.search(rule, "a" * 73 + "\n\nbody", flags)
    assert not re.search(rule, "a" * 72 + "\n\n" + "b" * 100, flags)


def test_workflows_install_the_pinned_torch_on_three_systems() -> None:
    jobs = stored(".github/workflows/nightly.yml")["jobs"]
    matrix = jobs["suite"]["strategy"]["matrix"]
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == f">={matrix['python'][0]}"
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.search(r"pip install .*(-e|\.whl)", line):
                assert re.search(r"--constraint (constraints|lowest)\.txt", line), f"{path.name}: {line.strip()}"
    core = (ROOT / ".github" / "core.txt").read_text(encoding="utf-8").split()
    assert core
    assert all((ROOT / name).is_file() for name in core)


def test_slow_tests_run_every_night_and_pull_requests_start_few_jobs() -> None:
    nightly = stored(".github/workflows/nightly.yml")
    assert nightly[True]["schedule"]  # "on" is true in YAML
    assert any("make test-slow" in step.get("run", "") for step in nightly["jobs"]["slow"]["steps"])
    jobs = stored(".github/workflows/tests.yml")["jobs"].values()
    assert sum(len(job.get("strategy", {}).get("matrix", {}).get("os", [1])) for job in jobs) <= 4


def test_a_release_publishes_what_was_tried_and_only_once_it_is_switched_on() -> None:
    jobs = stored(".github/workflows/release.yml")["jobs"]
    assert jobs["files"]["uses"] == "./.github/workflows/wheel.yml"
    publish = jobs["publish"]
    assert (publish["if"], publish["needs"]) == ("vars.PUBLISH == 'true'", "files")
    assert publish["permissions"] == {"id-token": "write"}  # and no password
    assert stored(".github/workflows/wheel.yml")[True]["workflow_call"] is None  # "on" is true in YAML


def test_lowest_versions_are_those_that_pyproject_states() -> None:
    command = [sys.executable, str(ROOT / ".github/lowest.py")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"]
    assert [line.replace("==", ">=") for line in printed] == wanted
