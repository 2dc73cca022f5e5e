"""The elementwise kernels against what they stand for: on a GPU, or in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch

from autotransfer.gpu import elementwise
from autotransfer.model.layers import BatchNorm
from autotransfer.model.moments import _cumulate_diagonals
from autotransfer.randomness import as_keys, bits, fold_in
from autotransfer.training.optimiser import BETAS, EPS, update
from autotransfer.training.shapes import QUIET, Shapes

if importlib.util.find_spec("triton") is None:
    pytest.skip("needs Triton, which comes with torch for GPUs", allow_module_level=True)
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a GPU, or Triton's interpreter (TRITON_INTERPRET=1)", allow_module_level=True)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def draws() -> None:
    torch.manual_seed(0)


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


@pytest.mark.parametrize("n", [1, 16, 31, 64])
def test_sums_along_diagonals(n: int) -> None:
    a = torch.randn(2, 3, n, n)
    found = elementwise.cumulate_diagonals(a.to(DEVICE)).cpu()
    torch.testing.assert_close(found, _cumulate_diagonals(a))


@pytest.mark.parametrize("with_offset", [False, True])
@pytest.mark.parametrize("with_active", [False, True])
def test_running_statistics(with_offset: bool, with_active: bool) -> None:
    members, features = 5, 60
    stats = torch.rand(members, 2 * features + 3)  # a matrix of which the statistics are columns, as in Flat
    mean, var, offset = torch.randn(members, features), torch.rand(members, features), torch.randn(members, features)
    active = torch.tensor([True, False, True, True, False]) if with_active else None
    norm = BatchNorm(members, features)
    norm.running_mean, norm.running_var = stats[:, :features].clone(), stats[:, features : 2 * features].clone()
    norm.track(mean, var, 100, active, offset if with_offset else None)
    there = stats.to(DEVICE)
    elementwise.track(
        there[:, :features], there[:, features : 2 * features], mean.to(DEVICE), var.to(DEVICE),
        offset.to(DEVICE) if with_offset else None, None if active is None else active.to(DEVICE), 100 / 99, 0.1,
    )  # fmt: skip
    expected = torch.cat([norm.running_mean, norm.running_var, stats[:, 2 * features :]], 1)
    torch.testing.assert_close(there.cpu(), expected)


def test_optimiser() -> None:
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


def test_levels_of_shapes() -> None:
    shapes = Shapes(100.0 + torch.randn(20, 3, 16), 5, [slice(0, 20)], edges=True)
    rows, shift, scale = torch.randint(20, (4, 7)), 100.0 + torch.randn(4, 3), torch.rand(4, 3)
    on_device = (tensor.to(DEVICE) for tensor in (shapes.mean, shapes.deviation, rows, shift, scale))
    torch.testing.assert_close(elementwise.levels(*on_device, QUIET).cpu(), shapes.levels(rows, shift, scale))
