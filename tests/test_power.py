"""Log-power latents equal plain networks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autotransfer.model.eegnet import EEGNet
from autotransfer.model.power import FLOOR
from plain_eegnet import PlainEEGNet, copy_member


class PlainWithPower(PlainEEGNet):
    """The oracle: the signal after the spatial filter, less what the first normalization adds to it."""

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
def test_latents_equal_the_plain_networks(channels: int, times: int, kernel: int) -> None:
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
