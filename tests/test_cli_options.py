"""Commands read versions, files of options and moved recordings, and compare two runs."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.main import get_command
from typer.testing import CliRunner

import autotransfer as at
from autotransfer import schema
from autotransfer.cli import app, run_commands
from autotransfer.errors import UserError
from autotransfer.recordings import save_npz
from autotransfer.runs.database import RunDatabase
from autotransfer.runs.options import RunOptions, build_options
from autotransfer.runs.study import study_text
from test_schema import choice
from tiny import tiny, tiny_file

CUTTING = ("run", "predict", "calibrate", "inspect")


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def mistake(*words: object) -> str:
    """Return the message of a refused command, which is one line."""
    found = call(*words).exception
    assert isinstance(found, UserError), found
    assert "\n" not in str(found)
    return str(found)


def test_version() -> None:
    assert call("--version").stdout == f"autotransfer {at.__version__}\n"


# ---- files of options ------------------------------------------------------------------------------------------------


@pytest.fixture
def dry_run_options(monkeypatch: pytest.MonkeyPatch) -> list[RunOptions]:
    """Return the list to which every dry run appends its options instead of printing a plan."""
    found: list[RunOptions] = []
    monkeypatch.setattr(run_commands, "_print_plan", lambda options, *_: found.append(options))
    return found


def test_the_command_line_takes_precedence_over_a_file(tmp_path: Path, dry_run_options: list[RunOptions]) -> None:
    path = tmp_path / "study.toml"
    path.write_text('data = "gestures"\nmax_epochs = 7\nlr = 0.01\nbatch-size = 9\nseeds = 2\n')
    assert call("run", "--config", path, "--dry-run").exit_code == 0
    words = ("--epochs", 8, "--set", "lr=2e-3", "--set", "seeds=1")
    assert call("run", "other.npz", "--config", path, "--dry-run", *words).exit_code == 0
    first, second = dry_run_options
    assert (first.source, first.constants, first.seeds) == (
        "gestures",
        {"max_epochs": 7, "lr": 0.01, "batch_size": 9},
        2,
    )
    assert (second.source, second.max_epochs, second.constants["lr"], second.seeds) == ("other.npz", 8, 0.002, 1)
    assert call("run", "gestures", "--dry-run").exit_code == 0
    assert dry_run_options[-1].constants == {}, "a file counts once"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epoch = 3", "unknown option 'epoch'; did you mean 'max_epochs'"),
        ('max_epochs = "many"', "max_epochs is 'many'"),
        ("seeds = true", "seeds is True"),
        ("grid = 3", "grid 3"),
        ("target = 3", "target is '3'"),
        ("epochs: 3", "is not TOML"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(text)
    assert re.search(words, mistake("run", "gestures", "--config", path, "--dry-run"))


@pytest.mark.parametrize("words", ["max_epochs", "=3", "max_epochs=5 --epochs 4", "lr=1 --set lr=2"])
def test_a_constant_is_set_once_by_its_name(words: str) -> None:
    assert mistake("run", "gestures", "--dry-run", "--set", *words.split())


@pytest.mark.parametrize(
    "options",
    [
        {}, {"adaptation": "none"}, {"adaptation": "online", "seeds": 2}, {"grid": "paper"},
        {"search": "tpe", "trials": 5, "patience": 4, "lr": 1e-2, "batch_size": 8},
        {"standardize": "train", "align": "online", "as_printed": True, "device": "cpu", "seed": 3, "max_epochs": 6},
        {"target": "continuous", "kinds": "emg"},
    ],
)  # fmt: skip
def test_a_runs_own_file_repeats_it(tmp_path: Path, dry_run_options: list[RunOptions], options: dict[str, Any]) -> None:
    own = build_options({"source": str(tmp_path / 'a "b" \x7f ü.npz')} | options)
    path = tmp_path / "study.toml"
    path.write_text(study_text(own))
    assert call("run", "--config", path, "--dry-run").exception is None
    assert dry_run_options == [own]


def test_every_command_that_reads_recordings_cuts_them_the_same_way(dry_run_options: list[RunOptions]) -> None:
    words = ("--window", 0.5, "--hop", 0.25, "--offset", 1, "--events", "a=b", "--pattern", "{subject}.csv")
    assert call("run", "x.csv", "--dry-run", *words, "--sfreq", 50, "--filter", "5-20").exit_code == 0
    cut = {"window": 0.5, "hop": 0.25, "offset": 1.0, "events": "a=b", "pattern": "{subject}.csv", "sfreq": 50.0}
    cut |= {"filter": "5-20"} | dict.fromkeys(("sep", "decimal", "time_column"))
    assert dry_run_options[0].cutting == cut | {"clean": False}
    commands = get_command(app).commands  # type: ignore[attr-defined]
    described = [[one.help for one in commands[name].params if one.name in cut] for name in CUTTING]
    assert len(described[0]) == len(cut)
    assert all(described[0] == other for other in described)


def test_a_dry_run_needs_no_folder_but_a_run_does(dry_run_options: list[RunOptions]) -> None:
    assert call("run", "gestures", "--dry-run").exit_code == 0
    assert "give --out FOLDER" in mistake("run", "gestures")


# ---- a run and what it says ------------------------------------------------------------------------------------------

SMALL = ("--grid", "uncensored", "--rule", "published", "--epochs", 1, "--seeds", 1, "--device", "cpu")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with a finished run and its outputs."""
    folder = tmp_path_factory.mktemp("home")
    source = tiny_file(folder)
    found = call("run", source, "--out", folder / "run", "--verbose", *SMALL)
    assert found.exception is None, found.output
    (folder / "stdout").write_text(found.stdout)
    (folder / "stderr").write_text(found.stderr)
    yield folder
    assert not logging.getLogger("autotransfer").handlers


