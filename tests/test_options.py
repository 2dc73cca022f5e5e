"""Each option of a run is declared once: a new field reaches every door, and so does a new entry of a registry."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.augment import AUGMENTATIONS
from autotransfer.censoring import CENSORS
from autotransfer.cli import app, running
from autotransfer.model.encoders import ENCODERS
from autotransfer.options import SEARCH, TRAINING, USUAL, VALIDATION, AskedOptions
from autotransfer.preprocessing import TRANSFORMS
from autotransfer.preprocessing.represent import REPRESENTATIONS
from autotransfer.runs.options import RunOptions
from test_registries import with_transform

# A value that is not the default, and what must go with it.
OTHER: dict[str, Any] = {
    "time": "2h", "adaptation": "online", "device": "cpu", "encoder": "shallow", "at_least": 0.7, "grid": "uncensored",
    "networks": "one", "kinds": "tdar", "search": "tpe", "trials": 3, "as_printed": True,
    "epochs": 3, "max_steps": 70, "patience": 5, "batch_size": 9, "lr": 0.5, "standardize": "train", "align": "online",
    "seeds": 2, "metric": "f1_macro", "folds": 4, "rule": "published", "hold_out": "session",
    "target": "continuous",
}  # fmt: skip
NAMES = [field.name for field in fields(AskedOptions)]


def asked_by_command(words: list[str], monkeypatch: pytest.MonkeyPatch) -> RunOptions:
    asked: list[RunOptions] = []
    monkeypatch.setattr(running, "_dry_run", lambda options, *_: asked.append(options))
    result = CliRunner().invoke(app, ["run", "x.npz", "--dry-run", *words])
    assert result.exception is None, result.exception
    return asked[0]


@pytest.mark.parametrize("name", NAMES)
def test_an_option_means_the_same_at_every_door(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {name: OTHER[name]}
    expected = (
        RunOptions.of("recommended", source="x.npz", adaptation="auto", **given)
        if name != "adaptation"
        else (RunOptions.of("recommended", source="x.npz", **given))
    )
    assert getattr(expected, name) == OTHER[name]
    words = [f"--{key.replace('_', '-')}" + ("" if value is True else f"={value}") for key, value in given.items()]
    assert asked_by_command(words, monkeypatch) == expected
    path = tmp_path / "study.toml"
    path.write_text("".join(f"{key} = {json.dumps(str(v) if key == 'folds' else v)}\n" for key, v in given.items()))
    assert asked_by_command([f"--config={path}"], monkeypatch) == expected
    estimator = at.AutoTransferClassifier(**given)
    found = estimator._options(str(estimator.encoder)).to_dict()
    assert {key: value for key, value in found.items() if key != "source"} == {
        key: value for key, value in expected.to_dict().items() if key != "source"
    }


def test_help_has_every_option_in_its_group() -> None:
    params = {one.name: one for one in get_command(app).commands["run"].params}  # type: ignore[attr-defined]
    assert set(NAMES) <= set(params)
    groups = {getattr(params[name], "rich_help_panel", None) or USUAL for name in NAMES}
    assert groups == {USUAL, SEARCH, TRAINING, VALIDATION}
    assert all(params[name].help for name in NAMES)


def test_every_entry_of_a_registry_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command line and by an estimator, with no line but the registry's."""
    settings = [at.Setting(method=name) for name in CENSORS]
    settings += [at.Setting(encoder=name) for name in ENCODERS]
    settings += [with_transform(name) for name in TRANSFORMS]
    settings += [at.Setting(**{name: fields(kind)[0].default}) for name, kind in AUGMENTATIONS.items()]
    path = tmp_path / "grid.json"
    path.write_text(json.dumps([one.to_dict() for one in settings]))
    assert set(settings) <= set(asked_by_command([f"--grid={path}"], monkeypatch).settings())
    assert set(settings) <= set(at.AutoTransferClassifier(settings=settings)._options("eegnet").settings())
    for name in REPRESENTATIONS:
        assert asked_by_command([f"--kinds={name}"], monkeypatch).kinds == name
