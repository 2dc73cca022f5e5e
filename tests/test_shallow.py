"""The encoder of log power: what a plain network of torch's layers computes, the same stacked, alone and exported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.export.formats import FORMATS
from autotransfer.export.proof import sample_windows
from autotransfer.model.encoders import ENCODERS
from autotransfer.model.moments import padding
from autotransfer.model.power import FLOOR
from autotransfer.model.shallow import Shallow, ShallowOptions, shallow_kernel_for
from autotransfer.model.stack import Size
from autotransfer.models.card import ModelCard
from autotransfer.models.loading import load_model
from autotransfer.models.saved_model import SavedModel
from autotransfer.models.saving import write_model
from autotransfer.randomness import as_keys
from autotransfer.runs.options import RunOptions
from autotransfer.training.members import Members
from autotransfer.training.packing import program_of
from test_export import difference, raw_windows, statistics
from tiny import assert_same_outcome, people, stacked_jobs

FILTERS = 6


class PlainShallow(nn.Module):
    """The oracle: torch's own layers, temporal filters first, windows (B, C, T) -> codes (B, D)."""

    def __init__(self, channels: int, times: int, kernel: int) -> None:
        super().__init__()
        self.pad, self.length = padding(kernel), times // 8
        self.temporal = nn.Conv2d(1, FILTERS, (1, kernel), bias=False)
        self.spatial = nn.Conv2d(FILTERS, FILTERS, (channels, 1), groups=FILTERS, bias=False)
        self.norm = nn.BatchNorm1d(FILTERS)
        self.power_norm = nn.BatchNorm1d(FILTERS)

    def forward(self, x: Tensor) -> Tensor:
        h = self.spatial(self.temporal(F.pad(x[:, None], self.pad)))[:, :, 0]  # (B, F, T)
        h = self.norm(h[..., : h.shape[-1] // self.length * self.length])
        power = F.avg_pool1d(h.square(), self.length)
        return self.power_norm((power + FLOOR).log()).flatten(1)


def plain_of(net: Shallow, member: int, times: int) -> PlainShallow:
    plain = PlainShallow(net.n_channels, times, net.kernel).double()
    ours = net.state_dict()
    with torch.no_grad():
        for name, tensor in plain.state_dict().items():
            if not name.endswith("num_batches_tracked"):
                tensor.copy_(ours[name.replace("al.weight", "al")][member].view(tensor.shape))
    return plain


def randomise(net: Shallow) -> None:
    """Every parameter and running statistic with a value of its own: defaults of 0 and 1 hide mistakes."""
    with torch.no_grad():
        for name, tensor in [*net.named_parameters(), *net.named_buffers()]:
            if "norm" in name:
                tensor.copy_(torch.rand_like(tensor) + 0.5)


@pytest.mark.parametrize(
    ("channels", "times", "kernel"), [(1, 8, 3), (2, 15, 4), (3, 40, 25), (5, 47, 64), (4, 203, 40), (2, 90, 1)]
)
def test_equals_a_plain_network(channels: int, times: int, kernel: int) -> None:
    """Codes, gradients and running statistics, in two steps of training and then with stored statistics."""
    torch.manual_seed(channels * times)
    net = Shallow(channels, times, 3, temporal_kernel=kernel, filters=FILTERS, dropout=0.0, seeds=range(3)).double()
    randomise(net)
    plains = [plain_of(net, member, times) for member in range(3)]
    for training in (True, True, False):
        x = 2 * torch.randn(3, 7, channels, times, dtype=torch.float64) + 0.7
        x.requires_grad_()
        target = torch.randn(3, 7, net.latent_dim, dtype=torch.float64)
        z = net.train(training)(x)
        slopes = torch.autograd.grad((z * target).sum(), [x, *net.parameters()])
        for member, plain in enumerate(plains):
            own = x.detach()[member].clone().requires_grad_()
            wanted = plain.train(training)(own)
            torch.testing.assert_close(z[member], wanted, rtol=1e-9, atol=1e-9)
            parameters = dict(plain.named_parameters())
            names = [
                name.replace("al", "al.weight") if "norm" not in name else name for name, _ in net.named_parameters()
            ]
            expected = torch.autograd.grad((wanted * target[member]).sum(), [own, *(parameters[n] for n in names)])
            for name, slope, other in zip(["x", *names], slopes, expected, strict=True):
                torch.testing.assert_close(
                    slope[member].flatten(), other.flatten(), rtol=1e-8, atol=1e-8, msg=lambda m, n=name: f"{n}: {m}"
                )
            stored = dict(net.named_buffers())
            for name, buffer in plain.named_buffers():
                if not name.endswith("num_batches_tracked"):
                    torch.testing.assert_close(stored[name][member], buffer, rtol=1e-10, atol=1e-10)


def test_an_offset_a_thousand_times_the_signal_costs_little_precision() -> None:
    x = torch.randn(1, 64, 2, 80, dtype=torch.float64)
    x[..., 0] = x[..., -1] = 0.0
    net = Shallow(2, 80, 1, temporal_kernel=1, filters=4, dropout=0.0, seeds=[0])
    found = net(x.float() + 1000.0)
    torch.testing.assert_close(found.double(), net.double()(x), atol=2e-3, rtol=0)


def test_shared_and_grouped_batches_equal_copies() -> None:
    net = Shallow(3, 64, 4, temporal_kernel=16, seeds=[1, 2, 3, 4], dropout=0.0).double()
    x = torch.randn(2, 5, 3, 64, dtype=torch.float64)
    group = torch.tensor([1, 0, 1, 1])
    torch.testing.assert_close(net(x, group=group), net(x[group]), atol=1e-12, rtol=0)
    torch.testing.assert_close(net(x[0]), net(x[[0, 0, 0, 0]]), atol=1e-12, rtol=0)


def test_keyed_dropout_depends_on_key_position_and_the_members_probability_alone() -> None:
    net = Shallow(3, 64, 3, temporal_kernel=9, seeds=[1, 1, 1])
    x = torch.randn(16, 3, 64).expand(3, 16, 3, 64)
    keys, drop = as_keys([11, 12, 11]), torch.tensor([0.25, 0.25, 0.5])
    z = net(x, noise=keys, drop=drop)
    shares = (z == 0).double().mean((1, 2))
    torch.testing.assert_close(shares, drop.double(), atol=0.03, rtol=0)
    assert not torch.equal(z[0] == 0, z[1] == 0)
    assert ((z[0] == 0) <= (z[2] == 0)).all(), "the same draws against another threshold"
    alone = Shallow(3, 64, 1, temporal_kernel=9, seeds=[1])
    assert torch.equal(alone(x[:1], noise=keys[1:2], drop=drop[:1])[0], z[1])
    torch.testing.assert_close(net(x, noise=keys), net(x, noise=keys, drop=torch.full((3,), 0.25)))
    net.eval()
    assert torch.equal(net(x, noise=keys, drop=drop), net(x))


def test_inactive_members_keep_their_running_statistics() -> None:
    net = Shallow(3, 64, 2, temporal_kernel=16, seeds=[0, 1])
    before = {name: buffer.clone() for name, buffer in net.named_buffers()}
    net(torch.randn(2, 8, 3, 64), active=torch.tensor([True, False]))
    for name, buffer in net.named_buffers():
        assert not torch.equal(buffer[0], before[name][0]), name
        assert torch.equal(buffer[1], before[name][1]), name


@pytest.mark.parametrize("times", [8, 9, 15, 16, 23, 33, 65, 1000])
def test_any_length_from_eight_samples(times: int) -> None:
    size = Size(channels=2, times=times, classes=2, sfreq=100.0)
    net = ShallowOptions(power_filters=5).stack(size, 2, [0, 1])
    z = net(torch.randn(4, 2, times))
    assert z.shape == (2, 4, net.latent_dim)
    assert 8 * 5 <= net.latent_dim <= 15 * 5
    assert z.isfinite().all()
    assert net(torch.zeros(4, 2, times)).isfinite().all(), "silence has a logarithm"


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match="windows of 7 samples are too short"):
        Shallow(2, 7, 1, seeds=[0])
    for wrong, message in [
        ({"power_filters": 0}, "power_filters is 0"),
        ({"power_filters": 10**9}, "power_filters is 1000000000; it must be at most"),
        ({"temporal_kernel": "third"}, "unknown temporal_kernel 'third'"),
        ({"temporal_kernel": -1}, "temporal_kernel is -1"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"latent_filters": 4}, "latent_filters belongs to the encoder 'eegnet'"),
    ]:
        with pytest.raises(UserError, match=message):
            at.Setting(encoder="shallow", **wrong)
    with pytest.raises(UserError, match="power_filters belongs to the encoder 'shallow'"):
        at.Setting(power_filters=4)


