"""Elementwise Triton kernels equal torch, on a GPU or in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from autotransfer.gpu import elementwise
from autotransfer.randomness import as_keys, bits, fold_in
from autotransfer.training.optimizer import BETAS, EPS, update
from triton_device import DEVICE
from triton_device import seed_draws as seed_draws


@pytest.mark.parametrize("groups", [1, 5, 300])
def test_keys(groups: int) -> None:
    keys = as_keys(torch.randint(2**32, (groups,)).tolist())
    for value in (0, 7, 2**31 - 1):
        assert torch.equal(elementwise.fold_in(keys.to(DEVICE), value).cpu(), fold_in(keys, value))
        tick = torch.tensor(value)
        assert torch.equal(elementwise.fold_in(keys.to(DEVICE), tick.to(DEVICE)).cpu(), fold_in(keys, value))
    rows = torch.randint(1000, (groups, 3))
    each = elementwise.fold_in(keys[:, None].to(DEVICE), rows.to(DEVICE)).cpu()
    assert torch.equal(each, fold_in(keys[:, None], rows))


@pytest.mark.parametrize("n", [1, 33, 1025])
def test_bits(n: int) -> None:
    keys = as_keys(torch.randint(2**32, (2, 3)).flatten().tolist()).view(2, 3)
    assert torch.equal(elementwise.bits(keys.to(DEVICE), n).cpu(), bits(keys, n))
    assert elementwise.bits(keys[:0].to(DEVICE), n).shape == (0, 3, n)


def test_optimizer() -> None:
    members, n = 4, 1100
    values, first, grads = (torch.randn(members, n) for _ in range(3))
    second = torch.rand(members, n)
    steps = torch.tensor([1.0, 0.0, 3.0, 1e5], dtype=torch.float64)
    lr, decay = torch.tensor([1e-3, 1e-2, 1e-3, 1e-4]), torch.tensor([0.0, 0.1, 0.01, 0.0])
    active = torch.tensor([True, False, True, True])
    grads[1, 5] = torch.nan  # of a member that takes no step
    there = [tensor.clone().to(DEVICE) for tensor in (values, first, second, steps, grads, lr, decay, active)]
    update(values, first, second, steps, grads, lr, decay, active)
    elementwise.adamw(*there, BETAS, EPS)
    for found, wanted in zip(there, (values, first, second), strict=False):
        torch.testing.assert_close(found.cpu(), wanted, rtol=1e-5, atol=1e-6)
