"""Kernels in C under sanitizers: random shapes, every buffer in a block of exactly its size, against plain torch.

Preloading a sanitizer into Python does not do: a tensor's block is larger than the tensor, and whatever Python and
torch do themselves would be reported, too. So the kernels run in a process of their own (sanitize/driver.c). Here a
stand-in for the library of kernels sends it every call, with the tensors whose addresses the call has.

tests/test_sanitize.py runs cases; `make sanitize SECONDS=60` runs them for longer in each build that this machine can
run. A case is one comparison with plain torch on random shapes.
"""

from __future__ import annotations

import ctypes
import os
import platform
import random
import re
import shlex
import struct
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from autotransfer import cpu
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
from autotransfer.gpu import DropoutDraws
from autotransfer.gpu.autograd import apply
from autotransfer.model import layers
from autotransfer.model.moments import edge_sums
from autotransfer.model.norm_pool import drop_units
from autotransfer.model.power import square_pool
from autotransfer.preprocessing.append_scale import FittedAppendScale
from autotransfer.randomness import mix

HERE = Path(__file__).parent
SOURCE = Path(cpu.__file__).with_name("kernels.c")
FUNCTIONS = frozenset(re.findall(r"^(?:void|int) (\w+)\(", SOURCE.read_text(), re.MULTILINE))
COMPILER = shlex.split(os.environ.get("CC", "cc"))
FLAGS = "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-pthread"  # as setup.py has them
STRICT = ("-g1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all", "-Wno-psabi")
# What is looked for. Without optimization, with which UBSan takes minutes to compile; vectors are as wide either way.
SANITIZERS = {
    "memory": ("-O0", "-fsanitize=address,undefined"),  # out of bounds, or undefined in C
    "threads": ("-O0", "-fsanitize=thread"),
    "optimized": ("-O2", "-fsanitize=address"),
}
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=1:exitcode=99", "TSAN_OPTIONS": "halt_on_error=1:exitcode=99"}


# builds


