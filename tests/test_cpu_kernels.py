"""The C kernels of a training step: each against plain torch code in float64, and what happens without them."""

from __future__ import annotations

import math
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from autotransfer import cpu, kernels
from autotransfer.censoring.kernel_matrices import perplexity_scales
from autotransfer.cpu import boundary
from autotransfer.cpu.blocks import (
    BlockOptions,
    Weights,
    block_backward,
    block_forward,
    latents_backward,
    latents_forward,
    lay_out,
    second_backward,
    second_forward,
)  # fmt: skip
from autotransfer.cpu.boundary import instruction_set, library
from autotransfer.gpu import DropoutDraws
from autotransfer.kernels import description, kernels_for
from autotransfer.model.eegnet import MAX_FUSED_CHANNELS, EEGNet
from autotransfer.randomness import as_keys
from autotransfer.versions import versions
from sanitizing import CASES, block_case, codes_case, run_case, second_case

compiled = pytest.mark.skipif(library() is None, reason="the kernels are not built")


@pytest.fixture(autouse=True)
def threads() -> object:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@compiled
@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_what_plain_torch_does(name: str) -> None:
    """Outputs and gradients, on random shapes."""
    for seed in range(8):
        run_case(name, seed)


@compiled
def test_logarithms_are_exact_to_two_units_in_the_last_place() -> None:
    """Of all sizes that are normal numbers, by way of their mean: of equal numbers it is the number."""
    power = torch.cat([torch.linspace(0.5, 2.0, 4001), torch.logspace(-37, 38, 4001)]).view(1, -1, 1, 1)
    ones, dropout = (
        torch.ones(power.shape[:2]),
        DropoutDraws(torch.zeros(1, power.numel(), dtype=torch.int16), None, torch.zeros(1)),
    )
    _, state = latents_forward(power, ones, ones, dropout, 0.0, 1.0)
    exact = power.double().log().flatten()
    away = (state.logs.flatten().double() - exact).abs()
    assert (away <= 2 * torch.finfo(torch.float32).eps * exact.abs().clamp(min=2.0**-20)).all()
    bad = torch.tensor([math.inf, math.nan, 1.0]).view(1, 3, 1, 1)
    _, state = latents_forward(
        bad, *(ones[:, :3] for _ in range(2)), DropoutDraws(dropout.draws[:, :3], None, dropout.drop), 0.0, 1.0
    )
    assert state.logs.flatten().isfinite().tolist() == [False, False, True]


@compiled
def test_exponentials_are_exact_to_two_units_in_the_last_place() -> None:
    """The slope of ELU is e^h on the left. Gradients of 1 and -1 side by side have no sums that would hide it."""
    h = torch.linspace(-80.0, 0.0, 40001).repeat_interleave(2)[None, None]
    grad = torch.tensor([1.0, -1.0]).repeat(40001).view(1, 1, 1, -1)
    everything = DropoutDraws(torch.zeros(1, h.numel(), dtype=torch.int16), None, torch.zeros(1))
    zero, one = torch.zeros(1, 1), torch.ones(1, 1)
    slope, *_ = cpu.norm_pool_backward(grad, None, h, zero, one, one, zero, everything, h.numel(), 1, 0.0)
    assert ((slope * grad[0]).double() / h.double().exp() - 1).abs().max() < 2.4e-7


@compiled
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_stays_so(bad: float) -> None:
    v = torch.randn(2, 3, 4 * 16)
    v[1, 2, 5] = bad
    ones, zeros = torch.ones(2, 3), torch.zeros(2, 3)
    dropout = DropoutDraws(torch.zeros(2, 3 * 4 * 4, dtype=torch.int16), None, torch.zeros(2))
    out, _, *moments = cpu.norm_pool_forward(v, ones, zeros, dropout, 16, 4, 1e-5)
    grads = cpu.norm_pool_backward(torch.ones_like(out), None, v, *moments, ones, zeros, dropout, 16, 4, 1e-5)
    for found in (out, *grads):
        assert not found[1, 2].isfinite().any()
        assert found[0].isfinite().all()
        assert found[1, :2].isfinite().all()
    w = torch.randn(6, 5)
    x = v.view(6, 4, 16)
    assert not cpu.correlate(x, w, 2)[5, 0, 4:7].isfinite().any()
    assert not cpu.correlate_gradient(x, torch.ones_like(x), 5, 2)[5].isfinite().any()
    for pool in (4, 0):
        form = BlockOptions(2, pool, 3, 5, 1e-5)
        windows, _, weights, dropout = block_case(2, 2, 3, 1, 2, 4, 16, 5, form, True)
        windows[1, 1, 3, 4] = bad  # every signal of the second member is mixed from it
        units, power, state = block_forward(lay_out(windows, None), weights, form, dropout)
        slopes = [None if one is None else torch.ones_like(one) for one in (units, power)]
        made = (units, power) if pool else (power,)
        for one in (*made, *block_backward(*slopes, lay_out(windows, None), weights, form, dropout, state)):
            assert not one[1].isfinite().all()
            assert one[0].isfinite().all()


