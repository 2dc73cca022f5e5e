"""Log power beside the code: what it says it is, the same stacked, alone, exported and through a file."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.export.formats import FORMATS
from autotransfer.model import norm_pool
from autotransfer.model.eegnet import EEGNet
from autotransfer.model.power import FLOOR, log_power, square_pool
from autotransfer.randomness import fold_in
from autotransfer.training.packing import member_bytes, program_of
from plain_eegnet import PlainEEGNet, copy_member
from test_export import difference, random_model, raw_windows
from tiny import assert_same_outcome, people, stacked_jobs


@pytest.mark.parametrize(("times", "pool"), [(24, 4), (27, 4), (9, 8), (7, 1)])
def test_squares_are_pooled(times: int, pool: int) -> None:
    v = torch.randn(2, 3, times, dtype=torch.float64, requires_grad=True)
    found = square_pool(v, pool)
    wanted = F.avg_pool1d(v.square(), pool)
    torch.testing.assert_close(found, wanted)
    grad = torch.randn_like(wanted)
    (slope,), (expected,) = (torch.autograd.grad(out, [v], grad) for out in (found, wanted))
    torch.testing.assert_close(slope, expected)


def test_log_power_of_silence_is_finite_and_a_factor_is_a_summand() -> None:
    squares = torch.rand(2, 3, 17, dtype=torch.float64) + 0.5
    steps = log_power(squares, 8)
    assert steps.shape == (2, 3, 2), "what does not fill a step is left out"
    torch.testing.assert_close(steps[0, 1, 1], (squares[0, 1, 8:16].mean() + FLOOR).log())
    torch.testing.assert_close(
        log_power(100 * squares, 8) - steps, torch.full_like(steps, math.log(100)), atol=2e-3, rtol=0
    )
    assert torch.isfinite(log_power(0 * squares, 8)).all()


class PlainWithPower(PlainEEGNet):
    """The oracle: the signal after the spatial filter, less what the first normalisation adds to it."""

    def __init__(self, n_channels: int, n_times: int, kernel: int) -> None:
        super().__init__(n_channels, n_times, kernel)
        self.power_norm = torch.nn.BatchNorm1d(self.norm2.num_features)

    def forward(self, x: Tensor) -> Tensor:
        h = self.temporal(F.pad(x[:, None], self.pad1))  # (B, F1, C, T)
        if self.training:
            var, mean = torch.var_mean(h, (0, 2, 3), unbiased=False)
        else:
            var, mean = self.norm1.running_var, self.norm1.running_mean
        shift = self.norm1.bias - mean * self.norm1.weight / (var + self.norm1.eps).sqrt()
        wide = self.spatial(self.norm1(h))[:, :, 0]  # (B, W, T)
        depth = len(self.spatial.weight) // len(shift)
        added = shift.repeat_interleave(depth) * self.spatial.weight.flatten(1).sum(1)
        power = (wide - added[:, None]).square()
        span = 4 * self.pool2.kernel_size[1]
        steps = power.shape[-1] // span
        power = power[..., : steps * span].unflatten(-1, (steps, span)).mean(-1)
        power = self.power_norm((power + FLOOR).log())
        h = self.pool1(F.elu(self.norm2(wide[:, :, None])))
        h = self.pointwise(self.depthwise(F.pad(h, (7, 8))))
        code = self.pool2(F.elu(self.norm3(h))).flatten(2)
        return torch.cat([code, power], 1).flatten(1)


@pytest.mark.parametrize(("channels", "times", "kernel"), [(3, 64, 9), (5, 71, 16), (2, 9, 3)])
def test_the_code_equals_the_plain_networks(channels: int, times: int, kernel: int) -> None:
    net = EEGNet(channels, times, 3, temporal_kernel=kernel, log_power=True, dropout=0.0, seeds=range(3)).double()
    plain = PlainWithPower(channels, times, kernel).double()
    copy_member(plain, net, 1)
    x = 2 * torch.randn(11, channels, times, dtype=torch.float64)
    target = torch.randn(11, net.latent_dim, dtype=torch.float64)
    for training in (True, True, False):
        net.train(training)
        plain.train(training)
        found, wanted = net(x)[1], plain(x)
        torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-10)
        slopes = torch.autograd.grad((found * target).sum(), [net.temporal, net.spatial, net.power_norm.weight])  # type: ignore[union-attr]
        expected = torch.autograd.grad(
            (wanted * target).sum(), [plain.temporal.weight, plain.spatial.weight, plain.power_norm.weight]
        )
        for slope, own in zip(slopes, expected, strict=True):
            torch.testing.assert_close(slope[1].flatten(), own.flatten(), rtol=1e-7, atol=1e-9)
    assert net.latent_dim == (16 + 16) * (times // 4 // min(8, times // 4))


@pytest.mark.slow
def test_what_only_power_tells_is_learned_sooner() -> None:
    """Noise, one of three channels louder, every person with a gain of their own. Seen: .96 and .99 with power, .72 and
    .77 without, for two draws."""
    draw = np.random.default_rng(0)
    y, subject = np.tile([0, 1, 2], 120), np.repeat(np.arange(6), 60)
    loudness = (1 + 0.5 * np.eye(3))[y] * draw.uniform(0.5, 2, 6)[subject, None]
    X = loudness[..., None] * draw.normal(0, 1, (360, 3, 96))
    recordings = at.Recordings(X.astype(np.float32), y, subject, sfreq=64)
    scores = {}
    for power in (False, True):
        setting = at.Setting(log_power=power, standardise="train", max_epochs=8, batch_size=32, lr=3e-3)
        jobs = [at.Job(setting, fold, 0) for fold in at.leave_one_subject_out(recordings)]
        scores[power] = np.mean([outcome.test_score for outcome in at.train(recordings, jobs, device="cpu")])
    assert scores[True] > scores[False] + 0.1, scores


def test_every_layer_drops_by_draws_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = []

    def told(key: Tensor, layer: int) -> Tensor:
        layers.append(layer)
        return fold_in(key, layer)

    monkeypatch.setattr(norm_pool, "fold_in", told)
    net = EEGNet(3, 64, 2, temporal_kernel=9, log_power=True, dropout=0.5, seeds=range(2))
    z = net(torch.randn(2, 40, 3, 64), noise=torch.tensor([1, 2], dtype=torch.int32))
    assert len(layers) == len(set(layers)) == 3
    code, power = (part == 0 for part in z.reshape(2, 40, 2, -1).unbind(2))
    assert power.float().mean() == pytest.approx(0.5, abs=0.05), "power is dropped, too"
    assert (code == power).float().mean() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("standardise", ["trial", "online"])
def test_a_member_equals_itself_alone(standardise: str) -> None:
    rec = people()
    jobs = stacked_jobs(rec, standardise=standardise, log_power=True)
    together = at.train(rec, jobs, device="cpu", dtype=torch.float64)
    (alone,) = at.train(rec, [jobs[3]], device="cpu", dtype=torch.float64)
    assert_same_outcome(alone, together[3], 1e-9)


def test_it_is_a_program_of_its_own_and_needs_more() -> None:
    rec = people()
    fold = at.leave_one_subject_out(rec)[0]
    jobs = [at.Job(at.Setting(log_power=power), fold) for power in (False, True)]
    assert len({program_of(rec, job) for job in jobs}) == 2
    plain, own = (member_bytes(rec, job, torch.float32) for job in jobs)
    assert own > plain


@pytest.mark.parametrize("kind", ["trial", "train", "transductive", "none"])
def test_the_exported_module_equals_the_model(kind: str) -> None:
    saved = random_model(kind, 5, 70, 9, log_power=True)
    windows, plain = raw_windows(saved), random_model(kind, 5, 70, 9)
    assert np.abs(saved.predict_proba(windows) - plain.predict_proba(windows)).max() > 1e-3
    assert difference(saved, saved.graph()(windows).numpy(), windows) < 2e-6


# Graphs in files are in the quick suite already, in test_export_parts.
@pytest.mark.parametrize("format", [pytest.param(f, marks=[pytest.mark.slow] * (f != "safetensors")) for f in FORMATS])
def test_files_predict_as_the_model_does(format: str) -> None:
    if format == "onnx":
        pytest.importorskip("onnxscript", reason="needs the onnx extra")
        pytest.importorskip("onnxruntime", reason="needs the onnx extra")
    saved = random_model("train", 4, 70, 7, append_scale=True, log_power=True)
    content = FORMATS[format].write(saved)
    windows = raw_windows(saved, 50)
    assert difference(saved, FORMATS[format].open(content, None)(windows), windows) < 2e-6


def test_settings_tell_it() -> None:
    own = at.Setting(log_power=True)
    assert own.name_relative_to(at.Setting()) == "baseline with log_power"
    assert at.Setting.from_json(own.to_json()) == own
    with pytest.raises(UserError, match="log_power belongs to the encoder 'eegnet'"):
        at.Setting(log_power=True, encoder="own")
