"""Triton kernels against their plain torch twins: on a GPU, or in Triton's interpreter where Triton is installed."""

from __future__ import annotations

import pytest
import torch

from autotransfer import gpu
from autotransfer.censoring import signs
from autotransfer.censoring.filters import nu_rates, nu_solve, nu_steps
from autotransfer.gpu import DropoutDraws
from autotransfer.gpu.autograd import apply
from autotransfer.model import filtering, layers
from autotransfer.model.norm_pool import drop_units
from autotransfer.model.power import square_pool
from autotransfer.model.shallow import _KernelSegments, _Segments
from triton_device import DEVICE
from triton_device import seed_draws as seed_draws


@pytest.mark.parametrize(("m", "k", "n"), [(16, 8, 257), (9, 700, 61)])
def test_product(m: int, k: int, n: int) -> None:
    a, b = torch.randn(3, m, k, device=DEVICE), torch.randn(3, n, k, device=DEVICE).transpose(1, 2)
    exact = torch.bmm(a.double(), b.double())
    assert (gpu.product(a, b) - exact).abs().max() < 6e-3 * k**0.5  # factors are cut to 10 bits
    torch.testing.assert_close(gpu.product(a.sign(), b.sign()), torch.bmm(a.sign(), b.sign()))
    group = torch.tensor([2, 0, 2, 1], device=DEVICE)
    more = torch.randn(4, m, k, device=DEVICE).sign()
    torch.testing.assert_close(gpu.product(more, b.sign(), group), torch.bmm(more, b.sign()[group]))


@pytest.mark.parametrize(("times", "rows", "kernel"), [(33, 5, 16), (9, 20, 16), (132, 65, 63), (70, 3, 150)])
def test_correlation_and_its_gradients(times: int, rows: int, kernel: int) -> None:
    x, w = torch.randn(3, rows, times, requires_grad=True), torch.randn(3, kernel, requires_grad=True)
    expected = filtering.filter_times(x, w)
    grad = torch.randn_like(expected)
    grad_x, grad_w = torch.autograd.grad(expected, [x, w], grad)
    left, right = filtering.padding(kernel)
    signal, filters, slope = (tensor.detach().to(DEVICE) for tensor in (x, w, grad))

    def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
        assert (found.cpu() - wanted).norm() < 2e-3 * wanted.norm()  # factors have 10 bits

    close(gpu.correlate(signal, filters, left), expected)
    close(gpu.correlate(slope, filters, right, flipped=True), grad_x)
    close(gpu.correlate_gradient(signal, slope, kernel, left), grad_w)


def test_sign() -> None:
    matrix = torch.randn(2, 60, 60)
    matrix = matrix + matrix.mT
    matrix = matrix / torch.linalg.matrix_norm(matrix, 2)[:, None, None]
    found = gpu.sign(matrix.to(DEVICE), signs.STEPS).cpu()
    # As near to the exact one as float32 comes: eigenvalues near 0 decide how near that is.
    exact = signs.sign(matrix.double())
    assert (found - exact).abs().max() < 2 * (signs.sign(matrix) - exact).abs().max() + 1e-5
    torch.testing.assert_close(found, found.mT)


LARGE = [] if DEVICE == "cpu" else [(128, 64), (100, 130)]  # half a minute in the interpreter


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (33, 70), *LARGE])
def test_solve(rows: int, width: int) -> None:
    points = torch.randn(3, rows, 4, dtype=torch.float64)
    kernel = torch.exp(-torch.cdist(points, points).square() / 8) / rows + 0.002 * torch.eye(rows)
    vectors = torch.randn(3, rows, width, dtype=torch.float64)
    exact = torch.linalg.solve(kernel, vectors)
    space = kernel.float().to(DEVICE)
    found = gpu.solve_(space, vectors.float().to(DEVICE)).cpu()
    # as near as rounding allows, which grows with the condition; tensor cores keep two bits less than float32
    assert (found - exact).abs().max() < 4e-7 * torch.linalg.cond(kernel).max() * exact.abs().max()
    spoilt = kernel.float().to(DEVICE)
    spoilt[1, 0, 0] = float("nan")  # of one member: the others do not notice
    others = gpu.solve_(spoilt, vectors.float().to(DEVICE)).cpu()
    assert torch.equal(others[[0, 2]], found[[0, 2]])
    assert others[1].isnan().any()


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (33, 70), *LARGE])
def test_accelerated_iteration(rows: int, width: int) -> None:
    points = torch.randn(3, rows, 4, dtype=torch.float64)
    kernel = torch.exp(-torch.cdist(points, points).square() / 8) / rows
    vectors = torch.randn(3, rows, width, dtype=torch.float64)
    gamma = torch.tensor([[0.01], [0.001], [1.0]], dtype=torch.float64)  # 11, 32 and 2 steps
    exact = nu_solve(kernel, vectors, gamma)  # in float64, which has no kernel
    t = nu_steps(gamma)[:, 0].to(DEVICE)
    rates = [nu_rates(step) for step in range(1, 33)]
    found = gpu.accelerate(kernel.float().to(DEVICE), vectors.float().to(DEVICE), t, rates).cpu()
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-5 * exact.abs().max().item())
    spoilt = kernel.float().to(DEVICE)
    spoilt[1, 0, 0] = float("nan")  # of one member: the others do not notice
    others = gpu.accelerate(spoilt, vectors.float().to(DEVICE), t, rates).cpu()
    assert torch.equal(others[[0, 2]], found[[0, 2]])
    assert others[1].isnan().any()