def of_block(
    form: BlockOptions, x: Tensor, group: Tensor | None, weights: Weights, dropout: DropoutDraws | None, p: slice
) -> list[Tensor]:
    """All that a block gives members p, each of whom has windows of its own."""
    assert group is None
    own = Weights(*(tensor[p] for tensor in weights if tensor is not None))
    drops = None if dropout is None else DropoutDraws(dropout.draws[p], None, dropout.drop[p])
    units, power, state = block_forward(lay_out(x[p], None), own, form, drops)
    grads = block_backward(units, power, lay_out(x[p], None), own, form, drops, state)
    return [one for one in (units, power, state.mean, state.variance, *grads) if one is not None]


@compiled
def test_neither_threads_nor_neighbors_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "MIN_PARALLEL_SAMPLES", 0)
    v, ones = torch.randn(5, 4, 9 * 50), torch.rand(5, 4)
    dropout = DropoutDraws(
        torch.randint(-(2**15), 2**15, (5, 4 * 9 * 12), dtype=torch.int16), None, torch.full((5,), 0.3)
    )
    grad = torch.randn(5, 4, 9, 12)
    x, w = v.view(20, 9, 50), torch.randn(20, 16)
    forms = BlockOptions(7, 4, 3, 16, 1e-5), BlockOptions(3, 0, 8, 6, 1e-5)
    power, power_dropout = codes_case(5, 5, 3, 9, 7)
    second_form = BlockOptions(7, 8, 0, 0, 1e-5)
    second, second_weights, second_dropout = second_case(5, 5, 5, 3, 19, 50, 16, second_form)
    signals, thin, wide = torch.randn(2, 8, 700), torch.randn(5, 16, 8), torch.randn(5, 16, 700)
    whose = torch.tensor([1, 0, 1, 1, 0])
    cases = [(form, block_case(5, 5, 3, 2, 4, 19, 50, 16, form, True)) for form in forms]

    def outputs(p: slice) -> list[Tensor]:
        own = DropoutDraws(dropout.draws[p], None, dropout.drop[p])
        drops = DropoutDraws(power_dropout.draws[p], None, power_dropout.drop[p])
        out, squares, mean, var = cpu.norm_pool_forward(v[p], ones[p], ones[p], own, 50, 4, 1e-5, True)
        pooled = cpu.norm_pool_backward(grad[p], grad[p], v[p], mean, var, ones[p], ones[p], own, 50, 4, 1e-5)
        filters = slice(4 * (p.start or 0), None if p.stop is None else 4 * p.stop)
        coded, state = latents_forward(*(one[p] for one in power), drops, 1e-3, 1e-5)
        latents = [coded, *latents_backward(coded, *(one[p] for one in power), drops, state, 1e-3, 1e-5)]
        drops = DropoutDraws(second_dropout.draws[p], None, second_dropout.drop[p])
        weights = Weights(*(None if one is None else one[p] for one in second_weights))  # type: ignore[arg-type]
        made, kept = second_forward(second[p], weights, second_form, drops)
        grad_second, back = second_backward(made, second[p], weights, second_form, drops, kept)
        latents += [made, kept.mean, kept.variance, grad_second, *(one for one in back if one is not None)]
        latents += [cpu.product(thin[p], signals, whose[p]), cpu.product(wide[p], signals.transpose(1, 2), whose[p])]
        blocks = [of_block(form, *given, p) for form, given in cases]
        return [out, squares, mean, var, *pooled, cpu.correlate(x[filters], w[filters], 7),
                cpu.correlate_gradient(x[filters], x[filters], 16, 7), *latents, *blocks[0], *blocks[1]]  # fmt: skip

    torch.set_num_threads(1)
    expected = outputs(slice(None))
    for member in range(5):
        for found, wanted in zip(outputs(slice(member, member + 1)), expected, strict=True):
            assert torch.equal(found, wanted.view(5, -1)[member].view(found.shape))
    for threads in (2, 3, 8):
        torch.set_num_threads(threads)
        for pool in (cpu._find_thread_pool(), None):  # torch's threads, and some of our own
            monkeypatch.setattr(cpu, "_find_thread_pool", lambda pool=pool: pool)
            assert all(map(torch.equal, outputs(slice(None)), expected))