def test_the_kernel_is_a_fifth_of_a_second_within_bounds() -> None:
    assert [shallow_kernel_for(rate) for rate in (None, 1, 16, 50, 128, 1000)] == [25, 3, 3, 10, 26, 64]
    options = [ShallowOptions(temporal_kernel=kernel) for kernel in (None, "half", 7)]
    assert [own.kernel(100.0) for own in options] == [20, 10, 7]
    assert len({own.program(100.0) for own in options}) == 3
    assert ShallowOptions(dropout=0.5).program(100.0) == options[0].program(100.0)


@pytest.mark.parametrize("standardise", ["trial", "online"])
def test_a_member_equals_itself_alone(standardise: str) -> None:
    rec = people()
    jobs = stacked_jobs(rec, standardise=standardise, encoder="shallow", power_filters=8)
    jobs[1] = at.Job(jobs[1].setting.replace(dropout=0.5), jobs[1].fold, jobs[1].seed)
    assert len({program_of(rec, job) for job in jobs}) == 1
    together = at.train(rec, jobs, device="cpu", dtype=torch.float64)
    for place in (1, 7):
        (alone,) = at.train(rec, [jobs[place]], device="cpu", dtype=torch.float64)
        assert_same_outcome(alone, together[place], 1e-9)
    assert together[0].history != together[1].history


