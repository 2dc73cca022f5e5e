"""Windows whose levels are stored once equal the plain computation, in values and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import autotransfer as at
from autotransfer.model import layers
from autotransfer.model.eegnet import EEGNet
from autotransfer.model.moments import SplitWindows, constant_sums, window_moments, window_sums
from autotransfer.randomness import as_keys
from autotransfer.training.trainer import Trainer
from autotransfer.training.windows import prepare_windows
from tiny import assert_same_outcome

CPU = torch.device("cpu")
SETTING = {"standardize": "train", "append_scale": True, "batch_size": 16, "max_epochs": 2, "checkpoint": "last"}


def split_windows(
    dtype: torch.dtype, groups: int = 2, batch: int = 5, channels: int = 3, times: int = 40
) -> SplitWindows:
    signals = torch.randn(groups, channels, batch, times, dtype=dtype).transpose(1, 2)
    return SplitWindows(signals, torch.randn(groups, batch, 4, dtype=dtype))


def drawn_out(x: SplitWindows) -> Tensor:
    """(G, B, C + L, T), channel-major in memory."""
    levels = x.constants[..., None].expand(*x.constants.shape, x.signals.shape[3])
    return torch.cat([part.transpose(1, 2) for part in (x.signals, levels)], 1).transpose(1, 2)


@pytest.mark.parametrize("kernel", [1, 2, 9, 64])
@pytest.mark.parametrize("times", [8, 40, 101])
def test_sums_of_levels_are_those_of_rows_of_one_value(kernel: int, times: int) -> None:
    levels = torch.randn(3, 5, dtype=torch.float64)
    drawn_out = levels[..., None].expand(3, 5, times).contiguous()
    torch.testing.assert_close(constant_sums(levels, times, kernel), window_sums(drawn_out, kernel))


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("group", [None, [1, 0, 0]])
def test_mixed_channels_and_their_gradients(dtype: torch.dtype, digits: float, group: list[int] | None) -> None:
    whose = None if group is None else torch.tensor(group)
    x = split_windows(dtype)
    w = torch.randn(2 if group is None else 3, 6, 7, dtype=dtype, requires_grad=True)
    exact = drawn_out(x).transpose(1, 2).flatten(2)
    grad = torch.randn(len(w), 6, 5 * 40, dtype=dtype)
    found, wanted = layers.mix_windows(w, x, whose), torch.bmm(w, exact if whose is None else exact[whose])
    torch.testing.assert_close(found, wanted, rtol=digits, atol=10 * digits)
    slopes = [torch.autograd.grad(out, w, grad)[0] for out in (found, wanted)]
    torch.testing.assert_close(*slopes, rtol=digits, atol=100 * digits)


@pytest.mark.parametrize("masked", [False, True])
def test_a_network_sees_no_difference(masked: bool) -> None:
    """float64: latents, running statistics and gradients of all parameters; `masked`: with channels silenced."""
    torch.manual_seed(0)
    x = split_windows(torch.float64)
    if masked:
        x = x.scale((torch.rand(2, 5, 7) > 0.3).double())
    results: list[list[Tensor]] = []
    for windows in (x, drawn_out(x)):
        net = EEGNet(7, 40, 2, temporal_kernel=9, log_power=True, seeds=[1, 2]).double()
        z = net(windows, noise=as_keys([5, 6]))
        z.square().sum().backward()
        results.append([z.detach(), *(p.grad for p in net.parameters() if p.grad is not None), *net.buffers()])
    assert len(results[0]) > 10
    for found, plain in zip(*results, strict=True):
        torch.testing.assert_close(found, plain, rtol=1e-9, atol=1e-9)
    moments = window_moments(x, 9), window_moments(drawn_out(x), 9)
    torch.testing.assert_close(moments[0].covariance, moments[1].covariance)


def recordings(*, flat: bool = False) -> at.Recordings:
    rec = at.synthetic(n_subjects=4, windows_per_class=6, n_channels=3, n_times=48, sfreq=64)
    X = 50 + 2 * rec.X.numpy().copy()
    X[5, 1] = 0.1  # an electrode that fell off
    if flat:
        X[7, 2] = 3 + 1e-6 * X[7, 2]  # hardly moves, which is not the same in folds of other scales
    return at.Recordings(X, rec.y.numpy(), rec.subject.numpy(), sfreq=64)


def trainer_of(rec: at.Recordings, dtype: torch.dtype, **options: Any) -> Trainer:
    jobs = [at.Job(at.Setting(**SETTING | options), fold) for fold in at.leave_one_subject_out(rec)[:3]]
    return Trainer(jobs, prepare_windows(rec, jobs[0], device=CPU, dtype=dtype))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"channel_mask": 0.3},
        {"amplitude": 0.5},
        {"amplitude": 0.5, "channel_mask": 0.3},
        {"checkpoint": "averaged"},
    ],
    ids=str,
)
def test_a_training_is_the_same_without_shapes(options: dict[str, Any]) -> None:
    """In float64, with the tables and without them."""
    rec = recordings()
    found, plain = (trainer_of(rec, torch.float64, log_power=True, **options) for _ in range(2))
    assert found.prepared.standardized is not None
    plain.takes_split_windows = False
    rows = found.groups.draw_rows(1)[0]
    x = found.prepared.split_windows(rows)
    torch.testing.assert_close(drawn_out(x), plain.prepared.gather(rows), rtol=1e-9, atol=1e-9)
    tabulated = found.prepared.moments(x, rows)
    exact = window_moments(drawn_out(x), found.prepared.windows.kernel)
    torch.testing.assert_close(tabulated.covariance, exact.covariance)
    torch.testing.assert_close(tabulated.mean, exact.mean)
    found.prepared.standardized.tabulate_channels()
    factors = torch.rand(3, len(rows[0]), x.n_channels, dtype=torch.float64)
    changed = x.scale(factors)
    tabulated = found.prepared.moments_of_standardized(changed, rows, factors)
    exact = window_moments(drawn_out(changed), found.prepared.windows.kernel)
    torch.testing.assert_close(tabulated.covariance, exact.covariance)
    torch.testing.assert_close(tabulated.mean, exact.mean)
    for _ in range(2):
        for trainer in (found, plain):
            trainer.train_epoch()
    torch.testing.assert_close(found.flat.values, plain.flat.values, rtol=0, atol=1e-8)
    torch.testing.assert_close(found.flat.stats, plain.flat.stats, rtol=0, atol=1e-8)
    found.select([2])
    x = found.prepared.split_windows(rows[2:])
    torch.testing.assert_close(drawn_out(x), plain.prepared.gather(rows)[2:], rtol=1e-9, atol=1e-9)


def test_a_channel_that_hardly_moves_is_left_to_the_transform() -> None:
    assert trainer_of(recordings(flat=True), torch.float64).prepared.standardized is None


@pytest.mark.parametrize("options", [{}, {"channel_mask": 0.3}], ids=str)
def test_a_member_alone_is_the_member_of_a_stack(options: dict[str, Any]) -> None:
    rec = recordings()
    jobs = [at.Job(at.Setting(**SETTING | options), f, seed=s) for f in at.leave_one_subject_out(rec) for s in (0, 1)]
    together = at.train(rec, jobs, device="cpu")
    (alone,) = at.train(rec, [jobs[5]], device="cpu")
    assert together[5].population == len(jobs)
    assert_same_outcome(alone, together[5])
