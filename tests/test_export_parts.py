"""Every registered part is exported with each format and predicts what the model predicts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.export import export_model, formats, verification
from autotransfer.export.formats import FORMATS
from autotransfer.model.encoders import ENCODERS
from autotransfer.models.model import Model
from autotransfer.preprocessing import TRANSFORMS
from autotransfer.preprocessing.represent import REPRESENTATIONS
from autotransfer.training.effects import Effects
from autotransfer.training.members import Members, size_of
from ensembles import alone, by_layers, single, weighted
from tiny import people

REC = people(per=40, times=32)
TRAINING = [np.flatnonzero(np.isin(REC.subject, rows)) for rows in ([0, 1, 2], [1, 2, 4])]
OWN = REC.X[REC.subject == 3].float()  # of a subject whom no model below was fitted on
NEEDED: dict[str, dict[str, Any]] = {"center": {"represent": "features"}}  # what must come before a transform
BATCHES = (1, 2, 37)


def settings() -> Iterator[at.Setting]:
    """Each encoder, each transform by its default and taken from all of a subject's windows, each representation."""
    for encoder in ENCODERS:
        yield at.Setting(encoder=encoder)
    plain: dict[str, Any] = {"encoder": "linear", "standardize": "none"}
    for name, kind in TRANSFORMS.items():
        for value in (fields(kind)[0].default, "transductive"):
            try:
                yield at.Setting(**plain | NEEDED.get(name, {}) | {name: value})
            except UserError:  # it has no such kind
                assert value == "transductive", f"{name} does not take its own default"
    yield from map(represented_by, REPRESENTATIONS)


def represented_by(name: str) -> at.Setting:
    known: dict[str, Any] = {"sfreq": REC.sfreq, "constants": [5.0, 9.0]}
    reads = {field: known[field] for field in REPRESENTATIONS[name].required_fields}
    return at.Setting(encoder="linear", standardize="none", represent=name, **reads)


def part(setting: at.Setting, seed: int = 0, members: int = 2, windows: torch.Tensor = OWN) -> Model:
    """Random weights and fitted preprocessing. windows: those that it tells apart."""
    draw = torch.Generator().manual_seed(seed)
    own = Members(setting, size_of(REC, setting), range(members)).tensors()
    tensors = {
        name: torch.rand(t.shape, generator=draw) + 0.5 if "norm" in name or "inv_std" in name
        else t.detach() + 0.1 * torch.randn(t.shape, generator=draw)
        for name, t in own.items()
    }  # fmt: skip
    fitted = setting.preprocessing.fit(REC.X, REC.subject, TRAINING[:members])
    tensors |= {f"preprocessing.{name}": tensor for name, tensor in fitted.state_dict().items()}
    about: dict[str, Any] = {
        "name": "people", "n_times": REC.n_times, "channels": list(REC.channels), "sfreq": REC.sfreq,
        "classes": ["left", "right"], "subjects": 3,
    }  # fmt: skip
    ensemble = single(setting, tensors, **about).ensemble
    logits = ensemble.combination.logits(ensemble.latents(windows)).float()  # fresh networks hardly tell windows apart
    tensors["classifier.weight"] /= logits.std(1)[..., None]
    tensors["classifier.bias"] = (tensors["classifier.bias"] - logits.mean(1)) / logits.std(1)
    return single(setting, tensors, **about)


def is_graph(model: Model) -> bool:
    try:
        model.graph()
    except UserError:
        return False
    return True


def everything() -> Model:
    """One part of each, whose weights dilute none of them."""
    parts = [part(one, seed) for seed, one in enumerate(dict.fromkeys(settings()))]
    return weighted([one for one in parts if is_graph(one)], np.ones(sum(map(is_graph, parts))) / 2)


def known_people(model: Model) -> Model:
    """With what is known of how subjects differ, so that it can follow and be calibrated."""
    draw = torch.Generator().manual_seed(1)
    parts = []
    for one in model.candidates:
        members, dim = len(one.members), one.members.latent_dim
        size = {"projection": (members, dim, 2), "means": (members, 2, 2), "shift": (members, 2)}
        drawn = {name: torch.randn(shape, generator=draw) / shape[1] ** 0.5 for name, shape in size.items()}
        drawn["shift"] = drawn["shift"].abs() + 0.1
        parts.append(replace(one, effects=Effects(**drawn, interaction=drawn["shift"] / 2)))
    return Model(replace(model.card, session_method="class means", calibrates_with=[5]), parts)


@pytest.fixture(autouse=True)
def _few_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "BATCHES", BATCHES)


def check(model: Model, content: bytes, format: str, tolerance: float = 1e-5) -> None:
    compare(model, FORMATS[format].open(content, None), tolerance)


def compare(model: Model, predict: formats.Predict, tolerance: float = 1e-5) -> None:
    for n in BATCHES:
        expected = model.predict_proba(OWN[:n])
        np.testing.assert_allclose(predict(OWN[:n]), expected, rtol=0, atol=tolerance)
    assert expected.std(0).max() > 0.01, "windows must be told apart, or nothing is compared"
    assert (expected.max(1) < 0.999).mean() > 0.5, "answers that are all sure hide differences"