@pytest.mark.parametrize(("batch", "times", "pool", "squared"), [(5, 24, 4, False), (70, 33, 4, True)])
def test_elu_pool(batch: int, times: int, pool: int, squared: bool) -> None:
    v, scale, shift = torch.randn(3, 4, batch * times), torch.randn(3, 4), torch.randn(3, 4)
    signal = v.view(3, 4, batch, times)
    expected = layers.elu_pool(signal * scale[..., None, None] + shift[..., None, None], pool)
    out, squares = gpu.elu_pool(v.to(DEVICE), scale.to(DEVICE), shift.to(DEVICE), times, pool, squared)
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-5, atol=1e-5)
    assert (squares is not None) == squared
    if squares is not None:
        torch.testing.assert_close(squares.cpu(), square_pool(signal, pool), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("batch", "times", "pool", "shared", "squared"), [(70, 33, 4, False, True), (4, 9, 8, True, False)]
)
def test_norm_pool(batch: int, times: int, pool: int, shared: bool, squared: bool) -> None:
    members, features, eps = 3, 4, 1e-5
    groups = 2 if shared else members
    v = torch.randn(members, features, batch * times, requires_grad=True)
    gamma, beta = torch.rand(members, features) + 0.5, torch.randn(members, features)
    gamma.requires_grad_()
    beta.requires_grad_()
    draws = torch.randint(-(2**15), 2**15, (groups, features * batch * (times // pool)), dtype=torch.int16)
    group = torch.tensor([1, 0, 1]) if shared else None
    dropout = DropoutDraws(draws, group, torch.tensor([0.0, 0.25, 0.5]))
    normal, mean, var = apply(layers._Normalize, v, gamma, beta, None, eps)
    expected = drop_units(dropout, layers.elu_pool(normal.view(members, features, batch, times), pool))
    power = square_pool(v.view(members, features, batch, times), pool)
    grad, grad_power = torch.randn_like(expected), torch.randn_like(power)
    loss = (expected * grad).sum() + ((power * grad_power).sum() if squared else 0.0)
    gradients = torch.autograd.grad(loss, [v, gamma, beta])

    there = DropoutDraws(draws.to(DEVICE), None if group is None else group.to(DEVICE), dropout.drop.to(DEVICE))
    tensors = [tensor.detach().to(DEVICE) for tensor in (v, gamma, beta)]
    out, squares, *moments = gpu.norm_pool_forward(*tensors, there, times, pool, eps, squared)
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-4, atol=1e-5)
    assert (squares is not None) == squared
    if squares is not None:
        torch.testing.assert_close(squares.cpu(), power, rtol=1e-5, atol=1e-6)
    for found, wanted in zip(moments, (mean, var), strict=True):
        torch.testing.assert_close(found.cpu(), wanted, rtol=1e-4, atol=1e-5)
    slopes = grad.to(DEVICE), grad_power.to(DEVICE) if squared else None
    back = gpu.norm_pool_backward(*slopes, tensors[0], *moments, *tensors[1:], there, times, pool, eps)
    for found, wanted in zip(back, gradients, strict=True):
        torch.testing.assert_close(found.cpu(), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("batch", "times", "length"), [(5, 40, 5), (3, 130, 16)])
def test_segments(batch: int, times: int, length: int) -> None:
    v = (torch.randn(6, batch, times, device=DEVICE) + 10.0).requires_grad_()  # an offset must not cancel
    used = times // length * length
    expected = apply(_Segments, v[..., :used].unflatten(-1, (-1, length)))
    got = apply(_KernelSegments, v, length)
    for ours, plain in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-4)
    above = [torch.randn_like(part) for part in expected[:2]]
    (ours,), (plain,) = (torch.autograd.grad(parts[:2], v, above) for parts in (got, expected))
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-4)
    assert not ours[..., used:].any()


def test_sum_of_scaled_rows() -> None:
    channels, width, batch = 4, 300, 5
    table = torch.randn(20, channels, width, device=DEVICE)
    rows, factors = torch.randint(20, (3, batch), device=DEVICE), torch.rand(3, batch, channels, device=DEVICE) - 0.5
    linear = torch.rand(width, device=DEVICE) < 0.5
    weights = torch.where(linear, factors[..., None], factors.square()[..., None])
    expected = (table[rows] * weights).sum((1, 2))
    torch.testing.assert_close(gpu.sum_scaled_rows(table, rows, factors, linear), expected, rtol=1e-4, atol=1e-4)