def machines() -> dict[str, str]:
    """Flags of the processors that this one can stand in for, by name: kernels.c has a branch for each."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return {platform.machine(): "-mcpu=native"}
    path = Path("/proc/cpuinfo")
    flags = set(path.read_text().split()) if path.exists() else set()
    levels = {
        "SSE2": ("-march=x86-64", set()),
        "AVX2": ("-march=x86-64-v3", {"avx2", "fma", "bmi2"}),
        "AVX-512": ("-march=x86-64-v4", {"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
    }
    return {name: flag for name, (flag, needs) in levels.items() if needs <= flags}


def build(folder: Path, machine: str, sanitizer: str) -> Path:
    """The driver with kernels for this machine; CalledProcessError where the compiler has no such sanitizer."""
    path = folder / f"driver-{machine}-{sanitizer}"
    command = [*COMPILER, *FLAGS, *STRICT, *SANITIZERS[sanitizer], machines()[machine], "-o", str(path)]
    sources = str(HERE / "sanitize" / "driver.c"), str(SOURCE), "-lm"
    subprocess.run([*command, *sources], check=True, capture_output=True, timeout=1200)
    return path


# calls


class Caught(Exception):
    """What a sanitizer reports, and ends the process for."""


class Driver:
    """The process. short: (function, which) of a buffer whose last element is not sent, to see that it is missed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.short: tuple[str, int] | None = None
        self.calls: Counter[str] = Counter()
        self._begin()

    def _begin(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - the process writes to it until `end`
        self._process = subprocess.Popen(
            [self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=os.environ | OPTIONS
        )
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def call(self, name: str, threads: int, count: int, words: bytes, buffers: list[tuple[int, Tensor]]) -> int:
        """Call a function in the process and copy its results into the tensors.

        buffers: offsets in `words` at which addresses belong, and the tensors that have these addresses
        """
        self.calls[name] += 1
        content = [tensor.numpy().tobytes() for _, tensor in buffers]
        if self.short is not None and self.short[0] == name and self.short[1] < len(buffers):
            which = self.short[1]
            content[which] = content[which][: -buffers[which][1].element_size()]
        message = [struct.pack("q", len(name)), name.encode(), struct.pack("3q", threads, count, len(words)), words]
        message.append(struct.pack("q", len(buffers)))
        for (offset, _), body in zip(buffers, content, strict=True):
            message += [struct.pack("2q", offset, len(body)), body]
        try:
            self._stdin.write(b"".join(message))
            self._stdin.flush()
            (result,) = struct.unpack("q", self._receive(8))
            for (_, tensor), body in zip(buffers, content, strict=True):
                back = np.frombuffer(bytearray(self._receive(len(body))), tensor.numpy().dtype)
                tensor.view(-1)[: len(back)] = torch.from_numpy(back)
        except (BrokenPipeError, EOFError):
            code, report = self.end()
            self._begin()  # for the next call
            raise Caught(f"{name} ended with exit code {code}: {report}") from None
        return int(result)

    def _receive(self, count: int) -> bytes:
        body = self._stdout.read(count)
        if len(body) < count:
            raise EOFError
        return body

    def end(self) -> tuple[int, str]:
        """Exit code and report. Memory that was not given back is reported when the process ends."""
        if self._log.closed:
            return self._process.returncode, ""
        with suppress(BrokenPipeError):
            self._stdin.close()
        self._stdout.close()
        code = self._process.wait()
        self._log.seek(0)
        report = self._log.read().decode(errors="replace")
        self._log.close()
        return code, report


class StandIn:
    """For the library: its functions take what those of ctypes take."""

    def __init__(self, driver: Driver, tensors: dict[int, Tensor]) -> None:
        self.driver, self.tensors = driver, tensors

    def __getattr__(self, name: str) -> Function:
        if name not in FUNCTIONS:
            raise AttributeError(name)
        function = Function(self, name)
        setattr(self, name, function)
        return function


class Function:
    argtypes: list[Any] | None = None
    restype: Any = None

    def __init__(self, library: StandIn, name: str) -> None:
        self.library, self.name = library, name

    def __call__(self, *given: Any) -> int:
        driver, tensors = self.library.driver, self.library.tensors
        if isinstance(getattr(given[-1], "_obj", None), ctypes.Structure):  # by reference
            _, threads, count, task = *given[:-1], given[-1]._obj
            places = [
                (getattr(type(task), name).offset, tensors[getattr(task, name)])
                for name, kind, *_ in task._fields_
                if kind is ctypes.c_void_p and getattr(task, name)
            ]
            return driver.call(self.name, threads, count, bytes(task), places)
        types = self.argtypes or [type(value) for value in given]
        values = [getattr(value, "value", value) for value in given]
        words, places = b"", []
        for kind, value in zip(types, values, strict=True):
            if kind is ctypes.c_void_p and value:
                places.append((len(words), tensors[value]))
            words += struct.pack("d", value) if kind is ctypes.c_double else struct.pack("q", value or 0)
        return driver.call(self.name, 1, 0, words, places)


@contextmanager
def driven_by(driver: Driver) -> Iterator[dict[int, Tensor]]:
    """Inside, every kernel is called in the driver, on several threads where it may be. Yields the tensors whose
    addresses were asked for, which must be forgotten now and then."""
    tensors: dict[int, Tensor] = {}
    real, threads = Tensor.data_ptr, torch.get_num_threads()

    def data_ptr(tensor: Tensor) -> int:
        place = real(tensor)
        if place:
            tensors[place] = tensor
        return place

    library = StandIn(driver, tensors)
    with (
        mock.patch.object(Tensor, "data_ptr", data_ptr),
        mock.patch.object(cpu, "library", return_value=library),
        mock.patch.object(boundary, "library", return_value=library),
        mock.patch.object(cpu, "MIN_PARALLEL_SAMPLES", 0),
        mock.patch.object(cpu, "_find_thread_pool", return_value=None),
    ):
        torch.use_deterministic_algorithms(True)  # fills what is not initialized with NaN: nothing may be left of it
        torch.set_num_threads(3)
        try:
            yield tensors
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(False)


@contextmanager
def without_kernels() -> Iterator[None]:
    with mock.patch.object(cpu, "is_available", return_value=False):
        yield


# cases: what a kernel gives for random shapes, what plain torch gives, and how near they must be

Compared = Iterator[tuple[Tensor, Tensor, float]]


def sizes(draw: random.Random, *most: int) -> list[int]:
    """Small ones often: edges lie there."""
    return [draw.choice((1, 2, 3, draw.randint(1, limit), draw.randint(1, limit))) for limit in most]


def normal(*size: int) -> Tensor:
    return torch.randn(size)


def norm_pool(draw: random.Random) -> Compared:
    members, features, batch, times = sizes(draw, 4, 5, 9, 80)
    times = draw.choice((times, 600 + times))
    pool = draw.choice((4, 8, draw.randint(1, cpu.MAX_POOL)))
    times = max(times, pool)
    groups, units = draw.randint(1, members), features * batch * (times // pool)
    group = None if groups == members else torch.randint(groups, (members,))
    draws = torch.randint(-(2**15), 2**15, (members if group is None else groups, units), dtype=torch.int16)
    drop = torch.rand(members) * 0.6
    v, gamma, beta = (
        2 * normal(members, features, batch * times) + 1,
        normal(members, features),
        normal(members, features),
    )
    squared = draw.random() < 0.5
    exact = [tensor.double().requires_grad_() for tensor in (v, gamma, beta)]
    signal, mean, variance = apply(layers._Normalize, *exact, None, 1e-3)
    shape = members, features, batch, times
    wanted = drop_units(DropoutDraws(draws, group, drop.double()), layers.elu_pool(signal.view(shape), pool))
    power = square_pool(exact[0].view(shape), pool)
    slopes, power_slopes = normal(*wanted.shape), normal(*wanted.shape) if squared else None
    loss = (wanted * slopes).sum() + (0.0 if power_slopes is None else (power * power_slopes).sum())
    gradients = torch.autograd.grad(loss, exact)
    dropout = DropoutDraws(draws, group, drop)
    out, squares, *moments = cpu.norm_pool_forward(v, gamma, beta, dropout, times, pool, 1e-3, squared)
    yield out, wanted, 1e-5
    yield moments[0], mean, 1e-5
    yield moments[1], variance, 1e-5
    if squares is not None:
        yield squares, power, 1e-5
    back = cpu.norm_pool_backward(slopes, power_slopes, v, *moments, gamma, beta, dropout, times, pool, 1e-3)
    for one, other in zip(back, gradients, strict=True):
        yield one, other, 1e-4


def filters(draw: random.Random) -> Compared:
    count, rows, times = sizes(draw, 4, 50, 150)
    taps = draw.choice((draw.randint(1, 70), draw.randint(1, 200), draw.randint(1, cpu.MAX_TAPS)))
    left = draw.randrange(taps)
    x, slopes, w = normal(count, rows, times), normal(count, rows, times), normal(count, taps)
    windows = F.pad(x.double(), (left, taps - 1 - left)).unfold(-1, taps, 1)
    wanted = (windows * w.double()[:, None, None]).sum(-1)
    yield cpu.correlate(x, w, left), wanted, 1e-5
    yield cpu.correlate(x, w.flip(1), left, flipped=True), wanted, 1e-5
    yield cpu.correlate_gradient(x, slopes, taps, left), (windows * slopes.double()[..., None]).sum((1, 2)), 1e-5


def plain_block(
    x: Tensor, group: Tensor | None, weights: Weights, form: BlockOptions, dropout: DropoutDraws | None
) -> tuple[Tensor | None, Tensor | None, Tensor, Tensor]:
    """Windows (G, C, B, T) -> units and power (or None), mean and variance of the filtered signals, step by step."""
    x, taps = x if group is None else x[group], weights.w.shape[-1]
    u = (weights.spatial @ x.flatten(2)).unflatten(-1, x.shape[2:])
    if weights.constant is not None:
        u = u + weights.constant[..., None]
    w = weights.w.repeat_interleave(u.shape[1] // weights.w.shape[1], 1)[:, :, None, None]
    v = (F.pad(u, (form.left, taps - 1 - form.left)).unfold(-1, taps, 1) * w).sum(-1)
    cut = v[..., : form.segments * form.length]
    if form.pool == 0:
        mean, variance = cut.mean((2, 3)), cut.var((2, 3), unbiased=False)
        scale = weights.gamma * (variance + form.eps).rsqrt()
        cut = (cut - mean[..., None, None]) * scale[..., None, None] + weights.beta[..., None, None]
    power = cut.unflatten(-1, (form.segments, form.length)).square().mean(-1) if form.segments else None
    if form.pool == 0 or dropout is None:
        return None, power, mean, variance
    normal, mean, variance = apply(layers._Normalize, v.flatten(2), weights.gamma, weights.beta, None, form.eps)
    return drop_units(dropout, layers.elu_pool(normal.view(v.shape), form.pool)), power, mean, variance


def with_gradients(made: list[Tensor], slopes: list[Tensor], weights: Weights) -> list[Tensor]:
    """The gradients of all weights that there are."""
    loss = torch.stack([(one * slope).sum() for one, slope in zip(made, slopes, strict=True)]).sum()
    return list(torch.autograd.grad(loss, [tensor for tensor in weights if tensor is not None]))


def block_case(
    members: int, groups: int, filters: int, depth: int, channels: int, batch: int, times: int, taps: int,
    form: BlockOptions, constant: bool,
) -> tuple[Tensor, Tensor | None, Weights, DropoutDraws | None]:  # fmt: skip
    """Windows, groups of members, weights and what is dropped, at random; None where each has its own group."""
    features = filters * depth
    weights = Weights(
        normal(members, features, channels), normal(members, features, batch) if constant else None,
        normal(members, filters, taps), 0.5 + torch.rand(members, features), normal(members, features),
    )  # fmt: skip
    group, dropout = None if groups == members else torch.randint(groups, (members,)), None
    if form.pool:
        units = features * batch * (times // form.pool)
        draws = torch.randint(-(2**15), 2**15, (groups, units), dtype=torch.int16)
        dropout = DropoutDraws(draws, group, torch.rand(members) * 0.6)
    return normal(groups, channels, batch, times), group, weights, dropout


def blocks(draw: random.Random) -> Compared:
    members, filters, depth, channels, batch, times = sizes(draw, 4, 4, 3, 9, 40, 90)
    groups, pool = draw.randint(1, members), draw.choice((0, 4, 8, draw.randint(1, 12)))
    times, taps = max(times, pool), draw.choice((draw.randint(1, 40), draw.randint(1, 150)))
    length = draw.randint(1, times)
    segments = times // length if pool == 0 or draw.random() < 0.5 else 0
    form = BlockOptions(draw.randrange(taps), pool, segments, length, 1e-3)
    x, group, weights, dropout = block_case(
        members, groups, filters, depth, channels, batch, times, taps, form, draw.random() < 0.5
    )
    exact = Weights(*(None if one is None else one.double().requires_grad_() for one in weights))  # type: ignore[arg-type]
    units, power, mean, variance = plain_block(x.double(), group, exact, form, dropout)
    windows = lay_out(x, group)
    found_units, found_power, state = block_forward(windows, weights, form, dropout)
    yield state.mean, mean, 1e-5
    yield state.variance, variance, 1e-5
    made, grads = [], []
    for one, wanted in ((found_units, units), (found_power, power)):
        assert (one is None) == (wanted is None)
        if one is not None and wanted is not None:
            yield one, wanted, 2e-5
            made.append(wanted)
            grads.append(normal(*wanted.shape))
    back = block_backward(
        grads[0] if units is not None else None, grads[-1] if power is not None else None, windows, weights, form,
        dropout, state,
    )  # fmt: skip
    wanted = with_gradients(made, grads, exact)
    yield from zip((one for one in back if one is not None), wanted, [1e-4] * 5, strict=False)


def plain_second(
    x: Tensor, weights: Weights, form: BlockOptions, dropout: DropoutDraws
) -> tuple[Tensor, Tensor, Tensor]:
    """Signals (P, C, B, T) -> units (P, B, F, T'), mean and variance of the mixed signals, step by step."""
    taps = weights.w.shape[-1]
    filtered = F.pad(x, (form.left, taps - 1 - form.left)).unfold(-1, taps, 1) * weights.w[:, :, None, None]
    v = weights.spatial @ filtered.sum(-1).flatten(2)
    signals, mean, variance = apply(layers._Normalize, v, weights.gamma, weights.beta, None, form.eps)
    units = drop_units(dropout, layers.elu_pool(signals.unflatten(-1, x.shape[2:]), form.pool))
    return units.transpose(1, 2), mean, variance


def second_case(
    members: int, groups: int, features: int, channels: int, batch: int, times: int, taps: int, form: BlockOptions
) -> tuple[Tensor, Weights, DropoutDraws]:
    """Signals, weights and what is dropped, at random."""
    _, _, weights, dropout = block_case(members, groups, features, 1, channels, batch, times, taps, form, False)
    return normal(members, channels, batch, times), weights._replace(w=normal(members, channels, taps)), dropout


def seconds(draw: random.Random) -> Compared:
    members, features, channels, batch, times = sizes(draw, 4, 9, 9, 40, 60)
    pool, taps = draw.choice((4, 8, draw.randint(1, 12))), draw.randint(1, 40)
    times, form = max(times, pool), BlockOptions(draw.randrange(taps), pool, 0, 0, 1e-3)
    x, weights, dropout = second_case(members, draw.randint(1, members), features, channels, batch, times, taps, form)
    exact = Weights(*(None if one is None else one.double().requires_grad_() for one in weights))  # type: ignore[arg-type]
    signals = x.double().requires_grad_()
    units, mean, variance = plain_second(signals, exact, form, dropout)
    found, state = second_forward(x, weights, form, dropout)
    yield found, units, 2e-5
    yield state.mean, mean, 1e-5
    yield state.variance, variance, 1e-5
    slopes = normal(*units.shape)
    grad_x, back = second_backward(slopes, x, weights, form, dropout, state)
    inputs = [signals, *(tensor for tensor in exact if tensor is not None)]
    wanted = torch.autograd.grad((units * slopes).sum(), inputs)
    yield from zip((grad_x, *(one for one in back if one is not None)), wanted, [1e-4] * 5, strict=True)


def plain_codes(power: Tensor, gamma: Tensor, beta: Tensor, dropout: DropoutDraws) -> tuple[Tensor, Tensor, Tensor]:
    """Power (P, F, B, S) -> latents (P, B, F·S), mean and variance of its logarithms, step by step."""
    logs = (power + 1e-2).log()
    normal, mean, variance = apply(layers._Normalize, logs.flatten(2), gamma, beta, None, 1e-3)
    return drop_units(dropout, normal.view(power.shape)).transpose(1, 2).flatten(2), mean, variance


def codes_case(
    members: int, groups: int, features: int, batch: int, segments: int
) -> tuple[list[Tensor], DropoutDraws]:
    """Power, gamma and beta at random, and what is dropped."""
    power, gamma, beta = (
        normal(members, features, batch, segments).square(),
        normal(members, features),
        normal(members, features),
    )
    draws = torch.randint(-(2**15), 2**15, (groups, features * batch * segments), dtype=torch.int16)
    group = None if groups == members else torch.randint(groups, (members,))
    return [power, gamma, beta], DropoutDraws(draws, group, torch.rand(members) * 0.6)


def latents(draw: random.Random) -> Compared:
    members, features, batch, segments = sizes(draw, 4, 5, 70, 20)
    given, dropout = codes_case(members, draw.randint(1, members), features, batch, segments)
    exact = [tensor.double().requires_grad_() for tensor in given]
    wanted, mean, variance = plain_codes(*exact, dropout)
    found, state = latents_forward(*given, dropout, 1e-2, 1e-3)
    slopes = normal(*wanted.shape)
    yield found, wanted, 1e-5
    yield state.mean, mean, 1e-5
    yield state.variance, variance, 1e-5
    back = latents_backward(slopes, *given, dropout, state, 1e-2, 1e-3)
    for one, other in zip(back, torch.autograd.grad((wanted * slopes).sum(), exact), strict=True):
        yield one, other, 5e-4  # the slope of the logarithm is up to 100


def edges(draw: random.Random) -> Compared:
    count, rows, times, kernel = sizes(draw, 4, 150, 60, 90)
    x = normal(count, rows, times)
    found = edge_sums(x, kernel)
    with without_kernels():
        yield found, edge_sums(x.double(), kernel), 1e-5


def products(draw: random.Random) -> Compared:
    members, rows, inner, columns = sizes(draw, 20, 20, 70, 300)
    columns = draw.choice((columns, columns + 2000 // inner))
    groups = draw.randint(1, members)
    group = None if groups == members else torch.randint(groups, (members,))
    signals = normal(members if group is None else groups, inner, columns)
    w, slopes = normal(members, rows, inner), normal(members, rows, columns)
    exact = (signals if group is None else signals[group]).double()
    yield cpu.product(w, signals, group), w.double() @ exact, 1e-5
    yield cpu.product(slopes, signals.transpose(1, 2), group), slopes.double() @ exact.mT, 1e-5


def length_scales(draw: random.Random) -> Compared:
    members, rows, wide = sizes(draw, 4, 70, 5)
    z = normal(members, rows, wide)
    d2, same = torch.cdist(z, z).square(), torch.rand(members, rows, rows) < draw.choice((1.0, 0.5, 0.1))
    found = perplexity_scales(d2, same)
    with without_kernels():
        yield found.log(), perplexity_scales(d2, same).log(), 1e-3


def words(draw: random.Random) -> Compared:
    given = torch.randint(-(2**31), 2**31, sizes(draw, 200), dtype=torch.int32)
    found = mix(given)
    with without_kernels():
        yield found, mix(given), 0.0


def append_scale(draw: random.Random) -> Compared:
    groups, windows, channels, times = sizes(draw, 3, 4, 20, 90)
    x = normal(groups, windows, channels, times)
    found = FittedAppendScale()(x)
    with without_kernels():
        yield found, FittedAppendScale()(x), 1e-4


CASES: dict[str, Callable[[random.Random], Compared]] = {
    "norm_pool": norm_pool, "filters": filters, "blocks": blocks, "seconds": seconds, "latents": latents,
    "edges": edges, "products": products, "length_scales": length_scales, "words": words, "append_scale": append_scale,
}  # fmt: skip


def run_case(name: str, seed: int) -> None:
    """Caught where a sanitizer has something to report, AssertionError where the numbers are others."""
    torch.manual_seed(seed)
    for found, wanted, near in CASES[name](random.Random(f"{name} {seed}")):
        assert found.shape == wanted.shape, f"{name} {seed}: {found.shape}, {wanted.shape}"
        away = (found.double() - wanted.detach().double()).abs().max().item() if found.numel() else 0.0
        limit = near * (1.0 + wanted.detach().double().abs().max().item() if found.numel() else 1.0)
        assert away <= limit, f"{name} {seed}: {away} away from plain torch, {limit} at most"  # NaN is not


def drive(driver: Driver, seconds: float) -> tuple[int, list[str]]:
    """How many cases were tried, all kernels in turn, and what was noticed."""
    end, tried, noticed = time.monotonic() + seconds, 0, []
    with driven_by(driver) as tensors:
        while tried < len(CASES) or time.monotonic() < end:
            name, number = list(CASES)[tried % len(CASES)], tried // len(CASES)
            try:
                run_case(name, number)
            except (Caught, AssertionError) as error:
                noticed.append(f"{name} {number}: {error}")
            tensors.clear()
            tried += 1
    code, report = driver.end()
    if code:
        noticed.append(f"at the end, exit code {code}: {report}")
    assert driver.calls.keys() == FUNCTIONS, f"never called: {sorted(FUNCTIONS - driver.calls.keys())}"
    return tried, noticed