def test_what_only_power_tells_is_learned() -> None:
    """Noise, one of three channels louder, every person with a gain of their own. EEGNet is far behind after as many
    epochs: .72 and .77 for two draws (test_power.py)."""
    draw = np.random.default_rng(0)
    y, subject = np.tile([0, 1, 2], 120), np.repeat(np.arange(6), 60)
    loudness = (1 + 0.5 * np.eye(3))[y] * draw.uniform(0.5, 2, 6)[subject, None]
    X = loudness[..., None] * draw.normal(0, 1, (360, 3, 96))
    recordings = at.Recordings(X.astype(np.float32), y, subject, sfreq=64)
    setting = at.Setting(encoder="shallow", standardise="train", max_epochs=8, batch_size=32, lr=3e-3)
    jobs = [at.Job(setting, fold, 0) for fold in at.leave_one_subject_out(recordings)]
    scores = [outcome.test_score for outcome in at.train(recordings, jobs, device="cpu")]
    assert np.mean(scores) > 0.9, scores


def random_model(kind: str, channels: int, times: int, kernel: int, members: int = 3) -> SavedModel:
    generator = torch.Generator().manual_seed(channels * times)
    setting = at.Setting(encoder="shallow", standardise=kind, power_filters=FILTERS, temporal_kernel=kernel)
    card = ModelCard(
        name="noise", kind="ensemble", members=members, setting=setting.to_dict(), n_times=times,
        channels=[f"C{c}" for c in range(channels)], sfreq=None, classes=["rest", 7, "fist"], subjects=5, scores={},
    )  # fmt: skip
    size = Size(*setting.preprocessing.shape(channels, times), 3, None)
    tensors = {
        name: torch.rand(tensor.shape, generator=generator) + 0.5 if "norm" in name else tensor.detach()
        for name, tensor in Members(setting, size, range(members)).tensors().items()
    }
    return SavedModel(card, tensors | statistics(kind, members, channels, generator))


@pytest.mark.parametrize("kind", ["trial", "train", "transductive", "none"])
@pytest.mark.parametrize(("channels", "times", "kernel"), [(1, 8, 3), (5, 47, 16), (3, 70, 9)])
def test_the_exported_module_equals_the_model(kind: str, channels: int, times: int, kernel: int) -> None:
    saved = random_model(kind, channels, times, kernel)
    windows = raw_windows(saved)
    assert saved.predict_proba(windows).std(0).max() > 0.02, "windows must be told apart, or nothing is compared"
    for n in (1, 1000):
        assert difference(saved, saved.graph()(windows[:n]).numpy(), windows[:n]) < 3e-6


# Graphs in files are in the quick suite already, in test_export_parts.
@pytest.mark.parametrize("format", [pytest.param(f, marks=[pytest.mark.slow] * (f != "safetensors")) for f in FORMATS])
def test_files_predict_as_the_model_does(format: str, tmp_path: Path) -> None:
    if format == "onnx":
        pytest.importorskip("onnxscript", reason="needs the onnx extra")
        pytest.importorskip("onnxruntime", reason="needs the onnx extra")
    saved = random_model("train", 4, 70, 7)
    found = at.export_model(saved, format, tmp_path / f"model{FORMATS[format].suffix}")
    assert found.difference < 3e-6
    write_model(tmp_path / "model", saved.card, saved.tensors())
    windows = raw_windows(saved, 50)
    assert difference(saved, load_model(tmp_path / "model").predict_proba(windows), windows) == 0


def test_the_proof_knows_the_scale_of_raw_windows() -> None:
    """A model without standardisation is tried with windows of the size that it was trained on."""
    saved = random_model("none", 3, 64, 9)
    before = sample_windows(saved, 200, torch.Generator().manual_seed(0)).std()
    saved.net.norm.running_var *= 1e4
    torch.testing.assert_close(sample_windows(saved, 200, torch.Generator().manual_seed(0)).std(), 100 * before)


def test_estimators_and_runs_take_its_name() -> None:
    rec = people(n_subjects=4, per=8)
    clf = at.CensoredClassifier("mmd", encoder="shallow", dropout=0.4, max_epochs=2, batch_size=8, device="cpu")
    clf.fit(rec.X.numpy(), rec.y.numpy(), subjects=rec.subject.numpy())
    assert clf.setting_.network == ShallowOptions(dropout=0.4)
    assert clf.predict(rec.X.numpy()[:3]).shape == (3,)
    for grid in ("quick", "extended"):
        settings = RunOptions(source="x", grid=grid, encoder="shallow").settings()
        assert {setting.network for setting in settings} == {ENCODERS["shallow"]()}
        assert len(set(settings)) == len(settings) > 10