def test_a_run_leaves_its_options(home: Path, dry_run_options: list[RunOptions]) -> None:
    assert call("run", "--config", home / "run" / "study.toml", "--dry-run").exit_code == 0
    with closing(RunDatabase(home / "run" / "run.sqlite", read_only=True)) as database:
        assert dry_run_options == [database.load_fact("options", RunOptions)]


def test_a_report_needs_no_recordings_and_resume_takes_them_from_elsewhere(home: Path) -> None:
    source, moved, run = home / "tiny.npz", home / "elsewhere.npz", home / "run"
    page, table = (run / "report.html").read_bytes(), (run / "results.csv").read_bytes()
    source.replace(moved)
    try:
        assert call("report", run).exception is None
        assert ((run / "report.html").read_bytes(), (run / "results.csv").read_bytes()) == (page, table)
        told = mistake("resume", run)
        assert str(source) in told
        assert "give --data FILE" in told
        other = home / "other.npz"
        save_npz(other, tiny(seed=7))
        assert "differs from the data" in mistake("resume", run, "--data", other)
        assert "is finished" in call("resume", run, "--data", moved).stdout
        assert "is finished" in call("resume", run).stdout, "where they are now is remembered"
    finally:
        if moved.exists():
            moved.replace(source)


# ---- two runs --------------------------------------------------------------------------------------------------------


def pretend(folder: Path, scores: list[float], *, windows: str = "abc", complete: bool = True) -> Path:
    """Create the files of a run with these scores of subjects."""
    folder.mkdir()
    with closing(RunDatabase(folder / "run.sqlite", create=True)) as database:
        database.store_facts(fingerprint=windows, complete=complete)
    nested = {str(person): value for person, value in enumerate(scores)}
    found = choice(nested_test_scores=nested, chance=0.5)
    (folder / "choice.json").write_text(json.dumps(schema.to_values(found)))
    return folder


def test_two_runs_are_compared_by_subject(tmp_path: Path) -> None:
    base = [0.9, 0.7, 0.8, 0.6, 0.75, 0.85, 0.65]
    a = pretend(tmp_path / "a", base)
    b = pretend(tmp_path / "b", [value + 0.05 + 0.001 * n for n, value in enumerate(base)])
    lines = call("compare", a, b).stdout.splitlines()
    assert lines[0] == "balanced accuracy on 7 test subjects (chance .500):"
    assert lines[1].split()[:4] == ["a", "mean", ".750,", "lower"]
    assert lines[2].split()[:3] == ["b", "mean", ".803,"]
    assert lines[3].startswith("b minus a: +.053, 95 % interval +.05")
    assert lines[4] == "of 7 subjects 7 gained, 0 tied, 0 lost"
    assert lines[5] == "b is better on these subjects"
    assert call("compare", b, a).stdout.splitlines()[-1] == "b is better on these subjects"
    assert "identical on 7 subjects" in call("compare", a, a).stdout
    fewer = pretend(tmp_path / "fewer", base[:4])
    assert "the 4 that both runs scored" in call("compare", a, fewer).stdout
    guess = pretend(tmp_path / "guess", [0.5, 0.45, 0.55, 0.5, 0.52, 0.48, 0.5])
    assert "no better than guessing" in call("compare", a, guess).stdout


def test_runs_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    a = pretend(tmp_path / "a", [0.6, 0.7])
    assert "different recordings" in mistake("compare", a, pretend(tmp_path / "b", [0.6, 0.7], windows="x"))
    assert "is not finished" in mistake("compare", a, pretend(tmp_path / "c", [0.6, 0.7], complete=False))
    assert "there is no folder" in mistake("compare", a, tmp_path / "nowhere")


def test_help_of_an_option_has_at_most_90_characters() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    described = {(name, param.name): param.help for name, one in commands.items() for param in one.params}
    assert [key for key, text in described.items() if not 0 < len(text or "") <= 90] == []
