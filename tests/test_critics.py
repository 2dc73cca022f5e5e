"""The critics' network: members side by side, drawn from their keys, frozen when asked."""

from __future__ import annotations

import torch
from torch import nn

from autotransfer.censoring.critics import MLP
from autotransfer.randomness import as_keys


def plain(mlp: MLP, p: int) -> nn.Sequential:
    """Member p as ordinary layers."""
    first, second = nn.Linear(5, 7), nn.Linear(7, 3)
    for layer, weight, bias in ((first, mlp.weight1, mlp.bias1), (second, mlp.weight2, mlp.bias2)):
        layer.weight.data, layer.bias.data = weight.detach()[p].clone(), bias.detach()[p].clone()
    return nn.Sequential(first, nn.ReLU(), second)


def test_every_member_is_a_plain_network():
    mlp = MLP(5, 7, 3, keys=as_keys([1, 2, 3, 4]), members=4)
    x = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(0))
    out = mlp(x, frozen=False)
    out.square().sum().backward()
    for p in range(4):
        net = plain(mlp, p)
        alone = net(x[p])
        torch.testing.assert_close(out[p], alone)
        alone.square().sum().backward()
        torch.testing.assert_close(mlp.weight1.grad[p], net[0].weight.grad)
        torch.testing.assert_close(mlp.bias2.grad[p], net[2].bias.grad)


def test_weights_are_a_function_of_the_key_alone():
    stacked = MLP(5, 7, 3, keys=as_keys([1, 2, 3]), members=3)
    alone = MLP(5, 7, 3, keys=as_keys([2]), members=None)
    for (name, many), one in zip(stacked.named_parameters(), alone.parameters(), strict=True):
        assert one.shape == many.shape[1:], name
        assert torch.equal(one, many[1])
        assert not torch.equal(many[0], many[1])


def test_a_frozen_network_passes_gradients_to_its_input_alone():
    mlp = MLP(5, 7, 3, keys=as_keys([1, 2]), members=2)
    x = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    mlp(x, frozen=True).sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in mlp.parameters())
