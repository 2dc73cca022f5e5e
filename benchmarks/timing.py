"""Interleaved timing, and peak memory."""

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

SHORTEST = 0.02  # seconds: shorter work is repeated within one reading, or the clock and the device's queue would show
LONG = 0.5  # seconds: what a first call does only once no longer matters
LEAST_ROUNDS = 2


# Seconds that the rounds of a section may take on top of its warm-ups: the whole stays below 15 minutes on two cores.
BUDGET = {
    "full": {"encoder": 150.0, "candidates": 60.0, "censors": 180.0},
    "quick": {"encoder": 3.0, "candidates": 3.0, "censors": 5.0},
    "tiny": {"encoder": 0.0, "candidates": 0.0, "censors": 0.0},
}
CUDA_SHARE = 0.12  # of those seconds on a GPU, where a round is short: the whole stays below 3 minutes


@dataclass(frozen=True)
class Options:
    """Options of one run of the benchmarks."""

    device: str = "cpu"
    size: str = "full"  # a result to quote; quick: a look in under a minute; tiny: the suite's check that all runs
    rounds: int = 7  # at most; a section whose budget is spent stops after two
    members: tuple[int, ...] | None = None  # sizes of populations in place of those that a section has

    def budget(self, section: str, parts: int) -> float:
        """Return the seconds for the rounds of one of the `parts` that a section measures."""
        share = CUDA_SHARE if self.device == "cuda" else 1.0
        return BUDGET[self.size][section] * share / max(parts, 1)


class Step(NamedTuple):
    """Work that can be repeated, and the number of its units that one call does."""

    run: Callable[[], object]
    units: int = 1  # usually steps of one member
    kept: bool = False  # in the midst of a training, where memory is kept from one step to the next


class Usage(NamedTuple):
    """Resources used by this process so far, or by a unit of work; zeros if the system does not say."""

    faults: float = 0.0  # pages that were not there yet
    system: float = 0.0  # seconds in the kernel
    user: float = 0.0

    @classmethod
    def now(cls) -> Usage:
        try:
            import resource
        except ImportError:  # Windows
            return cls()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return cls(usage.ru_minflt, usage.ru_stime, usage.ru_utime)


class Timing(NamedTuple):
    """Seconds per unit, one reading per round. Readings of one round belong together."""

    readings: list[float]
    usage: Usage = Usage()  # of a unit, over all rounds

    @property
    def median(self) -> float:
        return statistics.median(self.readings)

    def ratio_to(self, other: Timing) -> Timing:
        """Return ratios round by round, so that a slow moment of the machine cancels."""
        return Timing([a / b for a, b in zip(self.readings, other.readings, strict=True)])

    def columns(self, name: str, scale: float = 1.0) -> dict[str, str | float | int | None]:
        """Return median and range for a table."""
        low, high = min(self.readings) * scale, max(self.readings) * scale
        return {name: self.median * scale, "least": low, "most": high}


def synchronize(device: str) -> None:
    """Wait until the device has done all that it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


def clock(step: Step, repeats: int, device: str) -> float:
    """Seconds of `repeats` calls, on a device that was idle before and is idle after."""
    synchronize(device)
    start = time.perf_counter()
    for _ in range(repeats):
        step.run()
    synchronize(device)
    return time.perf_counter() - start


def measure(steps: Mapping[str, Step], *, rounds: int, device: str, limit_s: float) -> dict[str, Timing]:
    """Seconds per unit of every step, in interleaved rounds: a slow moment of the machine hits everyone.

    Before, two calls warm a step up (one, if it is long), and the last says how often it is repeated in a reading.
    Then `rounds` readings, or as many as `limit_s` seconds allow, but at least two.
    """
    repeats = {}
    for name, step in steps.items():
        seconds = clock(step, 1, device)
        if seconds < LONG or device == "cuda":
            seconds = clock(step, 1, device)
        repeats[name] = max(1, math.ceil(SHORTEST / max(seconds, 1e-7)))
    readings: dict[str, list[float]] = {name: [] for name in steps}
    used = dict.fromkeys(steps, Usage())
    start = time.perf_counter()
    for number in range(max(rounds, 1)):
        if number >= LEAST_ROUNDS and time.perf_counter() - start > limit_s:
            break
        for name, step in steps.items():
            with keep_freed_memory() if step.kept else nullcontext():
                if step.kept:
                    clock(step, 1, device)
                before = Usage.now()
                seconds = clock(step, repeats[name], device)
                spent = zip(used[name], Usage.now(), before, strict=True)
                used[name] = Usage(*(old + now - then for old, now, then in spent))
            readings[name].append(seconds / repeats[name] / step.units)
    units = {name: len(values) * repeats[name] * steps[name].units for name, values in readings.items()}
    usages = {name: Usage(*(part / units[name] for part in used[name])) for name in steps}
    return {name: Timing(values, usages[name]) for name, values in readings.items()}


def release(device: str) -> None:
    """Free memory that is no longer used, before something else is measured."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def cuda_peak(make: Callable[[], Step]) -> tuple[Step, int]:
    """Return a step, and the peak bytes on the GPU of building it and running it once."""
    synchronize("cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step = make()
    step.run()
    synchronize("cuda")
    return step, torch.cuda.max_memory_allocated() - before


def resident(*, peak: bool) -> int | None:
    """Return the bytes that this process holds in memory, now or at most so far; None if not on Linux."""
    with suppress(OSError), open("/proc/self/status") as lines:
        for line in lines:
            if line.startswith("VmHWM" if peak else "VmRSS"):
                return int(line.split()[1]) * 1024
    return None


def here(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function in this process, for tests of whether it runs."""
    return function(*arguments)


def fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """function(*arguments) in a new interpreter: its peak memory is its own, and nothing is compiled yet.

    Compilers keep what they made on disk, so they get an empty folder. The function is a module's own.
    """
    with tempfile.TemporaryDirectory() as folder:
        caches = {name: os.path.join(folder, name) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
        with (
            patch.dict(os.environ, caches),
            ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
        ):
            return pool.submit(function, *arguments).result()
