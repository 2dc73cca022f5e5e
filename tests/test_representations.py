"""Every registered representation keeps this contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.preprocessing.represent import REPRESENTATIONS, Represent, Representation
from test_registries import check_saved_and_exported

SFREQ = 100.0
# Of those that read some, for windows of 6 channels at SFREQ.
CONSTANTS: dict[str, tuple[float, ...]] = {"rhythms": (8.0, 13.0, 16.0, 26.0)}
EVERY = pytest.mark.parametrize("name", REPRESENTATIONS)


def told(name: str) -> dict[str, Any]:
    """What a representation must be told."""
    return {"represent": name} | {
        field: SFREQ if field == "sfreq" else CONSTANTS[name] for field in REPRESENTATIONS[name].required_fields
    }


def setting_of(name: str, **more: Any) -> at.Setting:
    return at.Setting(encoder="linear", standardize="none", **told(name) | more)


def recordings(channels: int = 6, times: int = 60, per: int = 12) -> at.Recordings:
    """Of four subjects, whose two classes differ in frequency and in how channels go together."""
    draw = np.random.default_rng(0)
    y, subject = np.tile([0, 1], 2 * per), np.repeat(np.arange(4), per)
    time = np.arange(times) / SFREQ
    phase = draw.uniform(0, 2 * np.pi, (len(y), 1, 1))
    wave = np.sin(2 * np.pi * np.where(y == 0, 8.0, 13.0)[:, None, None] * time + phase)
    mixed = draw.standard_normal((2, channels, channels))[y] @ draw.standard_normal((len(y), channels, times))
    X = (wave + 0.3 * mixed) * np.exp(draw.uniform(-1, 1, (4, channels)))[subject][..., None] + 3
    return at.Recordings(X.astype(np.float32), y, subject, sfreq=SFREQ)


def fitted(name: str, rec: at.Recordings) -> Any:
    preprocessing = setting_of(name).preprocessing
    return preprocessing.fit(rec.X, rec.subject, [np.flatnonzero(rec.subject.numpy() > 0)])


@EVERY
@pytest.mark.parametrize(("channels", "times"), [(6, 60), (6, 257)])
def test_shape_dtype_and_what_other_windows_do_to_it(name: str, channels: int, times: int) -> None:
    rec = recordings(channels, times)
    step = fitted(name, rec)
    x = step(rec.X[None], rec.subject[None])
    assert x.dtype == torch.float32
    assert x.shape == (1, rec.n_windows, *setting_of(name).preprocessing.shape(channels, times))
    assert x.isfinite().all()
    assert (x.flatten(2).std(1) > 0).double().mean() > 0.5, "hardly anything in it depends on the window"
    alone = step(rec.X[None, 5:6], rec.subject[None, 5:6])
    torch.testing.assert_close(alone, x[:, 5:6], rtol=1e-5, atol=1e-5)


@EVERY
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_flat_channels_copies_and_any_scale_give_numbers(name: str, scale: float) -> None:
    rec = recordings()
    X = rec.X.clone()
    X[0, 1], X[1] = 0.1, 0.1
    X[2, 1] = X[2, 0]
    X *= scale
    step = setting_of(name).preprocessing.fit(X, rec.subject, [np.arange(len(X))])
    x = step(X[None])
    assert x.isfinite().all()


@EVERY
def test_the_unit_makes_no_difference(name: str) -> None:
    """Magnetic fields in tesla are 1e-13, and their squares must not be taken for silence."""
    rec = recordings()
    X, y, subject = rec.X.numpy(), rec.y.numpy(), rec.subject.numpy()
    odds = []
    for scale in (1.0, 1e-13):
        model = at.CensoredClassifier(setting=setting_of(name)).fit(scale * X, y, subjects=subject)
        odds.append(np.diff(np.log(model.predict_proba(scale * X[:6]).clip(1e-300)))[:, 0])
    np.testing.assert_allclose(odds[1], odds[0], rtol=1e-3)


@EVERY
def test_its_gradient_is_finite(name: str) -> None:
    rec = recordings()
    x = rec.X[None, :4].clone().requires_grad_()
    out = fitted(name, rec)(x)
    if out.requires_grad:
        out.sum().backward()
        assert x.grad is not None
        assert x.grad.isfinite().all()


@EVERY
@pytest.mark.parametrize("center", ["none", "transductive"])
def test_it_is_trained_saved_and_exported(name: str, center: str, tmp_path: Path) -> None:
    check_saved_and_exported(setting_of(name, center=center), tmp_path, recordings())


class Reading(Representation):
    required_fields = ("sfreq", "constants")

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return channels, 1

    def compute(self, x: Tensor) -> Tensor:
        return x.double().mean(-1, keepdim=True)


def test_what_a_representation_reads_is_asked_for_and_nothing_else_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Represent("features", 100.0, (1, 2)) == Represent("features")
    assert "sfreq" not in at.Setting(represent="tangent", sfreq=100.0).to_dict()
    monkeypatch.setitem(REPRESENTATIONS, "reading", Reading)
    known = Represent("reading", 100, [8, np.float32(13)])  # type: ignore[arg-type]
    assert known == Represent("reading", 100.0, (8.0, 13.0))
    assert known.representation.constants == (8.0, 13.0)
    with pytest.raises(UserError, match="represent 'reading' needs constants"):
        Represent("reading", 100.0)
    with pytest.raises(UserError, match="sfreq is -1"):
        Represent("reading", -1, (1.0,))
    with pytest.raises(UserError, match=r"constants is .*list of finite numbers"):
        Represent("reading", 1.0, ("a",))  # type: ignore[arg-type]
