"""The log-power encoder equals a plain torch network, stacked and alone."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autotransfer.model.moments import padding
from autotransfer.model.power import FLOOR
from autotransfer.model.shallow import Shallow, ShallowOptions
from autotransfer.model.stack import Size
from autotransfer.randomness import as_keys

FILTERS = 6


class PlainShallow(nn.Module):
    """The oracle: torch's own layers, temporal filters first, windows (B, C, T) -> latents (B, D)."""

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
    plain = PlainShallow(net.spatial.shape[-1], times, net.kernel).double()
    ours = net.state_dict()
    with torch.no_grad():
        for name, tensor in plain.state_dict().items():
            if not name.endswith("num_batches_tracked"):
                tensor.copy_(ours[name.replace("al.weight", "al")][member].view(tensor.shape))
    return plain


def randomize(net: Shallow) -> None:
    """Every parameter and running statistic with a value of its own: defaults of 0 and 1 hide mistakes."""
    with torch.no_grad():
        for name, tensor in [*net.named_parameters(), *net.named_buffers()]:
            if "norm" in name:
                tensor.copy_(torch.rand_like(tensor) + 0.5)


@pytest.mark.parametrize(
    ("channels", "times", "kernel"), [(1, 8, 3), (2, 15, 4), (3, 40, 25), (5, 47, 64), (4, 203, 40), (2, 90, 1)]
)
def test_equals_a_plain_network(channels: int, times: int, kernel: int) -> None:
    """Latents, gradients and running statistics, in two steps of training and then with stored statistics."""
    torch.manual_seed(channels * times)
    options = ShallowOptions(temporal_kernel=kernel, power_filters=FILTERS, dropout=0.0)
    net = Shallow(options, Size(channels, times, 2, None), 3, range(3)).double()
    randomize(net)
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


def test_keyed_dropout_depends_on_key_position_and_the_members_probability_alone() -> None:
    options, size = ShallowOptions(temporal_kernel=9), Size(3, 64, 2, None)
    net = Shallow(options, size, 3, [1, 1, 1])
    x = torch.randn(16, 3, 64).expand(3, 16, 3, 64)
    keys, drop = as_keys([11, 12, 11]), torch.tensor([0.25, 0.25, 0.5])
    z = net(x, noise=keys, drop=drop)
    shares = (z == 0).double().mean((1, 2))
    torch.testing.assert_close(shares, drop.double(), atol=0.03, rtol=0)
    assert not torch.equal(z[0] == 0, z[1] == 0)
    assert ((z[0] == 0) <= (z[2] == 0)).all(), "the same draws against another threshold"
    alone = Shallow(options, size, 1, [1])
    assert torch.equal(alone(x[:1], noise=keys[1:2], drop=drop[:1])[0], z[1])
    torch.testing.assert_close(net(x, noise=keys), net(x, noise=keys, drop=torch.full((3,), 0.25)))
    net.eval()
    assert torch.equal(net(x, noise=keys, drop=drop), net(x))