@compiled
@pytest.mark.parametrize("rows", [3, 16, 37, 128])
def test_length_scales_are_those_of_plain_operations(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with everybody, few or nobody for neighbors, that coincide, that are far away and that are no numbers."""
    z = torch.randn(3, rows, 5, generator=torch.Generator().manual_seed(rows))
    z[1, : rows // 2] = 0.0
    z[2, 0] *= 1e6
    d2 = torch.cdist(z, z).square()
    same = (
        torch.rand(3, rows, rows, generator=torch.Generator().manual_seed(1))
        < torch.tensor([1.0, 0.5, 0.1])[:, None, None]
    )
    found = perplexity_scales(d2, same)
    broken = perplexity_scales(d2.clone().index_fill_(1, torch.tensor([1]), math.nan), same)
    monkeypatch.setattr(cpu, "is_available", lambda *_, **__: False)
    # Where an entropy is nearly flat the last bits decide by how much it is missed.
    torch.testing.assert_close(found, perplexity_scales(d2, same), rtol=1e-3, atol=0)
    others = [row for row in range(rows) if row != 1]
    torch.testing.assert_close(broken[:, others], found[:, others], rtol=0, atol=0)


@compiled
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_no_kernel_where_torch_follows_or_replaces_tensors() -> None:
    x, seen = torch.randn(4, 3), []

    def asks(value: Tensor) -> Tensor:
        seen.append(kernels_for(value))
        return value * 2

    torch.func.vmap(asks)(x)
    torch.func.grad(lambda value: asks(value).sum())(x)
    torch.jit.trace(asks, (x,), check_trace=False)  # type: ignore[no-untyped-call]
    assert seen == [None, None, None]
    assert kernels_for(x.to("meta")) is None


def step(net: EEGNet, x: Tensor, active: Tensor) -> tuple[Tensor, ...]:
    """Latents, gradients and running statistics of one training step with dropout."""
    members = len(active)
    drop = torch.linspace(0.1, 0.5, members, dtype=x.dtype)
    latents = net(x, noise=as_keys([3, 4, 5][:members]), drop=drop, active=active)
    weights = torch.cos(torch.arange(latents.numel(), dtype=x.dtype)).view(latents.shape)
    return (latents.detach(), *torch.autograd.grad((latents * weights).sum(), list(net.parameters())), *net.buffers())


@compiled
@pytest.mark.parametrize(("times", "channels"), [(128, 3), (150, 3), (37, 3), (9, 3), (37, MAX_FUSED_CHANNELS + 1)])
@pytest.mark.parametrize("log_power", [False, True])
@pytest.mark.parametrize("members", [1, 3])
def test_a_step_of_eegnet_is_that_of_the_plain_path(
    times: int, channels: int, log_power: bool, members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    seeds = list(range(members))
    x, active = torch.randn(members, 7, channels, times), torch.arange(members) != 1
    nets = [EEGNet(channels, times, members, temporal_kernel=16, log_power=log_power, seeds=seeds) for _ in range(3)]
    assert kernels_for(x) is cpu
    assert kernels_for(x.double()) is None
    found = step(nets[0], x, active)
    monkeypatch.setattr(cpu, "is_available", lambda *_, **__: False)
    rounded, exact = step(nets[1], x, active), step(nets[2].double(), x.double(), active)
    for own, plain, wanted in zip(found, rounded, exact, strict=True):  # float32 is as near as float32 comes
        assert (own - wanted).abs().max() <= 4 * (plain - wanted).abs().max() + 1e-5 * wanted.abs().max() + 1e-6


@pytest.mark.parametrize("capability", ["DEFAULT", "AVX2", "AVX512"])
def test_the_library_is_that_of_the_processor(capability: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if platform.machine() not in ("x86_64", "AMD64") and capability != "DEFAULT":
        pytest.skip("the instruction set is of another processor")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    chosen = library.__wrapped__()
    assert (chosen is None) == (library() is None)
    assert chosen is None or description() == f"compiled ({instruction_set()})"


def test_without_a_library_torch_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary, "__file__", str(tmp_path / "boundary.py"))
    missing = library.__wrapped__()
    assert missing is None
    for module in (cpu, boundary, kernels):
        monkeypatch.setattr(module, "library", lambda: missing)
    assert kernels_for(torch.ones(3)) is None
    assert description() == versions()["kernels"] == "none (torch computes)"
    with pytest.raises(RuntimeError, match="no compiled kernels"):
        cpu.mix(torch.ones(3, dtype=torch.int32))


FORKED = """
import os, numpy, torch
from autotransfer import cpu, kernels
from autotransfer.censoring.kernel_matrices import perplexity_scales
torch.set_num_threads(2)
x, w = torch.randn(64, 64, 64), torch.randn(64, 16)
expected = cpu.correlate(x, w, 7)
child = os.fork()
if not child:
    os._exit(0 if numpy.array_equal(cpu.correlate(x, w, 7).numpy(), expected.numpy()) else 1)
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.slow
@compiled
def test_a_forked_process_has_threads_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == "0"
