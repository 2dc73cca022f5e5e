"""Measure times in interleaved rounds, and peak memory."""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from autotransfer.training.allocator import keep_freed_memory

SHORTEST = 0.02  # seconds; shorter steps are repeated in one reading, because the clock is not exact
LONG = 0.5  # seconds; longer steps need only one call to warm up
LEAST_ROUNDS = 2
# Seconds for the rounds, without warm-ups. They take less than 15 minutes on two cores.
BUDGET = {"full": 150.0, "quick": 3.0, "tiny": 0.0}
CUDA_SHARE = 0.12  # share of BUDGET on a GPU


@dataclass(frozen=True)
class Options:
    """Options of one run of the benchmarks."""

    device: str = "cpu"
    size: str = "full"  # full: for published results; quick: in under a minute; tiny: for the test suite
    rounds: int = 7  # maximum number of rounds; at least two are measured
    members: tuple[int, ...] | None = None  # sizes of populations; None: depends on the device

    def budget(self, parts: int) -> float:
        """Return the seconds for the rounds of one of the parts."""
        return BUDGET[self.size] * (CUDA_SHARE if self.device == "cuda" else 1.0) / parts


class Step(NamedTuple):
    """Function to time, and the number of units of work in one call."""

    run: Callable[[], object]
    units: int = 1  # usually steps of one member
    keeps_memory: bool = False  # whether freed memory is kept between calls, as in a fit


class Usage(NamedTuple):
    """Resources used by this process or by a unit of work; zeros if the system does not report them."""

    faults: float = 0.0  # page faults
    system: float = 0.0  # seconds in the kernel
    user: float = 0.0

    @classmethod
    def measure(cls) -> Usage:
        try:
            import resource
        except ImportError:  # Windows
            return cls()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return cls(usage.ru_minflt, usage.ru_stime, usage.ru_utime)


class Timing(NamedTuple):
    """Seconds per unit, with one reading per round."""

    readings: list[float]
    usage: Usage = Usage()  # per unit, over all rounds

    @property
    def median(self) -> float:
        return statistics.median(self.readings)

    def ratio_to(self, other: Timing) -> Timing:
        """Return the ratio within each round, so that slow periods of the machine cancel."""
        return Timing([a / b for a, b in zip(self.readings, other.readings, strict=True)])

    def columns(self, name: str, scale: float = 1.0) -> dict[str, str | float | int | None]:
        """Return median and range for a table."""
        low, high = min(self.readings) * scale, max(self.readings) * scale
        return {name: self.median * scale, "least": low, "most": high}


def synchronize(device: str) -> None:
    """Wait until the device has finished its work."""
    if device == "cuda":
        torch.cuda.synchronize()


def clock(step: Step, repeats: int, device: str) -> float:
    """Return the seconds of `repeats` calls, including synchronization of the device."""
    synchronize(device)
    start = time.perf_counter()
    for _ in range(repeats):
        step.run()
    synchronize(device)
    return time.perf_counter() - start


def measure(steps: Mapping[str, Step], *, rounds: int, device: str, limit_s: float) -> dict[str, Timing]:
    """Return the seconds per unit of every step, measured in interleaved rounds.

    Two calls warm up a step (one call if it is long); the last call determines the repetitions in a reading. There are
    `rounds` readings, or as many as `limit_s` seconds allow, but at least two readings.
    """
    repeats = {}
    for name, step in steps.items():
        seconds = clock(step, 1, device)
        if seconds < LONG or device == "cuda":
            seconds = clock(step, 1, device)
        repeats[name] = max(1, math.ceil(SHORTEST / max(seconds, 1e-7)))
    readings: dict[str, list[float]] = {name: [] for name in steps}
    usage = dict.fromkeys(steps, Usage())
    start = time.perf_counter()
    for number in range(max(rounds, 1)):
        if number >= LEAST_ROUNDS and time.perf_counter() - start > limit_s:
            break
        for name, step in steps.items():
            with keep_freed_memory() if step.keeps_memory else nullcontext():
                if step.keeps_memory:
                    clock(step, 1, device)
                before = Usage.measure()
                seconds = clock(step, repeats[name], device)
                counts = zip(usage[name], Usage.measure(), before, strict=True)
                usage[name] = Usage(*(old + now - then for old, now, then in counts))
            readings[name].append(seconds / repeats[name] / step.units)
    units = {name: len(values) * repeats[name] * steps[name].units for name, values in readings.items()}
    usages = {name: Usage(*(part / units[name] for part in usage[name])) for name in steps}
    return {name: Timing(values, usages[name]) for name, values in readings.items()}


def release(device: str) -> None:
    """Free unused memory before the next measurement."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def cuda_peak(make: Callable[[], Step]) -> tuple[Step, int]:
    """Return a step, and the peak bytes on the GPU while it is built and run once."""
    synchronize("cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step = make()
    step.run()
    synchronize("cuda")
    return step, torch.cuda.max_memory_allocated() - before


def read_memory(*, peak: bool) -> int | None:
    """Return the current or peak memory of this process in bytes; None if not on Linux."""
    with suppress(OSError), open("/proc/self/status") as lines:
        for line in lines:
            if line.startswith("VmHWM" if peak else "VmRSS"):
                return int(line.split()[1]) * 1024
    return None


def call_here(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function in this process, as tests do."""
    return function(*arguments)


def call_in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of a module in a new process, whose peak memory does not include memory of this process.

    Compilers cache kernels on disk, so the cache folder is empty.
    """
    with tempfile.TemporaryDirectory() as folder:
        caches = {name: os.path.join(folder, name) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
        with (
            patch.dict(os.environ, caches),
            ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
        ):
            return pool.submit(function, *arguments).result()
