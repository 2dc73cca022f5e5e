"""Every option of a run reaches the run, from the command line, from a file and from Python."""

from __future__ import annotations

import inspect
import json
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.augment import AUGMENTATIONS
from autotransfer.censoring import CENSORS
from autotransfer.cli import app, run_commands
from autotransfer.errors import UserError
from autotransfer.model.encoders import ENCODERS
from autotransfer.preprocessing import TRANSFORMS
from autotransfer.preprocessing.represent import REPRESENTATIONS
from autotransfer.runs.options import CUTTING, DEFAULTS, RunOptions, build_options, resolve_options
from autotransfer.runs.preparation import Preparation
from autotransfer.runs.study import read_study
from autotransfer.search.candidates import find_candidates
from test_registries import with_transform
from tiny import auto_classifier, tiny, tiny_file

# A value that is not the default, and what must go with it.
OTHER: dict[str, dict[str, Any]] = {
    "time": {"time": "2h"}, "adaptation": {"adaptation": "online"}, "device": {"device": "cpu"},
    "encoder": {"encoder": "shallow"}, "at_least": {"at_least": 0.7}, "grid": {"grid": "uncensored"},
    "networks": {"networks": "one"}, "kinds": {"kinds": "ls9"}, "search": {"search": "tpe"},
    "trials": {"trials": 3, "search": "tpe"}, "max_steps": {"max_steps": 70}, "seeds": {"seeds": 2},
    "seed": {"seed": 7}, "metric": {"metric": "f1_macro"}, "folds": {"folds": 4}, "rule": {"rule": "published"},
    "hold_out": {"hold_out": "session"}, "target": {"target": "continuous"}, "window": {"window": 0.5},
    "hop": {"window": 0.5, "hop": 0.25}, "offset": {"offset": 1.0}, "events": {"window": 0.5, "events": "a=b"},
    "pattern": {"pattern": "{subject}"},
    "sfreq": {"sfreq": 50.0}, "sep": {"sep": ";"}, "decimal": {"decimal": ","}, "time_column": {"time_column": "t"},
    "filter": {"filter": "5-20"}, "clean": {"clean": True},
}  # fmt: skip
CONSTANTS: dict[str, Any] = {
    "max_epochs": 3, "lr": 0.5, "batch_size": 9, "patience": 5, "weight_decay": 0.5, "schedule": "constant",
    "checkpoint": "last", "dropout": 0.1, "standardize": "train", "align": "online", "shrinkage": 0.25, "warm_up": 2,
    "as_printed": True, "mixup": 0.5,
}  # fmt: skip
OTHER |= {name: {name: value} for name, value in CONSTANTS.items()}
# What an option changes in a run, where that is not the option alone and the settings that are fitted.
BESIDE = {
    "search": {"adaptation", "time"}, "trials": {"search", "adaptation", "time"},
    "rule": {"adaptation", "folds", "time"}, "target": {"metric", "time"},
    "hop": {"window"}, "events": {"window"}, "standardize": {"adaptation", "time"},
    "align": {"adaptation", "time"},
}  # fmt: skip
FITTED: dict[str, set[str]] = {"folds": {"folds"}, "hold_out": {"held out"}}
# These say what is read, scored and written, and where, or how often the same settings are fitted.
FITTED |= {key: set() for key in ("time", "device", "at_least", "metric", "clean", "seed", "seeds", *CUTTING)}


def described_by_command(words: list[str], monkeypatch: pytest.MonkeyPatch) -> RunOptions:
    asked: list[RunOptions] = []
    monkeypatch.setattr(run_commands, "_print_plan", lambda options, *_: asked.append(options))
    result = CliRunner().invoke(app, ["run", "x.npz", "--dry-run", *words])
    assert result.exception is None, result.exception
    return asked[0]


def words_of(given: dict[str, Any]) -> list[str]:
    """As a user writes them on the command line."""
    return [
        text
        for name, value in given.items()
        for text in (
            (f"--{name.replace('_', '-')}", *([] if value is True else [str(value)]))
            if name in DEFAULTS
            else ("--set", f"{name}={json.dumps(value) if isinstance(value, bool) else value}")
        )
    ]


def test_every_option_has_a_row() -> None:
    assert set(OTHER) - set(CONSTANTS) == set(DEFAULTS)


