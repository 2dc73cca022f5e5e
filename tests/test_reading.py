"""Compressed windows and levels: the same as a network that is given what it reads, in training and in use."""

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
from autotransfer.model.reading import Reading, compressed, parted, read
from autotransfer.training.packing import member_bytes, program_of
from test_export import difference, random_model, raw_windows
from test_training import assert_same, many_jobs, ragged

MU = 10.0
WAYS = [Reading(MU), Reading(levels=True), Reading(MU, levels=True)]
READINGS = pytest.mark.parametrize("reading", WAYS)
KINDS = [("trial", Reading(MU)), *((kind, own) for kind in ("channel", "subject") for own in WAYS)]


def test_zero_and_one_stay_and_the_order_too() -> None:
    x = torch.tensor([-50.0, -1.0, -0.1, 0.0, 0.1, 1.0, 50.0], dtype=torch.float64)
    found = compressed(x, MU)
    torch.testing.assert_close(found[[1, 3, 5]], x[[1, 3, 5]])
    assert (found.diff() > 0).all()
    torch.testing.assert_close(found, -compressed(-x, MU))
    assert found[4] == pytest.approx(math.log(2) / math.log(11))
    assert found[6] == pytest.approx(math.log(501) / math.log(11))


def test_a_window_is_parted_into_shape_and_levels() -> None:
    x = 5 + 3 * torch.randn(4, 3, 40, dtype=torch.float64)
    shape, levels = parted(x)
    for row in range(4):
        for channel in range(3):
            own = x[row, channel].numpy()
            np.testing.assert_allclose(shape[row, channel], (own - own.mean()) / own.std())
            np.testing.assert_allclose(levels[row, channel], own.mean())
            np.testing.assert_allclose(levels[row, 3 + channel], math.log(own.std() + 1e-3))
    shape, levels = parted(torch.full((1, 2, 40), 0.1))
    assert shape.abs().max() < 1e-3, "a flat channel has no shape"
    assert torch.isfinite(levels).all()


def test_what_is_read() -> None:
    x = torch.randn(4, 3, 40)
    shape, levels = parted(x)
    assert read(x, Reading()) is x
    torch.testing.assert_close(read(x, Reading(MU)), compressed(x, MU))
    torch.testing.assert_close(read(x, Reading(levels=True)), torch.cat([shape, levels], 1))
    torch.testing.assert_close(read(x, Reading(MU, levels=True)), torch.cat([compressed(shape, MU), levels], 1))


@READINGS
def test_the_network_reads_what_it_should(reading: Reading) -> None:
    own = EEGNet(3, 40, 4, sfreq=32, seeds=range(4), reading=reading, dropout=0.0).double()
    plain = EEGNet(reading.inputs(3), 40, 4, sfreq=32, seeds=range(4), dropout=0.0).double()
    nets = [own, plain]
    x = 3 * torch.randn(9, 3, 40, dtype=torch.float64)
    for training in (True, False):  # moments of the batch, then running statistics
        for net in nets:
            net.train(training)
        torch.testing.assert_close(own(x), plain(read(x, reading)))
        for net in nets:
            net.load_state_dict(own.state_dict())


@READINGS
def test_moments_of_windows_as_they_are_are_neither_made_nor_used(reading: Reading) -> None:
    net = EEGNet(3, 40, 4, sfreq=32, seeds=range(4), reading=reading, dropout=0.0).double()
    x = 3 * torch.randn(4, 9, 3, 40, dtype=torch.float64)
    wrong = window_moments(x.transpose(1, 2).flatten(1, 2), net.kernel)
    torch.testing.assert_close(net(x, moments=wrong), net(x))
    assert moments_of(at.Setting(), 32) == 16
    assert moments_of(at.Setting(standardise="channel", **reading._asdict()), 32) == 0


@READINGS
def test_training_equals_training_on_what_is_read(reading: Reading) -> None:
    """The moments that are known beforehand belong to windows as they are, and must not be used."""
    raw = ragged()
    before = at.Recordings(
        read(raw.X.double(), reading).numpy(), raw.y.numpy(), raw.subject.numpy(), sfreq=32
    )  # fmt: skip
    for job in many_jobs(raw)[1:32:9]:
        plain = at.Job(replace(job.setting, standardise="none"), job.fold, job.seed)
        (expected,) = at.train(before, [plain], device="cpu", dtype=torch.float64)
        own = at.Job(replace(plain.setting, **reading._asdict()), job.fold, job.seed)
        (found,) = at.train(raw, [own], device="cpu", dtype=torch.float64)
        assert_same(found, expected, 1e-6)


