"""The critics' network: members side by side, drawn from their keys, frozen when asked."""

from __future__ import annotations

import torch

from autotransfer.censoring.critics import MLP
from autotransfer.randomness import as_keys


def test_weights_are_a_function_of_the_key_alone():
    stacked = MLP(5, 7, 3, keys=as_keys([1, 2, 3]), members=3)
    alone = MLP(5, 7, 3, keys=as_keys([2]), members=None)
    for (name, many), one in zip(stacked.named_parameters(), alone.parameters(), strict=True):
        assert one.shape == many.shape[1:], name
        assert torch.equal(one, many[1])
        assert not torch.equal(many[0], many[1])
