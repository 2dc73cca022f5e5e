"""Ensembles of several model families: the formula, files, subjects, exports and estimators."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.export.verification import sample_windows
from autotransfer.model.stack import Size
from autotransfer.models.building import CandidateFits, build_model
from autotransfer.models.candidate import Correction
from autotransfer.models.loading import load_model
from autotransfer.models.model import Model
from autotransfer.models.saving import model_digests, write_model
from autotransfer.training.members import Members
from ensembles import alone, changed, single, weighted
from test_export import random_model
from tiny import tiny

CHANNELS, TIMES = 3, 32
EXPONENTS = [0.7, 1.5, 0.2]


def shallow_model(members: int = 2, **more: object) -> Model:
    """Of the shapes and names of `random_model`, with weights that tell windows apart."""
    setting = at.Setting(encoder="shallow", power_filters=5, temporal_kernel=9, **more)
    kept = random_model("trial").card
    card = {
        field.name: getattr(kept, field.name) for field in fields(kept) if field.name not in ("weights", "candidates")
    }
    generator = torch.Generator().manual_seed(members)
    own = Members(setting, Size(*setting.preprocessing.shape(CHANNELS, TIMES), 3, None), range(members)).tensors()
    tensors = {k: torch.rand(t.shape, generator=generator) + 0.5 if "norm" in k else 3 * t for k, t in own.items()}
    tensors = {k: t.detach() for k, t in tensors.items()}
    return single(setting, tensors, **card)


def aligned(part: Model, how: str) -> Model:
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(part.card.members, CHANNELS, CHANNELS, dtype=torch.float64, generator=generator)
    return changed(part, {"preprocessing.align.covariance": A @ A.mT}, align=how)


def mixture(*more: Model) -> Model:
    """Two encoders, three preprocessings, members 3, 2 and 1."""
    parts = [random_model("train"), shallow_model(), random_model("trial", members=1, log_power=True), *more]
    return weighted(parts, EXPONENTS + [0.4] * len(more), {"nested_test_mean": 0.5})


def windows(n: int = 40, seed: int = 7) -> Tensor:
    x = sample_windows(mixture(), n, torch.Generator().manual_seed(seed))
    x[:, 1] += 0.5 * x[:, 0]  # white noise would be left as it is by an alignment
    return x


# the formula


def test_probabilities_are_the_normalized_product_of_powers() -> None:
    mixed, X = mixture(), windows()
    product = np.ones((len(X), 3))
    for part, weight in zip(alone(mixed), EXPONENTS, strict=True):
        product *= part.predict_proba(X) ** weight
    want = product / product.sum(1, keepdims=True)
    found = mixed.predict_proba(X)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.sum(1), 1, rtol=0, atol=1e-14)
    for part in alone(mixed):
        assert np.abs(part.predict_proba(X) - found).max() > 0.05, "parts must differ, or nothing is compared"


def test_a_steep_correction_is_the_same_at_every_entry_point() -> None:
    """It rules classes out by more than a probability has room for, where other parts may outvote it."""
    mixed, X = mixture(), windows()
    generator = torch.Generator().manual_seed(1)
    parts = []
    for part in mixed.candidates:
        members, dim = len(part.members), part.members.latent_dim
        steep = Correction(3e3 * torch.randn(members, dim, 3, generator=generator), torch.zeros(members, 3))
        parts.append(replace(part, correction=steep))
    mixed = Model(mixed.card, parts)
    p = mixed.predict_proba(X)
    assert np.ptp(mixed.ensemble.predict(X).numpy(), axis=1).max() > 1e3, "steep enough to tell"
    with torch.no_grad():
        np.testing.assert_allclose(mixed.graph()(X).numpy(), p, atol=1e-4)
    session = at.Session(mixed)
    np.testing.assert_allclose([session.predict_proba(x.numpy()) for x in X], p, atol=1e-4)


def test_subjects_are_separated_if_a_part_adapts() -> None:
    mixed, X = weighted([shallow_model(), aligned(random_model("trial"), "transductive")], [0.3, 3]), windows(20)
    X[10:] *= torch.tensor([1.0, 4.0, 0.3])[:, None]
    people = torch.arange(20) // 10
    apart = np.concatenate([mixed.predict_proba(X[people == one]) for one in (0, 1)])
    np.testing.assert_allclose(mixed.predict_proba(X, people), apart, rtol=0, atol=1e-6)
    assert np.abs(mixed.predict_proba(X) - apart).max() > 1e-3
    assert (mixed.adaptation, mixture().adaptation) == ("transductive", "none")
    assert mixture(aligned(random_model("trial"), "online")).adaptation == "online"


# the card and the disk


def test_saved_and_loaded_it_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    mixed, X = mixture(aligned(random_model("online"), "online")), windows()
    mixed.save(tmp_path / "whole")
    write_model(tmp_path / "parts", mixed.card, mixed.tensors())
    assert sorted(path.name for path in (tmp_path / "whole").iterdir()) == [
        "README.md",
        "model.json",
        "model.safetensors",
    ]
    for folder in ("whole", "parts"):
        again = load_model(tmp_path / folder)
        assert again.card == mixed.card
        np.testing.assert_array_equal(again.predict_proba(X), mixed.predict_proba(X))
        np.testing.assert_array_equal(again.features(X), mixed.features(X))
    assert at.load_model(tmp_path / "whole").card == mixed.card


def without(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}


HOSTILE: dict[str, Any] = {
    "no weights": lambda c: without(c, "weights"),
    "a weight of text": lambda c: c | {"weights": [1, 1, "1"]},
    "huge": lambda c: c | {"weights": [1, 1, 10**400]},
    "negative": lambda c: c | {"weights": [1, 1, -1]},
    "no parts": lambda c: c | {"candidates": [], "weights": []},
    "parts that are none": lambda c: without(c, "candidates"),
    "a part in a part": lambda c: c | {"candidates": [c, *c["candidates"][1:]]},
    "another part's setting": lambda c: edited(c, setting=c["candidates"][1]["setting"]),
    "an unknown encoder": lambda c: edited(c, setting={"encoder": "evil:f"}),
    "classes": lambda c: c | {"classes": [1, 2]},
    "members": lambda c: edited(c, members=7),
    "unknown": lambda c: c | {"code": "import os"},
    "a list": lambda c: [c],
}


def edited(card: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A card whose first part has other values."""
    return card | {"candidates": [card["candidates"][0] | changes, *card["candidates"][1:]]}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_card_is_refused_in_one_line(tmp_path: Path, case: str) -> None:
    """Its digest is right, so that nothing but its values can be what is refused."""
    mixture().save(tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    values = HOSTILE[case](without(json.loads(path.read_text()), "digest"))
    if isinstance(values, dict):
        values |= {"digest": model_digests(values, path.with_suffix(".safetensors").read_bytes())}
    path.write_text(json.dumps(values))
    with pytest.raises(UserError) as caught:
        load_model(tmp_path / "model")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("change", ["missing", "missing statistics", "too many", "of no part", "another shape", "cut"])
def test_hostile_tensors_are_refused_in_one_line(tmp_path: Path, change: str) -> None:
    mixture().save(tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    tensors, name = load_file(path), "candidates.1.classifier.weight"
    if change == "missing":
        del tensors[name]
    elif change == "missing statistics":
        del tensors["candidates.0.preprocessing.standardize.shift"]
    elif change == "too many":
        tensors["candidates.3.classifier.weight"] = tensors[name].clone()
    elif change == "of no part":
        tensors["classifier.weight"] = tensors[name].clone()
    else:
        tensors[name] = tensors[name][:1].clone()
    save_file(tensors, path)
    if change == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"^the model in .* cannot be read") as caught:
        load_model(tmp_path / "model")
    words = {"missing": '"weight"', "missing statistics": "standardize.shift", "too many": "none of its 3 candidates"}
    assert words.get(change, "") in str(caught.value)


# assembly, estimators, commands


@pytest.fixture(scope="module")
def parts() -> tuple[at.Recordings, list[CandidateFits]]:
    """Two settings, trained for two epochs on two folds."""
    recordings = tiny()
    folds = at.leave_one_subject_out(recordings)[:2]
    common = {"max_epochs": 2, "batch_size": 16, "lr": 0.01}
    found = []
    for setting, weight in (
        (at.Setting(**common, standardize="train"), 0.8),
        (at.Setting(**common, encoder="shallow", align="online"), 1.1),
        (at.Setting(**common, log_power=True), 0.0),
    ):
        outcomes = at.train(recordings, [at.Job(setting, fold) for fold in folds], "cpu")
        found.append(CandidateFits(setting, [outcome.state for outcome in outcomes], folds, weight))
    return recordings, found


def test_assembled_from_trained_states(parts: tuple[at.Recordings, list[CandidateFits]]) -> None:
    recordings, candidates = parts
    mixed = build_model(recordings, candidates, scores={"nested_test_mean": 0.6})
    assert [part.setting for part in mixed.candidates] == [one.setting for one in candidates[:2]], (
        "weight 0 is left out"
    )
    assert (mixed.card.members, mixed.card.scores) == (4, {"nested_test_mean": 0.6})
    product = np.ones((recordings.n_windows, 2))
    for one in candidates:
        product *= (
            build_model(recordings, [one._replace(weight=1.0)], scores={}).predict_proba(recordings.X) ** one.weight
        )
    np.testing.assert_allclose(
        mixed.predict_proba(recordings.X), product / product.sum(1, keepdims=True), rtol=0, atol=1e-12
    )