def test_every_part_that_is_registered_is_a_graph() -> None:
    model = everything()
    assert {one.setting.encoder for one in model.candidates} == set(ENCODERS)
    assert {one.setting.to_dict().get("represent") for one in model.candidates} >= set(REPRESENTATIONS)
    for one in alone(model):
        graph = one.graph()
        compare(one, lambda windows: graph(windows).detach().numpy())  # noqa: B023  # called at once
        np.testing.assert_allclose(one.predict_proba(OWN), by_layers(one, OWN), rtol=0, atol=1e-5)


def test_parts_that_rule_classes_out_stay_finite_in_a_file() -> None:
    """Below 1e-38 single precision has 0, and a constant that an exporter writes in it has no logarithm either: two
    sure parts that disagree are then not a number."""
    pytest.importorskip("onnxscript", reason="needs the onnx extra")
    pytest.importorskip("onnxruntime", reason="needs the onnx extra")
    parts = [part(at.Setting(encoder="linear", standardize=name), 7) for name in ("none", "train")]
    for one, sign in zip(parts, (1, -1), strict=True):
        one.candidates[0].members.classifier.bias.data.add_(torch.tensor([1000.0, -1000.0]) * sign)
    model = weighted(parts, [0.5, 0.45])
    predicted = FORMATS["onnx"].open(FORMATS["onnx"].write(model), None)(OWN[:2])
    np.testing.assert_allclose(predicted, model.predict_proba(OWN[:2]), rtol=0, atol=1e-5)


QUICK = {"tdar"}  # whose files were not finite once, as those of "combined", which take 20 s


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in REPRESENTATIONS]
)
def test_flat_channels_and_silence_are_the_same_in_a_file(name: str) -> None:
    """Exporters write numbers in single precision: what keeps a logarithm or a quotient finite in double is 0 there."""
    pytest.importorskip("onnxscript", reason="needs the onnx extra")
    pytest.importorskip("onnxruntime", reason="needs the onnx extra")
    windows = OWN[:8].clone()
    for channel in range(windows.shape[1]):  # each flat in two windows, at 0 and at a value that binary has not
        windows[2 * channel, channel], windows[2 * channel + 1, channel] = 0.0, 0.1
    windows[-1] = 0.0
    model = part(represented_by(name), windows=windows)
    assert (model.predict_proba(windows).max(1) < 0.999).all(), "sure answers hide differences"
    predict = FORMATS["onnx"].open(FORMATS["onnx"].write(model), None)
    for some in (windows[:-1], windows[-1:]):
        np.testing.assert_allclose(predict(some), model.predict_proba(some), rtol=0, atol=1e-5)


def test_a_torch_file_holds_features_of_a_single_channel() -> None:
    model = part(represented_by("combined"))  # whose speed is one channel, without pairs of channels
    check(model, FORMATS["torch"].write(model), "torch")


def for_one_person(model: Model) -> Model:
    """It follows subjects, and has been calibrated for one."""
    plain = known_people(model)
    made = plain.calibrate_checked(OWN[:10], torch.arange(10) % 2)
    assert np.abs(made.predict_proba(OWN) - plain.predict_proba(OWN)).max() > 0.01, "labels must matter"
    return made


@pytest.mark.parametrize("parts", ["some", pytest.param("all", marks=pytest.mark.slow)])
def test_graphs_in_files_say_what_the_model_does(parts: str, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxscript", reason="needs the onnx extra")
    pytest.importorskip("onnxruntime", reason="needs the onnx extra")
    few: list[dict[str, Any]] = [{"standardize": "train"}, {"standardize": "train", "strength": 0.1, "method": "mmd"}]
    few += [{"standardize": "train", "encoder": "shallow"}]
    few += [{"encoder": "linear", "standardize": "none", "represent": "features"}]
    some = [part(at.Setting(**values), seed) for seed, values in enumerate(few)]
    model = for_one_person(everything() if parts == "all" else weighted(some, [0.4, 0.3, 0.3, 0.5]))
    before = model.predict_proba(OWN)
    for format in ("onnx", "torch"):
        check(model, FORMATS[format].write(model), format)
    np.testing.assert_array_equal(model.predict_proba(OWN), before, "exporting has changed what the model says")
    assert capfd.readouterr() == ("", ""), "exporters must not talk to users"


def test_safetensors_hold_any_model() -> None:
    parts = [part(one, seed) for seed, one in enumerate(dict.fromkeys(settings()))]
    model = for_one_person(weighted(parts, np.ones(len(parts)) / 2))
    check(model, FORMATS["safetensors"].write(model), "safetensors", 0)


def test_what_an_exporter_raises_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = weighted([part(at.Setting(standardize="train")), part(at.Setting(encoder="shallow"), 1)], [0.5, 0.5])
    real = torch.export.export

    def refuse(module: Any, *given: Any, **more: Any) -> Any:
        kinds = {type(stack.encoder).__name__ for stack in module.stacks}
        if "ShallowGraph" in kinds:
            raise RuntimeError("Constraints violated (N)!\n  a page\n  of it")
        return real(module, *given, **more)

    monkeypatch.setattr(torch.export, "export", refuse)
    with (
        caplog.at_level(logging.INFO, "autotransfer"),
        pytest.raises(UserError, match=r"graph \(.*Constraints .*use the format safetensors") as told,
    ):
        export_model(model, "torch", tmp_path / "model.pt2")
    assert "\n" not in str(told.value)
    assert any(record.exc_info for record in caplog.records), "the log has the whole of it"
    assert not list(tmp_path.iterdir())
