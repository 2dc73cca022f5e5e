"""Compressed windows and envelopes: the same as a network that is given what it reads, in training and in use."""

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
from autotransfer.model.eegnet import EEGNet
from autotransfer.model.encoders import moments_of
from autotransfer.model.moments import window_moments
from autotransfer.model.reading import compressed, read, root_mean_square
from autotransfer.training.packing import member_bytes, program_of
from test_export import difference, random_model, raw_windows
from test_training import assert_same, many_jobs, ragged

MU = 10.0
READINGS = pytest.mark.parametrize("envelope", [False, True])


def test_zero_and_one_stay_and_the_order_too() -> None:
    x = torch.tensor([-50.0, -1.0, -0.1, 0.0, 0.1, 1.0, 50.0], dtype=torch.float64)
    found = compressed(x, MU)
    torch.testing.assert_close(found[[1, 3, 5]], x[[1, 3, 5]])
    assert (found.diff() > 0).all()
    torch.testing.assert_close(found, -compressed(-x, MU))
    assert found[4] == pytest.approx(math.log(2) / math.log(11))
    assert found[6] == pytest.approx(math.log(501) / math.log(11))


@pytest.mark.parametrize("width", [1, 2, 5, 16, 40, 99])
def test_an_envelope_is_the_root_mean_square_around_each_sample(width: int) -> None:
    x = 3 * torch.randn(2, 3, 40, dtype=torch.float64)
    for t in range(40):
        around = x[..., max(0, t - (width - 1) // 2) : t + width // 2 + 1]
        assert around.shape[-1] <= width
        torch.testing.assert_close(root_mean_square(x, width)[..., t], around.square().mean(-1).sqrt())
    assert (root_mean_square(torch.zeros(1, 40), width) == 0).all()


def test_a_spike_does_not_drown_the_quiet_rest() -> None:
    x = 0.1 * torch.randn(1, 400)
    clean = root_mean_square(x, 16)
    x[0, 20] = 3000.0
    torch.testing.assert_close(root_mean_square(x, 16)[0, 60:], clean[0, 60:], rtol=1e-4, atol=0)


def test_envelopes_stand_beside_the_channels_and_are_0_at_a_power_of_1() -> None:
    x = torch.randn(4, 3, 40)
    found = read(x, MU, 7)
    torch.testing.assert_close(found[:, :3], compressed(x, MU))
    torch.testing.assert_close(found[:, 3:], compressed(root_mean_square(x, 7), MU) - 1)
    torch.testing.assert_close(read(torch.ones(1, 1, 40), MU, 7)[:, 1], torch.zeros(1, 40))


@READINGS
def test_the_network_reads_what_it_should(envelope: bool) -> None:
    own = EEGNet(3, 40, 4, sfreq=32, seeds=range(4), compress=MU, envelope=envelope, dropout=0.0).double()
    plain = EEGNet(6 if envelope else 3, 40, 4, sfreq=32, seeds=range(4), dropout=0.0).double()
    nets = [own, plain]
    x = 3 * torch.randn(9, 3, 40, dtype=torch.float64)
    expected = compressed(x, MU)
    if envelope:
        expected = torch.cat([expected, compressed(root_mean_square(x, 16), MU) - 1], 1)
    for training in (True, False):  # moments of the batch, then running statistics
        for net in nets:
            net.train(training)
        if not envelope:
            assert not torch.allclose(nets[0](x), nets[1](x))
        found, wanted = nets[0](x), nets[1](expected)
        torch.testing.assert_close(found, wanted)
        for net in nets:
            net.load_state_dict(nets[0].state_dict())


@READINGS
def test_moments_of_windows_as_they_are_are_neither_made_nor_used(envelope: bool) -> None:
    net = EEGNet(3, 40, 4, sfreq=32, seeds=range(4), compress=MU, envelope=envelope, dropout=0.0).double()
    x = 3 * torch.randn(4, 9, 3, 40, dtype=torch.float64)
    wrong = window_moments(x.transpose(1, 2).flatten(1, 2), net.kernel)
    torch.testing.assert_close(net(x, moments=wrong), net(x))
    assert moments_of(at.Setting(), 32) == 16
    assert moments_of(at.Setting(compress=MU, envelope=envelope), 32) == 0


@READINGS
def test_training_equals_training_on_what_is_read(envelope: bool) -> None:
    """The moments that are known beforehand belong to windows as they are, and must not be used."""
    raw = ragged()
    seen = read(raw.X.double(), MU, 16 if envelope else 0)
    before = at.Recordings(seen.numpy(), raw.y.numpy(), raw.subject.numpy(), sfreq=32)
    for job in many_jobs(raw)[1:32:9]:
        plain = at.Job(replace(job.setting, standardise="none"), job.fold, job.seed)
        (expected,) = at.train(before, [plain], device="cpu", dtype=torch.float64)
        own = at.Job(replace(plain.setting, compress=MU, envelope=envelope), job.fold, job.seed)
        (found,) = at.train(raw, [own], device="cpu", dtype=torch.float64)
        assert_same(found, expected, 1e-6)


@READINGS
@pytest.mark.parametrize("standardise", ["trial", "channel", "running"])
def test_a_member_equals_itself_alone(standardise: str, envelope: bool) -> None:
    recordings = ragged()
    jobs = [
        at.Job(replace(job.setting, standardise=standardise, compress=MU, envelope=envelope), job.fold, job.seed)
        for job in many_jobs(recordings)[::4]
    ]
    together = at.train(recordings, jobs, device="cpu", dtype=torch.float64)
    (alone,) = at.train(recordings, [jobs[3]], device="cpu", dtype=torch.float64)
    assert_same(alone, together[3], 1e-9)


def test_other_readings_are_other_programs() -> None:
    recordings = ragged()
    job = many_jobs(recordings)[0]
    readings = ((None, False), (1.0, False), (MU, False), (MU, True))
    settings = [replace(job.setting, compress=mu, envelope=envelope) for mu, envelope in readings]
    assert len({program_of(recordings, replace(job, setting=setting)) for setting in settings}) == 4
    plain, _, _, both = (member_bytes(recordings, replace(job, setting=setting), torch.float32) for setting in settings)
    assert both > plain


@READINGS
@pytest.mark.parametrize("kind", ["trial", "channel", "subject", "none"])
def test_the_exported_module_equals_the_model(kind: str, envelope: bool) -> None:
    saved = random_model(kind, 5, 64, 9, compress=MU, envelope=envelope)
    windows, plain = raw_windows(saved), random_model(kind, 5, 64, 9)
    assert np.abs(saved.predict_proba(windows) - plain.predict_proba(windows)).max() > 1e-3
    assert difference(saved, deployed(saved)(windows).numpy(), windows) < 1e-6


@READINGS
@pytest.mark.parametrize("kind", ["trial", "channel"])
@pytest.mark.parametrize("format", FORMATS)
def test_files_predict_as_the_model_does(kind: str, format: str, envelope: bool) -> None:
    saved = random_model(kind, 4, 40, 7, compress=MU, envelope=envelope)
    content = FORMATS[format].write(saved)
    windows = raw_windows(saved, 50)
    assert difference(saved, FORMATS[format].open(content, None)(windows), windows) < 1e-6


@READINGS
def test_an_estimator_keeps_it(envelope: bool) -> None:
    recordings = ragged()
    X, y, subjects = recordings.X.numpy(), recordings.y.numpy(), recordings.subject.numpy()
    options = {"method": None, "max_epochs": 2, "batch_size": 16, "device": "cpu"}
    plain = at.CensoredClassifier(**options).fit(X, y, subjects=subjects)
    own = at.CensoredClassifier(**options, compress=MU, envelope=envelope).fit(X, y, subjects=subjects)
    assert (own.setting_.compress, own.setting_.envelope) == (MU, envelope)
    assert np.abs(own.predict_proba(X) - plain.predict_proba(X)).max() > 1e-3


def test_wrong_values_are_told() -> None:
    for value in (0, -1.0, math.inf):
        with pytest.raises(UserError, match="compress is"):
            at.Setting(compress=value)
    with pytest.raises(UserError, match="compress belongs to EEGNet"):
        at.Setting(compress=MU, encoder="own")
    with pytest.raises(UserError, match="envelope needs compress"):
        at.Setting(envelope=True)
    assert '"envelope"' not in at.Setting(compress=10).to_json(), (
        "runs from before there were envelopes keep their keys"
    )
    both = at.Setting(compress=10, envelope=True)
    assert at.Setting.from_json(both.to_json()) == both
    told = at.Setting(compress=10, envelope=True).name_beside(at.Setting())
    assert told == "baseline with compress 10.0, envelope"
    assert at.Setting(compress=10).name_beside(at.Setting()) == "baseline with compress 10.0"