@pytest.mark.parametrize("name", OTHER)
def test_an_option_means_the_same_everywhere(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = OTHER[name]
    expected = build_options({"source": "x.npz"} | given)
    assert expected.to_dict()[name] == given[name] != build_options({"source": "x.npz"}).to_dict().get(name)
    assert described_by_command(words_of(given), monkeypatch) == expected
    path = tmp_path / "study.toml"
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in given.items()))
    assert described_by_command([f"--config={path}"], monkeypatch) == expected
    if name in (*CUTTING, "clean") and name != "sfreq":
        with pytest.raises(UserError, match=r"give it to at\.load"):
            auto_classifier(**given)._resolve_options()
    elif name not in ("target", "sfreq", "seed"):  # which a classifier has by other names
        found = auto_classifier(**given)._resolve_options().to_dict()
        assert found | {"source": "x.npz"} == expected.to_dict()


def facts(given: dict[str, Any]) -> dict[str, Any]:
    """Return what a run on small recordings fits: settings, and the rows of each fold."""
    recordings = tiny(6)
    recordings = at.Recordings(
        recordings.X, recordings.y, recordings.subject, session=[n % 2 for n in range(len(recordings.y))], sfreq=50
    )
    prepared = Preparation(resolve_options(build_options({"source": "x"} | given), recordings), recordings)
    settings = [setting.to_dict() for setting in find_candidates(prepared).settings]
    return {"settings": settings, "folds": len(prepared.folds), "held out": prepared.options.hold_out}


def test_every_option_changes_what_it_names_and_nothing_else() -> None:
    """Print a table of what each option changes in the description and in what is fitted."""
    usual, described = facts({}), build_options({"source": "x"}).to_dict()
    table, unknown = {}, {}
    for name, given in OTHER.items():
        values = build_options({"source": "x"} | given).to_dict()
        changed = {key for key in values | described if values.get(key) != described.get(key)}
        is_numeric = name == "target"  # which this data set has not
        fitted = set() if is_numeric else {key for key, found in facts(given).items() if found != usual[key]}
        table[name] = changed, fitted
        expected = {name} | BESIDE.get(name, set()), set() if is_numeric else FITTED.get(name, {"settings"})
        if table[name] != expected:
            unknown[name] = table[name], expected
    for name, (changed, fitted) in table.items():
        print(f"| {name} | {', '.join(sorted(changed))} | {', '.join(sorted(fitted))} |")
    assert not unknown


def test_constants_reach_every_network_and_only_what_reads_them() -> None:
    every = [at.Setting(**values) for values in facts({"lr": 0.5, "shrinkage": 0.25})["settings"]]
    assert {one.training.lr for one in every if not one.network.is_closed_form} == {0.5}
    assert {one.shrinkage for one in every if one.encoder == "linear"} == {0.25}


def test_what_a_dry_run_prints_is_read_back(tmp_path: Path) -> None:
    words = ["run", str(tiny_file(tmp_path)), "--dry-run", "--device", "cpu", "--set", "lr=1e-3", "--folds", "4"]
    printed = CliRunner().invoke(app, words).stdout
    path = tmp_path / "study.toml"
    path.write_text(printed)
    assert tomllib.loads(printed)["lr"] == 1e-3
    first = build_options(read_study(path))
    path.write_text(CliRunner().invoke(app, ["run", "--config", str(path), "--dry-run"]).stdout)
    assert build_options(read_study(path)) == first
    assert first.max_epochs == 500, "resolved for the recordings"


def test_help_shows_what_a_user_decides() -> None:
    params = get_command(app).commands["run"].params  # type: ignore[attr-defined]
    shown = [one for one in params if one.param_type_name == "option" and not one.hidden]
    assert len(shown) + 1 <= 32, "with --help"
    assert len(inspect.signature(at.AutoTransferClassifier).parameters) <= 14


def test_every_entry_of_a_registry_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command line and by an estimator, with no line but the registry's."""
    settings = [at.Setting(method=name) for name in CENSORS]
    settings += [at.Setting(encoder=name) for name in ENCODERS]
    settings += [with_transform(name) for name in TRANSFORMS]
    settings += [at.Setting(**{name: fields(kind)[0].default}) for name, kind in AUGMENTATIONS.items()]
    path = tmp_path / "grid.json"
    path.write_text(json.dumps([one.to_dict() for one in settings]))
    assert set(settings) <= set(described_by_command([f"--grid={path}"], monkeypatch).settings())
    assert set(settings) <= set(at.AutoTransferClassifier(settings=settings)._resolve_options().settings())
    for name in REPRESENTATIONS:
        assert described_by_command([f"--kinds={name}"], monkeypatch).kinds == name
