"""Compressed windows: the same as a network that is given windows compressed beforehand, in training and in use."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.export.deployed import deployed
from autotransfer.export.formats import FORMATS
from autotransfer.model.eegnet import EEGNet, compressed
from autotransfer.model.encoders import moments_of
from autotransfer.model.moments import window_moments
from autotransfer.training.packing import program_of
from test_export import difference, random_model, raw_windows
from test_training import assert_same, many_jobs, ragged

MU = 10.0


def test_zero_and_one_stay_and_the_order_too() -> None:
    x = torch.tensor([-50.0, -1.0, -0.1, 0.0, 0.1, 1.0, 50.0], dtype=torch.float64)
    found = compressed(x, MU)
    torch.testing.assert_close(found[[1, 3, 5]], x[[1, 3, 5]])
    assert (found.diff() > 0).all()
    torch.testing.assert_close(found, -compressed(-x, MU))
    assert found[4] == pytest.approx(math.log(2) / math.log(11))
    assert found[6] == pytest.approx(math.log(501) / math.log(11))


def test_the_network_reads_compressed_windows() -> None:
    nets = [EEGNet(3, 40, 4, sfreq=32, seeds=range(4), compress=mu, dropout=0.0).double() for mu in (MU, None)]
    x = 3 * torch.randn(9, 3, 40, dtype=torch.float64)
    for training in (True, False):  # moments of the batch, then running statistics
        found, expected = (net.train(training)(x) for net in nets)
        assert not torch.allclose(found, expected)
        found, expected = nets[0](x), nets[1](compressed(x, MU))
        torch.testing.assert_close(found, expected)
        for net in nets:
            net.load_state_dict(nets[0].state_dict())


def test_moments_of_windows_as_they_are_are_neither_made_nor_used() -> None:
    net = EEGNet(3, 40, 4, sfreq=32, seeds=range(4), compress=MU, dropout=0.0).double()
    x = 3 * torch.randn(4, 9, 3, 40, dtype=torch.float64)
    wrong = window_moments(x.transpose(1, 2).flatten(1, 2), net.kernel)
    torch.testing.assert_close(net(x, moments=wrong), net(x))
    assert moments_of(at.Setting(), 32) == 16
    assert moments_of(at.Setting(compress=MU), 32) == 0


def test_training_equals_training_on_windows_compressed_beforehand() -> None:
    """The moments that are known beforehand belong to windows as they are, and must not be used."""
    raw = ragged()
    before = at.Recordings(compressed(raw.X.double(), MU).numpy(), raw.y.numpy(), raw.subject.numpy(), sfreq=32)
    for job in many_jobs(raw)[1:32:9]:
        plain = at.Job(replace(job.setting, standardise="none"), job.fold, job.seed)
        (expected,) = at.train(before, [plain], device="cpu", dtype=torch.float64)
        own = at.Job(replace(plain.setting, compress=MU), job.fold, job.seed)
        (found,) = at.train(raw, [own], device="cpu", dtype=torch.float64)
        assert_same(found, expected, 1e-6)


@pytest.mark.parametrize("standardise", ["trial", "channel", "running"])
def test_a_member_equals_itself_alone(standardise: str) -> None:
    recordings = ragged()
    jobs = [
        at.Job(replace(job.setting, standardise=standardise, compress=MU), job.fold, job.seed)
        for job in many_jobs(recordings)[::4]
    ]
    together = at.train(recordings, jobs, device="cpu", dtype=torch.float64)
    (alone,) = at.train(recordings, [jobs[3]], device="cpu", dtype=torch.float64)
    assert_same(alone, together[3], 1e-9)


def test_other_strengths_are_other_programs() -> None:
    recordings = ragged()
    job = many_jobs(recordings)[0]
    programs = {program_of(recordings, replace(job, setting=replace(job.setting, compress=mu))) for mu in (None, 1, 10)}
    assert len(programs) == 3


@pytest.mark.parametrize("kind", ["trial", "channel", "subject", "none"])
def test_the_exported_module_equals_the_model(kind: str) -> None:
    saved = random_model(kind, 5, 64, 9, compress=MU)
    windows, plain = raw_windows(saved), random_model(kind, 5, 64, 9)
    assert np.abs(saved.predict_proba(windows) - plain.predict_proba(windows)).max() > 1e-3
    assert difference(saved, deployed(saved)(windows).numpy(), windows) < 1e-6


@pytest.mark.parametrize("kind", ["trial", "channel"])
@pytest.mark.parametrize("format", FORMATS)
def test_files_predict_as_the_model_does(kind: str, format: str) -> None:
    saved = random_model(kind, 4, 40, 7, compress=MU)
    content = FORMATS[format].write(saved)
    windows = raw_windows(saved, 50)
    assert difference(saved, FORMATS[format].open(content, None)(windows), windows) < 1e-6


def test_an_estimator_keeps_it() -> None:
    recordings = ragged()
    X, y, subjects = recordings.X.numpy(), recordings.y.numpy(), recordings.subject.numpy()
    options = {"method": None, "max_epochs": 2, "batch_size": 16, "device": "cpu"}
    plain = at.CensoredClassifier(**options).fit(X, y, subjects=subjects)
    own = at.CensoredClassifier(**options, compress=MU).fit(X, y, subjects=subjects)
    assert own.setting_.compress == MU
    assert np.abs(own.predict_proba(X) - plain.predict_proba(X)).max() > 1e-3


def test_wrong_values_are_told() -> None:
    for value in (0, -1.0, math.inf):
        with pytest.raises(UserError, match="compress is"):
            at.Setting(compress=value)
    with pytest.raises(UserError, match="compress belongs to EEGNet"):
        at.Setting(compress=MU, encoder="own")
    assert at.Setting(compress=10).name_beside(at.Setting()) == "baseline with compress 10.0"