@pytest.mark.parametrize(("standardise", "reading"), KINDS)
def test_a_member_equals_itself_alone(standardise: str, reading: Reading) -> None:
    recordings = ragged()
    jobs = [
        at.Job(replace(job.setting, standardise=standardise, **reading._asdict()), job.fold, job.seed)
        for job in many_jobs(recordings)[::4]
    ]
    together = at.train(recordings, jobs, device="cpu", dtype=torch.float64)
    (alone,) = at.train(recordings, [jobs[3]], device="cpu", dtype=torch.float64)
    assert_same(alone, together[3], 1e-9)


def test_other_readings_are_other_programs() -> None:
    recordings = ragged()
    job = many_jobs(recordings)[0]
    readings = [{}, {"compress": 1.0}, {"compress": MU}, {"levels": True}, {"compress": MU, "levels": True}]
    settings = [replace(job.setting, standardise="channel", **own) for own in readings]  # type: ignore[arg-type]
    assert len({program_of(recordings, replace(job, setting=setting)) for setting in settings}) == 5
    plain, *_, both = (member_bytes(recordings, replace(job, setting=setting), torch.float32) for setting in settings)
    assert both > plain


def test_memory_is_counted_as_it_was_measured() -> None:
    """64 channels × 256 samples, batches of 128, on a CPU: 14.5 MiB a member for the plain network, 140 with levels and
    power, 39 compressed and with power."""
    recordings = at.synthetic(n_subjects=4, trials_per_class=64, n_channels=64, n_times=256)
    fold = at.leave_one_subject_out(recordings)[0]
    kinds = {"levels": {"levels": True}, "compress": {"compress": MU}}
    told = {
        name: member_bytes(
            recordings, at.Job(at.Setting(standardise="channel", power=True, **own), fold), torch.float32
        )  # type: ignore[arg-type]
        for name, own in kinds.items()
    }
    assert 140 < told["levels"] / 2**20 < 280
    assert 39 < told["compress"] / 2**20 < 80


@pytest.mark.parametrize(("kind", "reading"), KINDS)
def test_the_exported_module_equals_the_model(kind: str, reading: Reading) -> None:
    saved = random_model(kind, 5, 64, 9, reading=reading)
    windows, plain = raw_windows(saved), random_model(kind, 5, 64, 9)
    assert np.abs(saved.predict_proba(windows) - plain.predict_proba(windows)).max() > 1e-3
    assert difference(saved, deployed(saved)(windows).numpy(), windows) < 2e-6


@READINGS
@pytest.mark.parametrize("format", FORMATS)
def test_files_predict_as_the_model_does(format: str, reading: Reading) -> None:
    saved = random_model("channel", 4, 40, 7, reading=reading)
    content = FORMATS[format].write(saved)
    windows = raw_windows(saved, 50)
    assert difference(saved, FORMATS[format].open(content, None)(windows), windows) < 2e-6


@READINGS
def test_an_estimator_keeps_it(reading: Reading) -> None:
    recordings = ragged()
    X, y, subjects = recordings.X.numpy(), recordings.y.numpy(), recordings.subject.numpy()
    options = {"method": None, "max_epochs": 2, "batch_size": 16, "device": "cpu", "standardise": "channel"}
    plain = at.CensoredClassifier(**options).fit(X, y, subjects=subjects)
    own = at.CensoredClassifier(**options, **reading._asdict()).fit(X, y, subjects=subjects)
    assert (own.setting_.compress, own.setting_.levels) == reading
    assert np.abs(own.predict_proba(X) - plain.predict_proba(X)).max() > 1e-3


def test_wrong_values_are_told() -> None:
    for value in (0, -1.0, math.inf):
        with pytest.raises(UserError, match="compress is"):
            at.Setting(compress=value)
    with pytest.raises(UserError, match="compress belongs to EEGNet"):
        at.Setting(compress=MU, encoder="own")
    with pytest.raises(UserError, match="levels belongs to EEGNet"):
        at.Setting(levels=True, standardise="channel", encoder="own")
    with pytest.raises(UserError, match="levels has nothing to read"):
        at.Setting(levels=True)
    assert '"levels"' not in at.Setting(compress=10).to_json(), "runs from before there were levels keep their keys"
    assert at.Setting.from_dict({"compress": 10.0, "envelope": False}) == at.Setting(compress=10), "a card of before"
    with pytest.raises(UserError, match="has envelope, which there is no longer"):
        at.Setting.from_json('{"compress": 10.0, "envelope": true}')
    both = at.Setting(compress=10, levels=True, standardise="channel")
    assert at.Setting.from_json(both.to_json()) == both
    assert both.name_beside(at.Setting()) == "baseline with standardise channel, compress 10.0, levels"
    assert at.Setting(compress=10).name_beside(at.Setting()) == "baseline with compress 10.0"
