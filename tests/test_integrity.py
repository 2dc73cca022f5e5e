"""Changed cards and weights of a model are noticed, and sizes are checked before memory is taken."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.models import candidate
from autotransfer.models.loading import MARK, load_model
from autotransfer.models.saving import model_digests, write_model
from autotransfer.recordings import npz
from ensembles import weighted
from test_export import random_model

Card = dict[str, Any]


CHANGES: dict[str, Callable[[Card], Card]] = {
    "order of classes": lambda card: card | {"classes": card["classes"][::-1]},
    "learning rate": lambda card: (
        card | {"candidates": [part | {"setting": part["setting"] | {"lr": 0.5}} for part in card["candidates"]]}
    ),
}


@pytest.fixture(params=["one candidate", "two"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    one = random_model("trial")
    (one if request.param == "one candidate" else weighted([one, one], [0.4, 0.8])).save(tmp_path / "model")
    return tmp_path / "model"


def rewrite(folder: Path, change: Callable[[Card], Card], **dump: Any) -> None:
    path = folder / "model.json"
    path.write_text(json.dumps(change(json.loads(path.read_text())), **dump))


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_card_is_refused_in_one_line(folder: Path, what: str) -> None:
    """Every one of them could be used, and would predict something else or claim it."""
    rewrite(folder, CHANGES[what])
    with pytest.raises(UserError, match="its card changed") as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


def test_other_weights_are_refused_in_one_line(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor + 1e-3 for name, tensor in tensors.items()}, folder / "model.safetensors")
    with pytest.raises(UserError, match="its weights changed"):
        load_model(folder)


def test_layout_is_no_change_and_models_without_a_digest_are_refused(folder: Path) -> None:
    before = load_model(folder)
    windows = torch.randn(4, len(before.card.signal.channels), before.card.n_times)
    rewrite(folder, lambda card: dict(sorted(card.items())), indent=None)
    np.testing.assert_array_equal(load_model(folder).predict_proba(windows), before.predict_proba(windows))
    rewrite(folder, lambda card: {k: v for k, v in card.items() if k != "digest"})
    with pytest.raises(UserError, match="has no valid digest"):
        load_model(folder)
    for digest in (None, 3, {}, {"card": 1, "weights": 2}, {"card": None}):
        rewrite(folder, lambda card, digest=digest: card | {"digest": digest})
        with pytest.raises(UserError):
            load_model(folder)


def _huge(name: str, value: int) -> Callable[[Card], Card]:
    def change(card: Card) -> Card:
        if name in card:
            return card | {name: value}
        return card | {"candidates": [part | {name: value} for part in card["candidates"]]}

    return change


@pytest.mark.parametrize(("name", "value"), [("members", 10**8), ("n_times", 10**11)])
def test_sizes_are_compared_before_memory_is_taken(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    card = load_model(folder).card
    tensors = load_model(folder).tensors()
    rewrite(folder, _huge(name, value))
    monkeypatch.setattr(candidate, "Members", None)  # whoever builds a network fails otherwise
    with pytest.raises(UserError, match=r"members|has the shape"):
        load_model(folder)
    values = {MARK: at.__version__} | dataclasses.asdict(card)
    save_file(tensors, tmp_path / "m.safetensors", {k: json.dumps(v) for k, v in _huge(name, value)(values).items()})
    with pytest.raises(UserError, match=r"members|has the shape"):
        at.load_model(tmp_path / "m.safetensors")


def test_a_file_that_memory_cannot_hold_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "available_memory", lambda: 1000)
    monkeypatch.setattr(Path, "read_bytes", None)
    with pytest.raises(UserError, match="too large for memory"):
        load_model(folder)
    with pytest.raises(UserError, match="too large for memory"):
        at.load_model(folder / "model.safetensors")


def test_weights_of_another_type_are_converted(folder: Path) -> None:
    model = load_model(folder)
    X = torch.randn(4, len(model.card.signal.channels), model.card.n_times)
    write_model(folder, model.card, {name: tensor.double() for name, tensor in model.tensors().items()})
    np.testing.assert_allclose(load_model(folder).predict_proba(X), model.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize(
    "values",
    [
        *({"classes": [*wrong, "fist"]} for wrong in (["a", "fist"], ["a", [1]], ["a", " "], ["a", "a "], ["1", 1])),
        {"classes": ["rest", math.nan, "fist"]},
        {"signal": {"channels": ["a", "b", "a"]}},
        {"weights": [0.0]},
        {"weights": [0.0, 0.0]},
    ],
)
def test_impossible_values_are_refused(folder: Path, values: Card) -> None:
    """The digest is right, so that the values are what is refused."""
    tensors = (folder / "model.safetensors").read_bytes()
    rewrite(folder, lambda card: card | values | {"digest": model_digests(card | values, tensors)})
    with pytest.raises(UserError):
        load_model(folder)


def test_names_in_a_model_control_no_terminal() -> None:
    model = random_model("trial")
    model.card = dataclasses.replace(model.card, classes=["\x1b[2J", "a", "b"])
    assert "\x1b" not in repr(model) + repr(at.Session(model))
