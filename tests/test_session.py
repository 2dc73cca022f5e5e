"""A session equals batch prediction window by window, and its state can be saved."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.models.adaptation import UNTRIED
from autotransfer.models.model import Model
from autotransfer.preprocessing import TRANSFORMS
from autotransfer.training.members import Members, size_of
from ensembles import single, weighted
from tiny import people, tiny

REC = people(per=40)
OWN = REC.X[REC.subject == 3]  # (40, 3, 24), of a subject whom no model below was fitted on
TRAINING = [np.flatnonzero(np.isin(REC.subject, rows)) for rows in ([0, 1, 2], [1, 2, 4])]


def model(seed: int = 0, **values: Any) -> Model:
    """Two members with random weights and fitted preprocessing."""
    setting = at.Setting(**{"standardize": "none"} | values)
    draw = torch.Generator().manual_seed(seed)
    own = Members(setting, size_of(REC, setting), [seed, seed + 1]).tensors()
    tensors = {k: torch.rand(t.shape, generator=draw) + 0.5 if "norm" in k or "inv_std" in k
               else t.detach() + 0.1 * torch.randn(t.shape, generator=draw) for k, t in own.items()}  # fmt: skip
    if not setting.network.is_closed_form:
        tensors["classifier.weight"] *= 2 if "log_power" in values else 10  # so that it tells windows apart
    fitted = setting.preprocessing.fit(REC.X, REC.subject, TRAINING)
    tensors |= {f"preprocessing.{name}": tensor for name, tensor in fitted.state_dict().items()}
    return single(
        setting, tensors, name="people", n_times=REC.n_times, channels=list(REC.channels), sfreq=REC.sfreq,
        classes=["left", "right"], subjects=3,
    )  # fmt: skip


ONLINE: dict[str, dict[str, Any]] = {  # what must come before each transform that can adapt online
    "standardize": {}, "align": {}, "center": {"encoder": "linear", "represent": "features"},
}  # fmt: skip
KINDS: list[dict[str, Any]] = [
    *(needed | {name: "online"} for name, needed in ONLINE.items()),
    *({"standardize": scale, "align": align, "encoder": encoder}
      for scale, align, encoder in product(("online", "train", "trial"), ("online", "none"), ("eegnet", "shallow"))),
    {"encoder": "linear", "represent": "tangent", "center": "online"},
    {"standardize": "online", "delays": 2, "align": "online", "encoder": "templates"},
    {"standardize": "online", "append_scale": True, "log_power": True},
]  # fmt: skip


def test_every_transform_that_can_adapt_online_is_tested() -> None:
    def adapts(kind: type[Any]) -> bool:
        try:
            return bool(kind("online").adaptation == "online")
        except UserError:
            return False

    assert {name for name, kind in TRANSFORMS.items() if adapts(kind)} == set(ONLINE)


def fed(session: at.Session, windows: torch.Tensor, sizes: list[int]) -> np.ndarray:
    return np.concatenate([np.atleast_2d(session.predict_proba(piece[0] if len(piece) == 1 else piece))
                           for piece in windows.split(sizes)])  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=[pytest.mark.slow] * (3 <= k < len(KINDS) - 1)) for k in range(len(KINDS))],
    ids=lambda k: " ".join(f"{n}={v}" for n, v in KINDS[k].items()),
)
def test_windows_in_order_equal_one_call(kind: int) -> None:
    own = model(**KINDS[kind])
    together = own.predict_proba(OWN)
    for sizes in ([1] * 40, [5, 1, 33, 1]):
        np.testing.assert_allclose(fed(at.Session(own), OWN, sizes), together, rtol=0, atol=1e-5)
    assert together.std(0).max() > 0.003, "windows must differ, or nothing is compared"
    if own.adaptation == "online":
        alone = np.concatenate([own.predict_proba(window[None]) for window in OWN])
        assert np.abs(alone - together).max() > 1e-4, "earlier windows must matter"


def mixture() -> Model:
    parts = [model(seed, **KINDS[k]) for seed, k in enumerate([0, 1, 2, 3, 4, -4, -3, -2, -1])]
    parts += [model(10, standardize="train"), model(11, encoder="shallow"), model(12, standardize="online")]
    return weighted(parts, np.linspace(0.1, 0.4, len(parts)).tolist())


def test_a_mixture_of_all_of_them(tmp_path: Path) -> None:
    mixed = mixture()
    together, session = mixed.predict_proba(OWN), at.Session(mixed)
    first = fed(session, OWN[:20], [1] * 20)
    session.save(tmp_path / "ann.session")
    np.testing.assert_allclose(np.concatenate([first, fed(session, OWN[20:], [1] * 20)]), together, rtol=0, atol=1e-5)
    assert session.n_windows == 40
    again = at.Session.load(tmp_path / "ann.session", mixed)
    assert again.n_windows == 20
    np.testing.assert_array_equal(fed(again, OWN[20:], [1] * 20), fed_from(mixed, tmp_path, OWN[20:]))
    np.testing.assert_allclose(at.Session(mixed).predict_proba(OWN), together, rtol=0, atol=1e-5)


def fed_from(mixed: Model, folder: Path, windows: torch.Tensor) -> np.ndarray:
    """From disk with the model from disk, too."""
    mixed.save(folder / "model")
    return fed(at.Session.load(folder / "ann.session", folder), windows, [1] * len(windows))


def test_shapes_and_classes() -> None:
    session = at.Session(model(standardize="online"))
    assert session.predict_proba(OWN[0]).shape == (2,)
    assert session.predict_proba(OWN[1:4]).shape == (3, 2)
    assert session.predict_proba(OWN[4].tolist()).shape == (2,)
    assert session.predict_proba(OWN[5:6].numpy().astype(int)).shape == (1, 2)
    assert session.n_windows == 6
    session.reset()
    assert session.n_windows == 0
    want = session.classes_[at.Session(session.model).predict_proba(OWN).argmax(1)]
    assert session.classes_.tolist() == ["left", "right"]
    found = session.predict(OWN[0])
    assert (type(found), found) == (np.str_, want[0])
    assert session.predict(OWN[1:]).tolist() == want[1:].tolist()


def test_sessions_are_independent() -> None:
    own = model(standardize="online", align="online")
    one, other = at.Session(own), at.Session(own)
    other.predict_proba(100 * OWN)
    np.testing.assert_allclose(one.predict_proba(OWN), own.predict_proba(OWN), rtol=0, atol=1e-5)
    one.reset()
    np.testing.assert_allclose(one.predict_proba(OWN), own.predict_proba(OWN), rtol=0, atol=1e-5)


def test_opened_from_an_estimator_a_model_or_a_folder(tmp_path: Path) -> None:
    y = np.where(REC.y.numpy() == 1, 7, 3)
    clf = at.CensoredClassifier(method="none", standardize="online", max_epochs=2, batch_size=64, device="cpu")
    with pytest.raises(NotFittedError):
        at.Session(clf)
    clf.fit(REC.X.numpy(), y, subjects=REC.subject.numpy())
    want = clf.predict_proba(OWN.numpy())
    session = at.Session(clf)
    assert session.classes_.tolist() == [3, 7]
    assert session.predict(OWN).tolist() == clf.classes_[want.argmax(1)].tolist()
    clf.model_.save(tmp_path / "run" / "model")
    for source in (clf.model_, tmp_path / "run", str(tmp_path / "run" / "model"), at.load_model(tmp_path / "run")):
        np.testing.assert_allclose(at.Session(source).predict_proba(OWN), want, rtol=0, atol=1e-5)
    at.Session(clf).save(tmp_path / "session")
    at.Session.load(tmp_path / "session", tmp_path / "run")  # the same model


def test_missing_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no folder .*nowhere"):
        at.Session(tmp_path / "nowhere")
    with pytest.raises(UserError, match="there is no model in"):
        at.Session(tmp_path)
    with pytest.raises(UserError, match=r"model is 7; give a fitted estimator"):
        at.Session(7)  # type: ignore[arg-type]
    with pytest.raises((UserError, NotFittedError)):
        at.Session(make_pipeline(at.CensoredClassifier()))
    model().save(tmp_path / "elsewhere")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link"):
        at.Session(tmp_path / "run")


def test_another_model_is_refused(tmp_path: Path) -> None:
    own, path = model(standardize="online"), tmp_path / "session"
    at.Session(own).save(path)
    at.Session.load(path, own)
    moved = model(standardize="online")
    moved.candidates[0].members.classifier.bias.data[0, 0] += 1e-3
    for other in (moved, model(standardize="online", align="online"), weighted([own], [0.5])):
        with pytest.raises(UserError, match="belongs to another model") as caught:
            at.Session.load(path, other)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "damage", ["cut", "no header", "n", "deep", "shape", "missing", "more", "nan", "float8", "text", "absent"]
)
def test_a_damaged_session_is_refused_in_one_line(tmp_path: Path, damage: str) -> None:
    own, path = model(standardize="online"), tmp_path / "session"
    session = at.Session(own)
    session.predict_proba(OWN[:3])
    session.save(path)
    tensors, content = load_file(path), path.read_bytes()
    told = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    name = "stacks.0.standardize.total"
    if damage == "cut":
        path.write_bytes(content[:-3])
    elif damage == "text":
        path.write_text("hello")
    elif damage == "absent":
        path.unlink()
    else:
        if damage == "shape":
            tensors[name] = tensors[name][:1].clone()
        elif damage == "missing":
            del tensors[name]
        elif damage == "more":
            tensors["stacks.7.x"] = torch.zeros(2)
        elif damage == "nan":
            tensors[name][0] = torch.nan
        elif damage == "float8":
            tensors[name] = tensors[name].to(torch.float8_e4m3fn)
        elif damage == "deep":
            told = dict.fromkeys(told, "[" * 100_000)
        elif damage == "n":
            told = {key: json.dumps(json.loads(text) | {"n_windows": -1}) for key, text in told.items()}
        save_file(tensors, path, {} if damage == "no header" else told)
    with pytest.raises(UserError, match=r"cannot read|is not a saved online session") as caught:
        at.Session.load(path, own)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("preprocessing", [pytest.param("zero-shot", marks=pytest.mark.slow), "online"])
def test_single_windows_that_are_odd_equal_one_call(preprocessing: str) -> None:
    from benchmarks.latency import random_ensemble

    mixed = random_ensemble(4, 40, 40.0, preprocessing)
    windows = np.random.default_rng(0).standard_normal((12, 4, 40)).astype(np.float32)
    windows[3, 1] = 2.0  # an electrode that has come off
    windows[4] *= 1e4
    windows[5] = 0.0
    session = at.Session(mixed)
    single = np.stack([session.predict_proba(window) for window in windows])
    np.testing.assert_allclose(single, mixed.predict_proba(windows), atol=1e-5)


def test_untried_adaptation_warns() -> None:
    """A run without the time to play subjects back delivers a model of which nobody knows whether following helps."""
    clf, rec = at.CensoredClassifier(max_epochs=1, batch_size=8), tiny()
    clf.fit(rec.X.numpy(), rec.y.numpy(), subjects=rec.subject.numpy())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = at.Session(clf, adapt=True).model  # an estimator tries no adaptation, and its users expect none
    fitted.card = replace(fitted.card, session_method=UNTRIED)
    with pytest.warns(UserWarning, match="not tried on held-out subjects"):
        assert at.Session(fitted, adapt=True).adapts
    with pytest.raises(UserError, match=r"no time to evaluate.*--time"):
        fitted.predict_proba(rec.X.numpy(), adapt="all")
