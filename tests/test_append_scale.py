"""Shapes with the mean and the log deviation of each channel beside them: known values, in training and in use."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.export.formats import FORMATS
from autotransfer.training.packing import member_bytes, program_of, room_beside
from autotransfer.training.windows import windows_for
from test_export import difference, random_model, raw_windows
from tiny import people, preprocessed

MU = 10.0
WAYS = [{"mu_law": MU}, {"append_scale": True}, {"mu_law": MU, "append_scale": True}]


def test_a_window_is_parted_into_shapes_and_scales() -> None:
    x, subject = 5 + 3 * torch.randn(4, 3, 40, dtype=torch.float64), torch.zeros(4, dtype=torch.long)
    found = preprocessed(x, subject, standardise="none", append_scale=True)
    assert found.shape == (4, 9, 40)
    for row in range(4):
        for channel in range(3):
            own = x[row, channel].numpy()
            np.testing.assert_allclose(found[row, channel], (own - own.mean()) / own.std())
            np.testing.assert_allclose(found[row, 3 + channel], own.mean())
            np.testing.assert_allclose(found[row, 6 + channel], math.log(own.std() + 1e-3))
    flat = preprocessed(torch.full((4, 2, 40), 0.1), subject, standardise="none", append_scale=True)
    assert flat[:, :2].abs().max() < 1e-3, "a flat channel has no shape"
    assert torch.isfinite(flat).all()


def test_other_transforms_are_other_programs_and_need_other_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    rec = people()
    fold = at.leave_one_subject_out(rec)[0]
    jobs = [at.Job(at.Setting(standardise="train", **own), fold) for own in ({}, {"mu_law": 1.0}, *WAYS)]
    assert len({program_of(rec, job) for job in jobs}) == 5
    plain, *_, both = (member_bytes(rec, job, torch.float32) for job in jobs)
    assert both > plain
    monkeypatch.setattr("autotransfer.training.packing.free_memory", lambda _: 5 * rec.X.numel() * 4)
    cpu = torch.device("cpu")
    held = [room_beside(rec, cpu, torch.float32, job.setting.preprocessing) >= 0 for job in jobs]
    assert held == [True, True, True, False, False], "windows with their scales are three times as large"


@pytest.mark.parametrize("network", [{}, {"encoder": "shallow"}])
def test_what_is_tabulated_of_windows_counts(monkeypatch: pytest.MonkeyPatch, network: dict[str, str]) -> None:
    rec = at.synthetic(n_subjects=3, trials_per_class=4, n_channels=16, n_times=128, sfreq=128)
    job = at.Job(at.Setting(**network), at.leave_one_subject_out(rec)[0])
    monkeypatch.setattr("autotransfer.training.packing.free_memory", lambda _: 2.1 * rec.X.numel() * 4)
    held = windows_for(rec, job, device=torch.device("cpu"), dtype=torch.float32)
    assert held.in_memory == bool(network), "half of the memory has room for windows, and none for a table of EEGNet's"


def test_memory_is_counted_as_it_was_measured() -> None:
    """64 channels × 256 samples, batches of 128, on a CPU, with log power: how much the peak of 24 members is above
    that of 12, in MiB a member. With scales it is that of 12 over that of 4, without kernels: 147, with them 112 (24
    over 12). The count may be a little less; a part of the memory is left free."""
    recordings = at.synthetic(n_subjects=4, trials_per_class=64, n_channels=64, n_times=256)
    fold = at.leave_one_subject_out(recordings)[0]
    for own, measured in (({}, 30.4), ({"append_scale": True}, 147.0), ({"mu_law": MU}, 74.6)):
        setting = at.Setting(standardise="train", log_power=True, **own)
        counted = member_bytes(recordings, at.Job(setting, fold), torch.float32) / 2**20
        assert 0.85 * measured < counted < 2 * measured


@pytest.mark.parametrize("kind", ["trial", "train", "transductive"])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_exported_module_equals_the_model(kind: str, way: dict[str, object]) -> None:
    if kind == "trial" and "append_scale" in way:
        return  # refused
    saved = random_model(kind, 5, 64, 9, **way)
    windows, plain = raw_windows(saved), random_model(kind, 5, 64, 9)
    assert np.abs(saved.predict_proba(windows) - plain.predict_proba(windows)).max() > 1e-3
    assert difference(saved, saved.graph()(windows).numpy(), windows) < 2e-6


@pytest.mark.parametrize("way", WAYS, ids=str)
# Graphs in files are in the quick suite already, in test_export_parts.
@pytest.mark.parametrize("format", [pytest.param(f, marks=[pytest.mark.slow] * (f != "safetensors")) for f in FORMATS])
def test_files_predict_as_the_model_does(format: str, way: dict[str, object]) -> None:
    if format == "onnx":
        pytest.importorskip("onnxscript", reason="needs the onnx extra")
        pytest.importorskip("onnxruntime", reason="needs the onnx extra")
    saved = random_model("train", 4, 40, 7, **way)
    windows = raw_windows(saved, 50)
    predict = FORMATS[format].open(FORMATS[format].write(saved), None)
    assert difference(saved, predict(windows), windows) < 2e-6


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_an_estimator_keeps_it(way: dict[str, object]) -> None:
    rec = people()
    X, y, subjects = rec.X.numpy(), rec.y.numpy(), rec.subject.numpy()
    options = {"method": None, "max_epochs": 2, "batch_size": 16, "device": "cpu", "standardise": "train"}
    plain = at.CensoredClassifier(**options, preset="paper").fit(X, y, subjects=subjects)
    own = at.CensoredClassifier(**options, **way, preset="paper").fit(X, y, subjects=subjects)
    assert {name: getattr(own.setting_, name) for name in way} == way
    assert np.abs(own.predict_proba(X) - plain.predict_proba(X)).max() > 1e-3


def test_wrong_values_are_told() -> None:
    with pytest.raises(UserError, match="append_scale needs amplitudes"):
        at.Setting(append_scale=True)
    both = at.Setting(mu_law=10, append_scale=True, standardise="train")
    assert at.Setting.from_json(both.to_json()) == both
    assert both.name_relative_to(at.Setting()) == "baseline with standardise train, mu_law 10.0, append_scale"
    assert at.Setting(append_scale=True, standardise="train", encoder="own").append_scale, "it is no matter of EEGNet"
    assert "append_scale" not in at.Setting().to_json()
