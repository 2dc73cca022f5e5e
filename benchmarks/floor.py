"""Estimate the minimum time of an optimizer step from its operations and bytes and the limits of this machine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from .tables import Table
from .timing import Options, Step, clock

FILTERS, DEPTH, LATENT = 8, 2, 16  # defaults of EEGNet: temporal filters, spatial filters per temporal filter, latents
WIDE = FILTERS * DEPTH
KERNEL, SECOND_KERNEL = 64, 16
FIRST_POOL, SECOND_POOL = 4, 8
FLOAT = 4  # bytes
COPY = {"full": 2**26, "quick": 2**24, "tiny": 2**12}  # floats in the array that is copied


class Limits(NamedTuple):
    """Measured limits of the device in float32."""

    flops: float  # operations per second of the best matrix product
    bandwidth: float  # bytes that a copy in main memory reads and writes per second


class Floor(NamedTuple):
    """Operations and bytes of one optimizer step of one member."""

    operations: float
    bytes: float

    def seconds(self, limits: Limits) -> float:
        """Return the time of arithmetic or of memory traffic, whichever is longer, because they can overlap."""
        return max(self.operations / limits.flops, self.bytes / limits.bandwidth)


def member_step(channels: int, times: int, batch: int, classes: int = 4) -> Floor:
    """Return the number of operations and bytes of a step.

    Let R be the number of windows in a batch, C channels, T times, F = 16 filters, and T' = T/4.

    A multiply-add is 2 operations. The forward pass has F·C·R·T multiply-adds for channels, F·K·R·T for temporal
    filters of K taps, F·16·R·T' for the second temporal filters, F·F·R·T' for pointwise filters, and D·classes·R for
    the classifier. The backward pass has as many for the weights and, except for channels, for the signal.

    If all elementwise operations are fused, the window is read twice. The filtered signal (F·R·T floats) moves six
    times: it is written, read to normalize, read twice for the gradient of the normalization, and its gradient is
    written and read. Both signals of length T' move six times, and parameters seven times in AdamW. A CPU can be faster
    than this floor, because caches are not counted.
    """
    short = times // FIRST_POOL
    latent = LATENT * (short // min(SECOND_POOL, short))
    positions, pooled = batch * times, batch * short
    by_channel = WIDE * channels * positions
    other = WIDE * KERNEL * positions + (WIDE * SECOND_KERNEL + LATENT * WIDE) * pooled + latent * classes * batch
    parameters = FILTERS * KERNEL + WIDE * (channels + SECOND_KERNEL + LATENT) + classes * (latent + 1)
    parameters += 2 * (FILTERS + WIDE + LATENT)
    floats = 2 * channels * positions + 6 * (WIDE * positions + (WIDE + LATENT) * pooled) + 7 * parameters
    return Floor(2.0 * (2 * by_channel + 3 * other), float(FLOAT * floats))


def build_product_step(shape: tuple[int, int, int], device: str) -> Step:
    rows, inner, columns = shape
    a, b = torch.randn(1, rows, inner, device=device), torch.randn(1, inner, columns, device=device)
    out = torch.empty(1, rows, columns, device=device)
    return Step(lambda: torch.bmm(a, b, out=out))


def build_copy_step(floats: int, device: str) -> Step:
    source = torch.randn(floats, device=device)
    target = torch.empty_like(source)
    return Step(lambda: target.copy_(source))


def measure_limits(options: Options) -> Limits:
    """Measure the limits of the device, as the best of three measurements."""
    device = options.device
    shape = (64, 64, 64) if options.size == "tiny" else (2048 if device == "cuda" else 512, 1024, 2048)
    floats = COPY[options.size]
    best = []
    for step in (build_product_step(shape, device), build_copy_step(floats, device)):
        repeats = 20 if device == "cuda" else 3  # enough to hide the time of synchronization
        clock(step, 1, device)
        best.append(min(clock(step, repeats, device) / repeats for _ in range(3)))
    return Limits(2.0 * math.prod(shape) / best[0], 2.0 * FLOAT * floats / best[1])


def build_tables(options: Options) -> Iterator[Table]:
    device, machine = options.device, measure_limits(options)
    table = Table(f"floor of an optimizer step, batch 64, {device}")
    for channels in (8, 16, 56):
        for times in (128, 384):
            floor = member_step(channels, times, 64)
            table.add({
                "channels × samples": f"{channels} × {times}", "MFLOP": floor.operations / 1e6,
                "MB": floor.bytes / 1e6, "operations, µs": floor.operations / machine.flops * 1e6,
                "bytes, µs": floor.bytes / machine.bandwidth * 1e6, "floor, µs": floor.seconds(machine) * 1e6,
            })  # fmt: skip
    table.notes.append(
        f"At {machine.flops / 1e9:.3g} GFLOP/s and {machine.bandwidth / 1e9:.3g} GB/s, measured in this run."
    )
    yield table
