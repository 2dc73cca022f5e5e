"""EEGNet in its reordered, stacked form equals the plain network, and members do not touch each other."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from autotransfer.model.eegnet import EEGNet
from autotransfer.model.filtering import filter_times
from autotransfer.model.layers import BatchNorm
from autotransfer.model.moments import padding, window_moments
from autotransfer.randomness import as_keys
from plain_eegnet import PlainEEGNet, copy_member, our_name


def randomized(net: EEGNet) -> EEGNet:
    """Give every parameter and running statistic a value of its own: defaults of 0 and 1 hide mistakes."""
    with torch.no_grad():
        for name, tensor in [*net.named_parameters(), *net.named_buffers()]:
            if "norm" in name:
                tensor.copy_(torch.rand_like(tensor) + 0.5)
    return net


SHAPES = [  # channels, times, kernel
    (1, 8, 3), (2, 9, 8), (3, 31, 5), (4, 40, 64), (16, 128, 64), (64, 64, 33), (8, 300, 64),
    (5, 200, 2), (3, 150, 90),
]  # fmt: skip


@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(("channels", "times", "kernel"), SHAPES)
def test_equals_plain_network(channels: int, times: int, kernel: int, train: bool) -> None:
    torch.manual_seed(channels * times)
    members, batch = 3, 6
    net = randomized(EEGNet(channels, times, members, temporal_kernel=kernel, dropout=0.0).double()).train(train)
    x = torch.randn(members, batch, channels, times, dtype=torch.float64) + 0.3
    x.requires_grad_()
    target = torch.randn(members, batch, net.latent_dim, dtype=torch.float64)

    plains = []
    for member in range(members):
        plain = PlainEEGNet(channels, times, kernel).double().train(train)
        copy_member(plain, net, member)
        plains.append(plain)
    z = net(x)
    (z * target).sum().backward()
    for member, plain in enumerate(plains):
        x_plain = x.detach()[member].clone().requires_grad_()
        z_plain = plain(x_plain)
        (z_plain * target[member]).sum().backward()
        torch.testing.assert_close(z[member], z_plain, atol=1e-10, rtol=0)
        torch.testing.assert_close(x.grad[member], x_plain.grad, atol=1e-10, rtol=1e-10)
        own = dict(net.named_parameters())
        for name, parameter in plain.named_parameters():
            grad = own[our_name(name)].grad[member].reshape(parameter.shape)
            torch.testing.assert_close(grad, parameter.grad, atol=1e-10, rtol=1e-10, msg=lambda m, n=name: f"{n}: {m}")
        buffers = dict(net.named_buffers())
        for name, buffer in plain.named_buffers():
            if not name.endswith("num_batches_tracked"):
                torch.testing.assert_close(buffers[name][member], buffer, atol=1e-10, rtol=0)


def test_shared_and_grouped_batches_equal_copies() -> None:
    net = EEGNet(3, 64, 4, temporal_kernel=16, seeds=[1, 2, 3, 4], dropout=0.0).double()
    x = torch.randn(2, 5, 3, 64, dtype=torch.float64)
    group = torch.tensor([1, 0, 1, 1])
    torch.testing.assert_close(net(x, group=group), net(x[group]), atol=1e-12, rtol=0)
    torch.testing.assert_close(net(x[0]), net(x[[0, 0, 0, 0]]), atol=1e-12, rtol=0)


def test_initial_weights_are_a_function_of_the_members_seed() -> None:
    stack, alone = EEGNet(3, 64, 3, seeds=[5, 6, 7]), EEGNet(3, 64, seeds=[6])
    for (name, stacked), single in zip(stack.named_parameters(), alone.parameters(), strict=True):
        assert torch.equal(stacked[1], single), name
    assert not torch.equal(stack.temporal[0], stack.temporal[1])
    bound = 1 / stack.kernel**0.5
    assert 0.9 * bound < stack.temporal.abs().max() <= bound


def test_keyed_dropout_depends_on_key_and_position_alone() -> None:
    net = EEGNet(3, 64, 3, temporal_kernel=16, seeds=[1, 1, 1], dropout=0.25)
    x = torch.randn(8, 3, 64).expand(3, 8, 3, 64)
    keys, drop = as_keys([11, 12, 11]), torch.tensor([0.25, 0.25, 0.25])
    z = net(x, noise=keys, drop=drop)
    assert torch.equal(z[0], z[2])
    assert not torch.equal(z[0], z[1])
    alone = EEGNet(3, 64, 1, temporal_kernel=16, seeds=[1], dropout=0.25)
    assert torch.equal(alone(x[:1], noise=keys[1:2], drop=drop[:1])[0], z[1])
    share = (z == 0).double().mean().item()
    assert 0.2 < share < 0.3  # the last dropout shows in z as zeros
    net.eval()
    assert torch.equal(net(x, noise=keys, drop=drop)[0], net(x)[0])


def test_inactive_members_keep_their_running_statistics() -> None:
    net = EEGNet(3, 64, 2, temporal_kernel=16)
    before = {name: buffer.clone() for name, buffer in net.named_buffers()}
    net(torch.randn(2, 8, 3, 64), active=torch.tensor([True, False]))
    for name, buffer in net.named_buffers():
        assert not torch.equal(buffer[0], before[name][0]), name
        assert torch.equal(buffer[1], before[name][1]), name


@pytest.mark.parametrize(("times", "kernel"), [(10, 3), (40, 64), (130, 64), (300, 64), (500, 7), (260, 129)])
def test_filter_times_equals_convolution(times: int, kernel: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, times, dtype=torch.float64, requires_grad=True)
    w = torch.randn(3, kernel, dtype=torch.float64, requires_grad=True)
    expected = F.conv1d(F.pad(x.transpose(0, 1), padding(kernel)), w[:, None], groups=3).transpose(0, 1)
    out = filter_times(x, w)
    torch.testing.assert_close(out, expected, atol=1e-11, rtol=0)
    cotangent = torch.randn_like(out)
    for ours, theirs in zip(
        torch.autograd.grad(out, (x, w), cotangent),
        torch.autograd.grad(expected, (x, w), cotangent),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


@pytest.mark.parametrize("kernel", [1, 2, 3, 8, 9, 64, 90])
@pytest.mark.parametrize("times", [8, 20, 64])
def test_window_moments_equal_unfolded_windows(kernel: int, times: int) -> None:
    x = torch.randn(2, 5, times, dtype=torch.float64) + 0.5
    windows = F.pad(x, padding(kernel)).unfold(-1, kernel, 1)  # (2, 5, T, K)
    mean = windows.mean((1, 2))
    second = torch.einsum("grtk,grtl->gkl", windows, windows) / (5 * times)
    moments = window_moments(x[:, None], kernel)
    torch.testing.assert_close(moments.mean, mean, atol=1e-12, rtol=0)
    torch.testing.assert_close(moments.covariance, second - mean[:, :, None] * mean[:, None, :], atol=1e-11, rtol=0)


def test_a_frozen_normalization_stays_frozen_with_dropout() -> None:
    """With kernels as without them: its stored statistics are used and kept."""
    net = EEGNet(3, 64, 2, temporal_kernel=16, seeds=[0, 1], dropout=0.0).train()
    for layer in net.modules():
        if isinstance(layer, BatchNorm):
            layer.eval()
    before = {name: value.clone() for name, value in net.named_buffers()}
    x = 3 + torch.randn(2, 5, 3, 64)
    z = net(x, noise=as_keys([1, 2]))
    assert all((value == before[name]).all() for name, value in net.named_buffers())
    torch.testing.assert_close(z, net.eval()(x))
